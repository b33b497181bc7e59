"""Correlation coefficients of two columns along training runs, with intervals that know about drift and neighbours.

Raw correlations along one run prove little, since all quantities drift with training. Three remedies, alone or
together: `differenced` compares changes from one checkpoint to the next; `given` takes out what the columns named there
explain; `lag` compares x with y so many checkpoints later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from landscape.errors import StudyError
from landscape.statistics.resampling import blocks, resample, runs_of

KINDS = ("pearson", "spearman", "kendall")
_EXPLAINED = 1e-9  # of a column's length
_LEAST = 4  # rows beyond the columns taken out
_AT_ONCE = 1 << 24  # numbers of a block of pairs
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficient:
    """A correlation.

    Attributes:
        kind: pearson, spearman or kendall (τ_b).
        value: of all rows.
        low: lower end of the 95 % interval.
        high: upper end.
        rows: pairs that went in.
    """

    kind: str
    value: float
    low: float
    high: float
    rows: int


def correlate(
    x: ArrayLike,
    y: ArrayLike,
    runs: Sequence[object] | None = None,
    *,
    kinds: Sequence[str] = KINDS,
    given: Mapping[str, ArrayLike] | None = None,
    differenced: bool = False,
    lag: int = 0,
    draws: int = 2000,
    seed: int = 0,
) -> dict[str, Coefficient]:
    """Pearson's r, Spearman's ρ and Kendall's τ_b of x and y, each with a 95 % interval.

    With `given`, the coefficient is that of the residuals of least squares on those columns and a constant; for ρ and τ
    columns are ranked before. Where nothing is left of x or y it is NaN. The interval is atanh(r) ± t·s, taken back by
    tanh: s is the standard deviation over resamplings of blocks of neighbouring checkpoints, from all runs alike
    (`landscape.statistics.resampling`), t the quantile of Student's t with a degree of freedom for every block but one.
    Among few rows some resamplings agree perfectly; these count as the rank correlation next
    to 1.

    Args:
        x: one number a row; rows of a run in the order of training. Rows with a number that is not finite are left out.
        y: as x.
        runs: the run of every row; None for one run.
        kinds: which coefficients.
        given: columns whose influence is taken out.
        differenced: correlate changes between neighbouring checkpoints of a run.
        lag: correlate x with y so many checkpoints later in the same run; negative for earlier.
        draws: resamplings.
        seed: of these.

    Raises:
        StudyError: too few rows, or a column that does not vary.
    """
    names = list(given or {})
    table = np.column_stack([np.asarray(each, dtype=float) for each in (x, y, *(given or {}).values())])
    groups: list[object] = [0] * len(table) if runs is None else list(runs)
    table, groups = _along(table, groups, lag, differenced)
    if len(table) < _LEAST + len(names):
        raise StudyError(
            f"correlation: {len(table)} rows that can be compared; expected at least {_LEAST + len(names)}"
        )
    for name, column in zip(("x", "y"), table.T, strict=False):
        if np.ptp(column) == 0:
            raise StudyError(f"correlation: {name} is the same in all {len(table)} rows")
    places = np.vstack([np.arange(len(table)), resample(groups, draws, seed)])
    quantile = float(stats.t.ppf(0.975, max(1, blocks(groups) - 1)))
    return {kind: _coefficient(kind, table, places, quantile) for kind in kinds}


def _along(table: _Floats, groups: list[object], lag: int, differenced: bool) -> tuple[_Floats, list[object]]:
    """Rows that are compared: shifted and differenced within each run, without those that are not finite."""
    parts, names = [], []
    for own in runs_of(groups):
        rows = table[own]
        rows = rows[np.isfinite(rows).all(axis=1)]
        if differenced:
            rows = np.diff(rows, axis=0)
        if lag:
            ahead, shift = rows[:, [1]], abs(lag)
            x, y = (rows[:-shift], ahead[shift:]) if lag > 0 else (rows[shift:], ahead[:-shift])
            rows = np.column_stack([x[:, 0], y[:, 0], x[:, 2:]])
        parts.append(rows)
        names += [groups[own[0]]] * len(rows)
    return np.concatenate(parts), names


def _coefficient(kind: str, table: _Floats, places: NDArray[np.intp], quantile: float) -> Coefficient:
    size = max(1, _AT_ONCE // places.shape[1] ** 2)
    parts = [places[begin : begin + size] for begin in range(0, len(places), size)]
    values = np.concatenate([_values(kind, table[part]) for part in parts])
    value, drawn = values[0], values[1:]
    drawn = drawn[np.isfinite(drawn)]
    nearest = _nearest(kind, places.shape[1])
    z = np.arctanh(np.clip(value, -nearest, nearest))
    error = np.arctanh(np.clip(drawn, -nearest, nearest)).std(ddof=1) if len(drawn) > 1 else np.nan
    reach = quantile * error
    low, high = min(value, np.tanh(z - reach)), max(value, np.tanh(z + reach))  # atanh stops short of 1
    return Coefficient(kind, float(value), float(low), float(high), places.shape[1])


def _nearest(kind: str, rows: int) -> float:
    """The nearest to 1: for ranks, where the orders of so many rows differ by two neighbours."""
    return {"pearson": 1 - 1e-6, "spearman": 1 - 12 / (rows**3 - rows), "kendall": 1 - 4 / (rows**2 - rows)}[kind]


def _values(kind: str, drawn: _Floats) -> _Floats:
    """The coefficient of each of (draws, rows, columns)."""
    if kind != "pearson":
        drawn = stats.rankdata(drawn, axis=1)
    x, y = _residual(drawn)
    if kind == "kendall":
        return _kendall(x, y)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1)))


def _residual(drawn: _Floats) -> tuple[_Floats, _Floats]:
    """Both columns less what a constant and the other columns explain of them: (x, y), each (draws, rows)."""
    centred = drawn - drawn.mean(axis=1, keepdims=True)
    pair, given = centred[:, :, :2], centred[:, :, 2:]
    if given.shape[2]:
        scale = np.linalg.norm(given, axis=1, keepdims=True)
        basis, _ = np.linalg.qr(given / np.where(scale > 0, scale, 1.0))
        rest = pair - basis @ (basis.transpose(0, 2, 1) @ pair)
        explained = np.linalg.norm(rest, axis=1) < _EXPLAINED * np.linalg.norm(pair, axis=1)
        pair = np.where(explained[:, None, :], np.nan, rest)  # what is left of such a column is rounding
    return pair[:, :, 0], pair[:, :, 1]


def _kendall(x: _Floats, y: _Floats) -> _Floats:
    """τ_b: concordant less discordant pairs, over the geometric mean of the pairs untied in x and in y."""
    signs = [np.sign(np.round(each[:, :, None] - each[:, None, :], 12)) for each in (x, y)]
    with np.errstate(invalid="ignore", divide="ignore"):
        untied = [(each**2).sum(axis=(1, 2)) for each in signs]
        return np.asarray((signs[0] * signs[1]).sum(axis=(1, 2)) / np.sqrt(untied[0] * untied[1]))
