"""The rectangle of a slice and its grid lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from landscape.errors import OptionError


@dataclass(frozen=True)
class Bounds:
    """A rectangle: α from `alpha[0]` to `alpha[1]`, β likewise; distances in weight space.

    A line along α has β from 0 to 0.
    """

    alpha: tuple[float, float]
    beta: tuple[float, float]

    def __post_init__(self) -> None:
        for name, (low, high) in (("alpha", self.alpha), ("beta", self.beta)):
            is_line = name == "beta" and low == high == 0
            if not (np.isfinite(low) and np.isfinite(high) and (low < high or is_line)):
                raise OptionError(f"bounds of {name} {low}, {high}: expected two finite numbers, the smaller first")

    def hold(self, alpha: float, beta: float) -> bool:
        """Whether the place lies on the rectangle."""
        return self.alpha[0] <= alpha <= self.alpha[1] and self.beta[0] <= beta <= self.beta[1]


def union(rectangles: Sequence[Bounds]) -> Bounds:
    """The smallest rectangle that holds them all.

    Raises:
        OptionError: lines and rectangles together.
    """
    if len({bounds.beta == (0, 0) for bounds in rectangles}) > 1:
        raise OptionError("bounds of lines and of rectangles: expected slices of one kind")
    sides = np.array([[bounds.alpha, bounds.beta] for bounds in rectangles])
    (a, c), (b, d) = sides[..., 0].min(axis=0).tolist(), sides[..., 1].max(axis=0).tolist()
    return Bounds((a, b), (c, d))


def around(points: Iterable[tuple[float, float]], margin: float, is_line: bool = False) -> Bounds:
    """The rectangle that holds all points, widened on each side by `margin` times its size; a line along α if asked.

    An axis along which the points hardly spread takes half the spread of the other one, centred on them: the picture
    of a short step and a long one stays readable, and a plane with points on one axis only still has two.

    Raises:
        OptionError: a negative margin, or points that all coincide.
    """
    if not margin >= 0:
        raise OptionError(f"margin {margin}: expected a fraction of at least 0, such as 0.5")
    places = np.asarray(list(points), dtype=np.float64)
    low, high = places.min(axis=0), places.max(axis=0)
    spread = high - low
    if spread.max() == 0:
        raise OptionError("the named points all coincide: give the rectangle with --bounds")
    size = np.maximum(spread, spread.max() / 2)
    middle = (low + high) / 2
    if is_line:
        size[1] = middle[1] = 0.0
    a, b = (middle - size * (0.5 + margin)).tolist(), (middle + size * (0.5 + margin)).tolist()
    return Bounds((a[0], b[0]), (a[1], b[1]))


def with_zero(low: float, high: float, n: int) -> np.ndarray:
    """`n` equally spaced float64 coordinates that cover [low, high], one of them exactly 0 if the interval holds it.

    The interval grows by the least that puts a grid line through zero, so that the origin is a cell of the grid.
    """
    if low > 0 or high < 0 or n < 3:
        return evenly(low, high, n)
    steps = [(max(-low / k if k else 0.0, high / (n - 1 - k) if k < n - 1 else 0.0), k) for k in range(n)]
    feasible = [(h, k) for h, k in steps if h * k >= -low * (1 - 1e-12) and h * (n - 1 - k) >= high * (1 - 1e-12)]
    spacing, below = min(feasible)
    return spacing * (np.arange(n, dtype=np.float64) - below)


def evenly(low: float, high: float, n: int) -> np.ndarray:
    """`n` equally spaced float64 coordinates, the first `low` and the last `high`; a rounded zero is zero."""
    line = np.linspace(low, high, n, dtype=np.float64)
    line[np.abs(line) < 1e-12 * max(abs(low), abs(high))] = 0.0
    return line


def parse_grid(text: str, is_line: bool = False) -> tuple[int, int]:
    """`41x25` → (41, 25): cells along α and β; for a line `41` → (41, 1).

    Raises:
        OptionError: not two whole numbers of at least 2, or one.
    """
    parts = text.lower().split("x")
    if is_line:
        if len(parts) != 1 or not text.isdecimal() or int(text) < 2:
            raise OptionError(f"grid {text}: expected one whole number of at least 2 such as 101 (cells of a line)")
        return int(text), 1
    if len(parts) != 2 or not all(part.isdecimal() and int(part) >= 2 for part in parts):
        raise OptionError(f"grid {text}: expected two whole numbers of at least 2 such as 41x25 (cells along α, β)")
    return int(parts[0]), int(parts[1])


def parse_bounds(text: str, is_line: bool = False) -> Bounds:
    """`-1,2,-0.5,3` → α from −1 to 2 and β from −0.5 to 3; for a line `-1,2`.

    Raises:
        OptionError: not four numbers, or two, or a range that is empty.
    """
    try:
        a, b, c, d = [float(part) for part in text.split(",")] + ([0.0, 0.0] if is_line else [])
    except ValueError as error:
        expected = "two numbers α_low,α_high" if is_line else "four numbers α_low,α_high,β_low,β_high"
        raise OptionError(f"bounds {text}: expected {expected}") from error
    if not is_line and c == d:
        raise OptionError(f"bounds of beta {c}, {d}: expected two finite numbers, the smaller first")
    return Bounds((a, b), (c, d))
