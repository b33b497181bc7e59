"""Which losses the colours stretch over, and at which the lines are drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Cells more than _FAR times as far above the lowest loss as the highest named point is make the colours end at _RANGE
# times as far.
_RANGE, _FAR = 4.0, 6.0
_LINES = 14  # about as many contour lines as can be told apart


@dataclass(frozen=True)
class ColourRange:
    """The losses the colours stretch over, the step between contour lines, and how many cells lie above."""

    low: float
    high: float
    step: float
    cells_above: int

    @property
    def lines(self) -> np.ndarray:
        """The losses at which contour lines are drawn: multiples of `step`."""
        return multiples(self.step, self.low, self.high)

    @property
    def ticks(self) -> np.ndarray:
        """The losses at which a colour bar or an axis has its ticks: every second line or so."""
        return multiples(nice_step((self.high - self.low) / 7), self.low, self.high)

    @property
    def tick_digits(self) -> int:
        """Digits after the point that tell the ticks apart."""
        step = nice_step((self.high - self.low) / 7)
        return next(digits for digits in range(20) if math.isclose(round(step, digits), step, rel_tol=1e-6))


def colour_range(losses: np.ndarray, named: list[float]) -> ColourRange | None:
    """From the lowest loss to the highest, or less far where some cells tower above the named points.

    Args:
        losses: finite ones, of the cells.
        named: losses of the named points, finite or not.
    """
    if not losses.size:
        return None
    low, highest = float(losses.min()), float(losses.max())
    finite = [loss for loss in named if math.isfinite(loss)]
    # This keeps most of a slice from being saturated where the named points are about equally good, or there is one.
    level = max([float(np.quantile(losses, 0.25 if len(finite) > 1 else 0.5)), *finite])
    high = low + _RANGE * (level - low) if highest - low > _FAR * (level - low) else highest
    if not high > low:  # the same loss everywhere
        low, high = low - 1e-6 * max(1.0, abs(low)), low + 1e-6 * max(1.0, abs(low))
    return ColourRange(low, high, nice_step((high - low) / _LINES), int((losses > high).sum()))


def nice_step(rough: float) -> float:
    """The smallest of …, 0.1, 0.2, 0.25, 0.5, 1, … that is at least `rough`.

    >>> nice_step(0.012), nice_step(0.3)
    (0.02, 0.5)
    """
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0) if factor * power >= rough * (1 - 1e-9))


def multiples(step: float, low: float, high: float) -> np.ndarray:
    """The multiples of `step` from `low` to `high`."""
    return np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step
