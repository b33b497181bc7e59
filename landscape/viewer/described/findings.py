"""What a slice says, in numbers with their errors: slope, curvature, widths, the quadratic model, area, barriers."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.words import MISSING, bound, listed, measured, number

_SLOPE, _CURVATURE = "gradient_{way}", "hessian_{way}_{way}"
BEYOND = "beyond the rectangle"
_ANY_BARRIER = 3  # points up to which the barriers between all of them are told, not only the highest


@dataclass(frozen=True)
class Row:
    """One quantity along every direction.

    Attributes:
        name, unit: in words.
        cells: for every direction, one text, or one for going forward and one for going back.
    """

    name: str
    unit: str
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Findings:
    """What a slice says.

    Attributes:
        directions: what the cells of a row stand for.
        rows: quantities along them.
        others: (name, value) of what has no direction.
    """

    directions: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    others: tuple[tuple[str, str], ...] = ()


def findings(stored: StoredSlice) -> Findings:
    """What `stored` says; empty where it holds no reading."""
    if not stored.reading:
        return Findings()
    origin, last = stored.points[0], stored.points[-1]
    ways = {"alpha": "α"} if stored.is_line else {"alpha": "α", "beta": "β"}
    if not stored.is_line and last is not origin:
        ways["delta"] = f"{origin.label} → {last.label}"
    read = _Reader(stored)
    at, rise = f"at {origin.label}", f"{number(read('rise'), '.3g')} nats"
    one_each = {name: tuple((read.measured(name.format(way=way)),) for way in ways) for name in (_SLOPE, _CURVATURE)}
    rows = (
        Row(f"Slope {at}", "nats per distance", one_each[_SLOPE]),
        Row(f"Curvature {at}", "nats per distance²", one_each[_CURVATURE]),
        Row(f"Loss is {rise} higher after", "distance", tuple(read.both_ways("width", way) for way in ways)),
        Row("Quadratic model good until", "distance", tuple(read.both_ways("departure", way) for way in ways)),
    )
    others = (
        ("Largest curvature in the plane", _eigenvalue(read, "largest")),
        ("Smallest curvature in the plane", _eigenvalue(read, "smallest")),
        ("Mixed derivative ∂²L/∂α∂β", read.measured("hessian_alpha_beta")),
        (f"Area where the loss is at most {rise} higher", _area(read)),
        *_barriers(stored, read),
    )
    return Findings(
        tuple(ways.values()),
        tuple(row for row in rows if any(cell != (MISSING,) for cell in row.cells)),
        tuple((name, value) for name, value in others if value != MISSING),
    )


class _Reader:
    """Numbers of a reading in words; NaN where one is missing."""

    def __init__(self, stored: StoredSlice) -> None:
        self._reading = stored.reading
        self._beyond = "beyond the ends" if stored.is_line else BEYOND
        self._whole = bool(np.isfinite(stored.loss[stored.done]).all())

    def __call__(self, name: str) -> float:
        return self._reading.get(name, math.nan)

    def measured(self, name: str) -> str:
        """A number with its error."""
        return measured(self(name), self(f"{name}_error"))

    def both_ways(self, name: str, way: str) -> tuple[str, ...]:
        """A distance forward and one back."""
        both = [self._distance(name, f"{way}_{sign}") for sign in ("plus", "minus")]
        if both[0] == both[1]:
            return (both[0],)
        signs = [sign + " " * (distance == self._beyond) for sign, distance in zip("+−", both, strict=True)]
        return tuple(f"{sign}{distance}" for sign, distance in zip(signs, both, strict=True) if distance != MISSING)

    def _distance(self, name: str, way: str) -> str:
        distance, error = self(f"{name}_{way}"), self(f"{name}_{way}_error")
        if distance == math.inf:
            looked = number(self(f"looked_{way}"), ".3g")  # there the rectangle ends, or the losses do
            return self._beyond if self._whole else f"{looked} or farther"
        if error == math.inf:
            return f"{number(distance, '.3g')} or farther"
        return measured(distance, error)


def _eigenvalue(read: _Reader, which: str) -> str:
    value = measured(read(f"eigenvalue_{which}"), read("eigenvalue_error"))
    if value == MISSING:
        return MISSING
    if which == "smallest":
        return f"{value} nats per distance²"
    angle, error = (math.degrees(read(name)) for name in ("angle", "angle_error"))
    where = "in no certain direction" if error > 60 else f"at {measured(angle, error, '°')} from α"
    return f"{value} nats per distance², {where}"


def _area(read: _Reader) -> str:
    area, share = read("area"), read("area_share")
    if math.isnan(area):
        return MISSING
    least = "at least " if read("area_is_cut") else ""
    edge = ", reaching the edge" if least else ""
    return f"{least}{read.measured('area')} distance² ({100 * share:.3g} % of the rectangle{edge})"


def _barriers(stored: StoredSlice, read: _Reader) -> list[tuple[str, str]]:
    """Between which points there is one, or the highest where there are many points."""
    pairs = {
        (a, b): read(f"barrier_{a.name}_{b.name}")
        for a, b in itertools.combinations(stored.points, 2)
        if math.isfinite(read(f"barrier_{a.name}_{b.name}"))
    }
    many = len(stored.points) > _ANY_BARRIER
    if not pairs:
        return []
    if max(pairs.values()) <= 0:
        error = max(read(f"barrier_{a.name}_{b.name}_error") for a, b in pairs)
        between = "the named points" if many else listed([point.label for point in stored.points])
        return [(f"Barrier between {between}", f"none (± {bound(error)} nats)")]
    highest = max(pairs, key=lambda pair: pairs[pair])
    return [
        (f"{'Highest barrier' if many else 'Barrier'} {a.label} – {b.label}", _barrier(read, f"{a.name}_{b.name}"))
        for a, b in ([highest] if many else pairs)
    ]


def _barrier(read: _Reader, pair: str) -> str:
    height, error, at, excess = (read(f"barrier_{pair}{end}") for end in ("", "_error", "_at", "_excess"))
    what = (
        f"{measured(height, error)} nats, {100 * at:.0f} % of the way"
        if height > 0
        else f"none (± {bound(error)} nats)"
    )
    return f"{what}; {measured(excess, error)} nats above the chord" if excess > error else what
