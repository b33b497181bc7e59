"""Where along a run a column changes its slope: a broken line, and how sure its break is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from landscape.errors import StudyError
from landscape.statistics.resampling import resample

_LEAST = 3  # rows on either side of a break
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ChangePoint:
    """A break of y = a + b·t + c·max(t − τ, 0).

    Attributes:
        at: τ.
        low: lower end of its 95 % interval.
        high: upper end.
        before: slope up to there, b.
        after: slope from there on, b + c.
        p_value: how often a straight line with such residuals is bent as much as this.
    """

    at: float
    low: float
    high: float
    before: float
    after: float
    p_value: float


def change_point(t: ArrayLike, y: ArrayLike, draws: int = 1000, seed: int = 0) -> ChangePoint:
    """The break that least squares finds, of a line that is broken once and does not jump.

    The interval comes from residuals of the broken line, drawn in blocks of neighbours and put on it again; the p-value
    from those of the straight one.

    Args:
        t: ascending, such as steps or tokens of the checkpoints of one run.
        y: a number for each.
        draws: resamplings.
        seed: of these.

    Raises:
        StudyError: too few rows, or t that does not rise.
    """
    rows = np.column_stack([np.asarray(t, dtype=float), np.asarray(y, dtype=float)])
    places, values = rows[np.isfinite(rows).all(axis=1)].T
    if len(places) < 2 * _LEAST + 2:
        raise StudyError(f"change point: {len(places)} rows; expected at least {2 * _LEAST + 2}")
    if not (np.diff(places) > 0).all():
        raise StudyError("change point: expected steps that rise from row to row")
    scan = _Scan(places)
    bent, best, straight, errors = scan(values[None])
    slopes = scan.slopes(values, int(best[0]))
    drawn = resample([0] * len(places), draws, seed)
    again = bent[0] + _spread(values - bent[0], 4)[drawn]
    low, high = np.percentile(scan.breaks[scan(again)[1]], [2.5, 97.5])
    null = straight[0] + _spread(values - straight[0], 2)[drawn]
    as_bent = np.mean(scan(null)[3] >= errors[0])
    return ChangePoint(
        float(scan.breaks[best[0]]), float(low), float(high), *slopes, float((draws * as_bent + 1) / (draws + 1))
    )


class _Scan:
    """Broken lines over fixed t, for many y at once; breaks lie at the rows and halfway between them."""

    def __init__(self, t: _Floats) -> None:
        inner = t[_LEAST - 1 : len(t) - _LEAST + 1]
        self.breaks = np.sort(np.concatenate([inner, (inner[1:] + inner[:-1]) / 2]))
        self._t = t
        self._line = np.linalg.qr(np.column_stack([np.ones_like(t), (t - t[0]) / (t[-1] - t[0])]))[0]
        hinges = np.maximum(t[:, None] - self.breaks, 0)
        hinges = hinges - self._line @ (self._line.T @ hinges)
        self._hinges = hinges / np.linalg.norm(hinges, axis=0)  # (rows, breaks), orthogonal to all straight lines

    def __call__(self, y: _Floats) -> tuple[_Floats, NDArray[np.intp], _Floats, _Floats]:
        """Of y (draws, rows): (broken line, place of its break, straight line, what bending takes of the rest)."""
        straight = y @ self._line @ self._line.T
        along = (y - straight) @ self._hinges  # (draws, breaks)
        best = np.argmax(along**2, axis=1)
        rows = np.arange(len(y))
        bent = straight + along[rows, best][:, None] * self._hinges.T[best]
        rest = ((y - straight) ** 2).sum(axis=1)
        return bent, best, straight, along[rows, best] ** 2 / np.maximum(rest, np.finfo(float).tiny)

    def slopes(self, y: _Floats, place: int) -> tuple[float, float]:
        """Before and after this break."""
        design = np.column_stack([np.ones_like(self._t), self._t, np.maximum(self._t - self.breaks[place], 0)])
        _, before, more = np.linalg.lstsq(design, y, rcond=None)[0]
        return float(before), float(before + more)


def _spread(residuals: _Floats, fitted: int) -> _Floats:
    """Residuals as wide as errors are: least squares makes them smaller, by what was fitted."""
    return (residuals - residuals.mean()) * np.sqrt(len(residuals) / (len(residuals) - fitted))
