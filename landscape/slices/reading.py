"""What a slice says: the quadratic form at the origin and how far it holds; widths, the set below a level, barriers.

All is read off a surface, nothing is evaluated. Losses are in nats, places and lengths in weight-space distance. What a
slice cannot say is NaN: quantities of β and areas where it is a line, and what lies beyond the rectangle or rests on
losses that are not finite.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from landscape.slices.axes import Bounds
from landscape.slices.derivatives import NOTHING, ORDERS, derivatives, eigen
from landscape.slices.sublevel import Loss, Place, farthest, share_below
from landscape.slices.surface import Surface

_SAMPLES, _ZOOMS = 1001, 4  # places along a line, and how often as many between two neighbours of them
_DEPARTED = 0.1  # of the change of the loss
_RESOLVED = 3.0  # times its error, that a change of the loss must be


@dataclass(frozen=True)
class Along:
    """What is met on the straight way from the origin in one direction.

    Attributes:
        looked: how far it was followed: to the edge of the rectangle, or to the last loss before one that is NaN.
        width: distance at which the loss has first risen by `rise`; infinite where it never does.
        width_error: how far the error of the surface can move that.
        departure: distance at which the quadratic model is first off by more than a tenth of the change of the loss,
            of changes above three times the error of the surface; infinite where it never is.
        departure_error: how far the errors of gradient and Hessian can move that; as much as `departure` where the
            model is off as soon as that can be seen.
    """

    looked: float
    width: float
    width_error: float
    departure: float
    departure_error: float


@dataclass(frozen=True)
class Barrier:
    """What lies on the straight line from a place a (t = 0) to a place b (t = 1).

    Attributes:
        height: max_t L(t) − max(L(a), L(b)), nats; 0 where nothing between is higher than both.
        at: the t of the highest place.
        excess: max_t L(t) − (1 − t) L(a) − t L(b), nats: how far the loss rises above the straight line.
        error: of `height` and of `excess`, nats.
    """

    height: float
    at: float
    excess: float
    error: float


@dataclass(frozen=True)
class Reading:
    """What a slice says.

    Attributes:
        value, value_error: loss at the origin, nats.
        gradient, gradient_error: (2,) along α and β, nats per distance.
        hessian, hessian_error: (2, 2) of the plane, nats per distance², and the error of each entry.
        eigenvalues: (2,) of the Hessian, the larger one first.
        eigenvalue_error: of each, ‖hessian_error‖₂.
        angle, angle_error: of the larger one's direction, from α towards β, in (−π/2, π/2]; with an error of π/2 it is
            not determined.
        delta: (2,) the direction from the origin to the last point, of length 1.
        rise: Δloss of widths and area, nats.
        along: by way: `alpha_plus`, `alpha_minus`, `beta_…`, and `delta_…` from the origin towards the last point.
        area, area_error: of the part of {L ≤ value + rise} that is connected to the origin, distance².
        area_share: the same, of the area of the rectangle.
        area_is_cut: whether it reaches the edge of the rectangle or a loss that is NaN, and so is a lower bound.
        barriers: by pair of points, such as `theta_theta_hat`.
    """

    value: float
    value_error: float
    gradient: np.ndarray
    gradient_error: np.ndarray
    hessian: np.ndarray
    hessian_error: np.ndarray
    eigenvalues: np.ndarray
    eigenvalue_error: float
    angle: float
    angle_error: float
    delta: np.ndarray
    rise: float
    along: Mapping[str, Along]
    area: float
    area_error: float
    area_share: float
    area_is_cut: bool
    barriers: Mapping[str, Barrier]

    def to_plain(self) -> dict[str, float]:
        """Numbers by name, such as `hessian_alpha_beta` and `width_delta_plus_error`, the same for all slices."""
        plain: dict[str, Any] = {"eigenvalue_largest": self.eigenvalues[0], "eigenvalue_smallest": self.eigenvalues[1]}
        plain |= {name: number for name, number in vars(self).items() if isinstance(number, int | float)}
        for end, d in (("", self.delta), ("_error", abs(self.delta))):
            g, h = getattr(self, f"gradient{end}"), getattr(self, f"hessian{end}")
            plain |= {f"gradient_alpha{end}": g[0], f"gradient_beta{end}": g[1], f"gradient_delta{end}": d @ g}
            plain |= {f"hessian_alpha_alpha{end}": h[0, 0], f"hessian_beta_beta{end}": h[1, 1]}
            plain |= {f"hessian_alpha_beta{end}": h[0, 1], f"hessian_delta_delta{end}": d @ h @ d}
        for way, met in self.along.items():
            plain |= {f"looked_{way}": met.looked, f"width_{way}": met.width, f"width_{way}_error": met.width_error}
            plain |= {f"departure_{way}": met.departure, f"departure_{way}_error": met.departure_error}
        for pair, found in self.barriers.items():
            plain |= {f"barrier_{pair}": found.height, f"barrier_{pair}_error": found.error}
            plain |= {f"barrier_{pair}_at": found.at, f"barrier_{pair}_excess": found.excess}
        return {name: float(number) for name, number in plain.items()}


def read_surface(surface: Surface, bounds: Bounds, error: float, points: Mapping[str, Place], rise: float) -> Reading:
    """What `surface` says of the first of `points`, the origin, and of the way to the last.

    Args:
        surface: the loss on the rectangle.
        bounds: the rectangle, or a line along α.
        error: largest absolute error of the surface, nats, as its certificate states it. Where the origin lies among
            evaluated cells, what interpolation between those is off by counts as such.
        points: places by name.
        rise: Δloss of widths and area, nats, such as |L(Θ̂) − L(Θ)|; there are none unless it is positive and finite.
    """
    origin, last = (list(points.values())[i] for i in (0, -1))
    loss = _on(surface, bounds)
    value = float(loss(*np.array([origin]).T)[0])
    known = math.isfinite(value)
    rise = rise if known and 0 < rise < math.inf else math.nan
    values, errors, bend = derivatives(surface, origin, error) if known else NOTHING
    error, resolved = max(error, bend), max(_RESOLVED * error, bend / _DEPARTED)
    along = {}
    delta = np.subtract(last, origin) / (math.dist(last, origin) or math.nan)
    for name, way in {"alpha": np.array([1.0, 0.0]), "beta": np.array([0.0, 1.0]), "delta": delta}.items():
        for side, (u, v) in (("plus", way), ("minus", -way)):
            weights = np.array([(u, v, 0, 0, 0), (0, 0, u * u, 2 * u * v, v * v)])
            ray = _Ray(loss, bounds, origin, (u, v), value)
            along[f"{name}_{side}"] = _along(ray, weights @ values, abs(weights) @ errors, (rise, error, resolved))
    share, share_error, is_cut = share_below(loss, bounds, origin, value + rise, 2 * error)
    whole = float(np.ptp(bounds.alpha) * np.ptp(bounds.beta))
    if not whole:
        values, errors = (np.where(ORDERS[:, 1] > 0, math.nan, numbers) for numbers in (values, errors))
    largest, smallest, angle = eigen(values)
    eigenvalue_error = eigen(errors)[0]
    turned = 2 * eigenvalue_error / (largest - smallest) if largest > smallest else math.inf
    return Reading(
        value=value,
        value_error=error,
        gradient=values[:2],
        gradient_error=errors[:2],
        hessian=values[[[2, 3], [3, 4]]],
        hessian_error=errors[[[2, 3], [3, 4]]],
        eigenvalues=np.array([largest, smallest]),
        eigenvalue_error=eigenvalue_error,
        angle=angle,
        angle_error=math.asin(turned) / 2 if turned < 1 else math.pi / 2,
        delta=delta,
        rise=rise,
        along=along,
        area=share * whole,
        area_error=share_error * whole,
        area_share=share,
        area_is_cut=is_cut,
        barriers={
            f"{a}_{b}": barrier(surface, bounds, points[a], points[b], error)
            for a, b in itertools.combinations(points, 2)
        },
    )


def barrier(surface: Surface, bounds: Bounds, a: Place, b: Place, error: float) -> Barrier:
    """What lies between the places `a` and `b`; `error` is that of the surface, nats."""
    t = np.linspace(0, 1, _SAMPLES)
    path = _on(surface, bounds)(a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1]))
    highest = int(path.argmax())  # the first NaN, if there is one
    with np.errstate(invalid="ignore"):  # of infinite losses
        height = path[highest] - max(path[0], path[-1])
        excess = (path - (1 - t) * path[0] - t * path[-1]).max()
    return Barrier(float(height), float(t[highest]), float(excess), 2 * error)


def _on(surface: Surface, bounds: Bounds) -> Loss:
    """`surface`, but NaN beyond the rectangle; a place beyond it by rounding is on its edge."""
    slack = [1e-9 * float(np.ptp(axis) or np.ptp(bounds.alpha)) for axis in (bounds.alpha, bounds.beta)]

    def loss(alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        a, b = np.clip(alpha, *bounds.alpha), np.clip(beta, *bounds.beta)
        return np.where((abs(alpha - a) <= slack[0]) & (abs(beta - b) <= slack[1]), surface(a, b), math.nan)

    return loss


class _Ray:
    """Changes of the loss since the origin on the way in a direction, as far as they can be followed."""

    def __init__(self, loss: Loss, bounds: Bounds, origin: Place, direction: Place, value: float) -> None:
        self._loss, self._origin, self._direction, self._value = loss, origin, direction, value
        self.looked = math.inf if math.isfinite(value) else math.nan
        for x, d, (low, high) in zip(origin, direction, (bounds.alpha, bounds.beta), strict=True):
            if math.isnan(d) or (low == high and abs(d) > 1e-9):
                self.looked = math.nan
            elif d and low < high:
                self.looked = min(self.looked, ((high if d > 0 else low) - x) / d)
        if self.looked >= 0:
            s = np.linspace(0, self.looked, _SAMPLES)
            unknown = np.isnan(self._change(s))
            self.looked = float(s[unknown.argmax() - 1] if unknown.any() else self.looked)

    def first(self, happens: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        """The least distance at which `happens`(distances, changes of the loss); infinite if there is none."""
        if not self.looked >= 0:
            return math.nan
        low, high, found = 0.0, self.looked, math.inf
        for _ in range(_ZOOMS):
            s = np.linspace(low, high, _SAMPLES)
            does = happens(s, self._change(s))
            if does.any():
                i = int(does.argmax())
                low, high = s[max(i - 1, 0)], s[i]
                found = float(high)
        return found

    def _change(self, s: np.ndarray) -> np.ndarray:
        (a, b), (u, v) = self._origin, self._direction
        return np.asarray(self._loss(a + s * u, b + s * v) - self._value)


def _along(ray: _Ray, model: np.ndarray, errors: np.ndarray, limits: tuple[float, float, float]) -> Along:
    """What `ray` meets; `model` and its `errors` are (slope, curvature) at its start."""
    rise, error, resolved = limits

    def risen(level: float) -> float:
        return math.nan if math.isnan(level) else ray.first(lambda s, change: change >= level)

    def departed(slope: float, curvature: float) -> float:
        def off(s: np.ndarray, change: np.ndarray) -> np.ndarray:
            wrong = abs(slope * s + curvature * s**2 / 2 - change)
            return np.asarray((abs(change) > resolved) & (wrong >= _DEPARTED * abs(change)))

        return math.nan if math.isnan(slope + curvature) else ray.first(off)

    width, departure = risen(rise), departed(*model)
    moved = [departed(*(model + errors * signs)) for signs in itertools.product((-1, 1), repeat=2)]
    if departure <= ray.first(lambda s, change: abs(change) > resolved) * (1 + 1e-6):
        moved.append(0.0)  # it was off as soon as that could be seen, or nothing could be seen
    width_error = farthest(width, [risen(rise - 2 * error), risen(rise + 2 * error)])
    return Along(ray.looked, width, width_error, departure, farthest(departure, moved))
