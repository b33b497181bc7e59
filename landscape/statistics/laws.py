"""Laws of quantization error that are linear in logarithms, fitted by least squares and tried on runs left out.

    kumar      δ = C · D^γD / N^γN · e^(−P/γP)      arXiv 2411.04330
    ouyang     δ = k · D^β / (N^α · P^γ)             arXiv 2411.17691
    curvature  δ = c · q^κ, where q is what curvature and step sizes predict; κ = 1 and c = 1 if that were all

D is tokens, N parameters, P bits, δ the loss added in nats. A quantity that does not vary is left out of the law: its
factor is then part of the constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from landscape.errors import StudyError
from landscape.statistics.resampling import resample, runs_of

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """A factor of a law: `exponent` · `of`(column) in the logarithm."""

    exponent: str
    column: str
    of: Callable[[_Floats], _Floats]


LAWS: dict[str, tuple[Term, ...]] = {
    "kumar": (
        Term("gamma_D", "tokens", np.log),
        Term("gamma_N", "parameters", lambda n: -np.log(n)),
        Term("1/gamma_P", "bits", lambda p: -p),
    ),
    "ouyang": (
        Term("beta", "tokens", np.log),
        Term("alpha", "parameters", lambda n: -np.log(n)),
        Term("gamma", "bits", lambda p: -np.log(p)),
    ),
    "curvature": (Term("kappa", "predicted", np.log),),
}


@dataclass(frozen=True)
class Fit:
    """A law on a table.

    Attributes:
        law: its name.
        constant: C, k or c.
        exponents: (value, low, high) of each that could be fitted; 95 % intervals from resampled blocks of checkpoints.
        left_out: columns that do not vary.
        r_squared: of ln δ.
        rank: Spearman's ρ of law and δ.
        error: root mean square of ln δ less the law, on each run by a fit to the others; NaN for one run.
        rows: that went in.
        dropped: rows without a positive δ or column, which have no logarithm.
    """

    law: str
    constant: float
    exponents: Mapping[str, tuple[float, float, float]]
    left_out: tuple[str, ...]
    r_squared: float
    rank: float
    error: float
    rows: int
    dropped: int


def fit(
    law: str,
    delta: ArrayLike,
    columns: Mapping[str, ArrayLike],
    runs: Sequence[object] | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Fit:
    """Fit `law` to δ.

    Args:
        law: kumar, ouyang or curvature.
        delta: nats that quantization adds, one a row.
        columns: tokens, parameters, bits, or predicted, as the law needs them.
        runs: the run of every row; None for one.
        draws: resamplings.
        seed: of these.

    Raises:
        StudyError: no such law, a column that is missing, or too few rows that have a logarithm.
    """
    if law not in LAWS:
        raise StudyError(f"law {law}: expected one of {', '.join(LAWS)}")
    terms = LAWS[law]
    if lacking := [term.column for term in terms if term.column not in columns]:
        raise StudyError(f"law {law}: needs the column {lacking[0]}")
    values = np.column_stack([np.asarray(each, dtype=float) for each in (delta, *(columns[t.column] for t in terms))])
    positive = np.isfinite(values).all(axis=1) & (values > 0).all(axis=1)
    names = [0] * len(values) if runs is None else list(runs)
    groups = [name for name, usable in zip(names, positive, strict=True) if usable]
    values = values[positive]
    varying = [number for number in range(len(terms)) if len(values) and np.ptp(values[:, 1 + number]) > 0]
    kept = [terms[number] for number in varying]
    if len(values) < len(kept) + 3:
        raise StudyError(f"law {law}: {len(values)} rows with a positive error; expected at least {len(kept) + 3}")
    y = np.log(values[:, 0])
    design = np.column_stack([np.ones(len(y)), *(terms[n].of(values[:, 1 + n]) for n in varying)])
    found = _solve(design, y)
    law_of_row = design @ found
    drawn = np.array([_solve(design[rows], y[rows]) for rows in resample(groups, draws, seed)])
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    spread = ((y - y.mean()) ** 2).sum()
    return Fit(
        law,
        float(np.exp(found[0])),
        {t.exponent: (float(found[n]), float(low[n]), float(high[n])) for n, t in enumerate(kept, start=1)},
        tuple(term.column for term in terms if term not in kept),
        float(1 - ((y - law_of_row) ** 2).sum() / spread) if spread else float("nan"),
        float(stats.spearmanr(law_of_row, y).statistic) if np.ptp(law_of_row) > 0 and np.ptp(y) > 0 else float("nan"),
        _left_out(design, y, groups),
        len(y),
        int((~positive).sum()),
    )


def _solve(design: _Floats, y: _Floats) -> _Floats:
    return np.asarray(np.linalg.lstsq(design, y, rcond=None)[0])


def _left_out(design: _Floats, y: _Floats, groups: Sequence[object]) -> float:
    runs = runs_of(groups)
    if len(runs) < 2:
        return float("nan")
    errors = []
    for own in runs:
        others = np.setdiff1d(np.arange(len(y)), own)
        errors.append(y[own] - design[own] @ _solve(design[others], y[others]))
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
