"""A plane in weight space through an origin and two directions, with the coordinates of named points on it; or a line.

The basis is orthonormal, so coordinates are distances: α along the first direction d₁, β along the part of the second
direction d₂ that is orthogonal to it (Gram-Schmidt, every inner product accumulated in float64). A line has d₁ alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from landscape.errors import PlaneError
from landscape.weights import Weights, check_same_space, move_to

_PARALLEL = 1e-4  # sine of the angle under which two float32 directions no longer span a plane one can trust


@dataclass(frozen=True)
class Coordinates:
    """Where a point lies: orthonormal (α, β), the distance from the plane, the distance from the origin.

    `raw` are the coordinates (s, t) in the directions as given: point = origin + s·d₁ + t·d₂ (+ residual).
    """

    alpha: float
    beta: float
    residual: float
    distance: float
    raw: tuple[float, float]


@dataclass(frozen=True)
class Plane:
    """origin + α·u + β·v.

    Attributes:
        origin, u, v: weights; u and v orthonormal up to float32 rounding; a line has no v.
        points: coordinates of the named points.
        cosine: of the angle between the raw directions d₁ and d₂.
        lengths: ‖d₁‖ and ‖d₂‖, 0 where there is no d₂.
    """

    origin: Weights
    u: Weights
    v: Weights | None
    points: Mapping[str, Coordinates]
    cosine: float
    lengths: tuple[float, float]
    _dots: tuple[float, float, float] = field(repr=False, default=(1.0, 0.0, 1.0))  # ⟨u,u⟩, ⟨u,v⟩, ⟨v,v⟩

    def locate(self, point: Weights) -> Coordinates:
        """The least-squares coordinates of `point`, and how far it lies outside the plane."""
        step = point - self.origin
        distance = step.norm()
        uu, uv, vv = self._dots
        a, b = step.dot(self.u), step.dot(self.v) if self.v is not None else 0.0
        determinant = uu * vv - uv * uv
        alpha, beta = (a * vv - b * uv) / determinant, (b * uu - a * uv) / determinant
        residual = move_to(step, step, -alpha, self.u, -beta, self.v).norm()
        t = beta / (self.lengths[1] * math.sqrt(1 - self.cosine**2)) if self.v is not None else 0.0
        s = (alpha - t * self.lengths[1] * self.cosine) / self.lengths[0]
        return Coordinates(alpha, beta, residual, distance, (s, t))

    def fingerprint(self) -> str:
        """SHA-256 over origin and basis: two scans with equal fingerprints evaluate the same weights."""
        parts = [weights.fingerprint() for weights in (self.origin, self.u, self.v) if weights is not None]
        return hashlib.sha256("".join(parts).encode()).hexdigest()


def span(origin: Weights, first: Weights, second: Weights | None, points: Mapping[str, Weights]) -> Plane:
    """The plane through `origin` along the directions `first` and `second`, and `points` located on it.

    Without `second` it is the line along `first`. The directions are taken over: their memory becomes u and v.

    Raises:
        PlaneError: a direction is zero or not finite, or the two are parallel.
        ModelError: the weights are not of one architecture.
    """
    check_same_space(origin, first)
    lengths = (first.norm(), second.norm() if second is not None else 0.0)
    for length, which in zip(lengths, ("first", "second")[: 1 if second is None else 2], strict=False):
        if not math.isfinite(length):
            raise PlaneError(f"the {which} direction of the plane has length {length}: its weights are not finite")
        if length == 0:
            raise PlaneError(f"the {which} direction of the plane is zero: its point equals the origin; choose another")
    u = first.scale_(1 / lengths[0])
    if second is None:
        cosine, v, dots = 0.0, None, (u.dot(u), 0.0, 1.0)
    else:
        cosine, v = second.dot(u) / lengths[1], second
        for _ in range(2):  # once leaves a float32 remainder along u, twice is enough
            v = move_to(v, v, -v.dot(u), u, 0.0, None)
        if v.norm() < _PARALLEL * lengths[1]:
            raise PlaneError(f"the two directions are parallel (cosine {cosine:.6f}): they span a line, not a plane")
        v = v.scale_(1 / v.norm())
        dots = (u.dot(u), u.dot(v), v.dot(v))
    plane = Plane(origin, u, v, {}, cosine, lengths, dots)
    return replace(plane, points={name: plane.locate(point) for name, point in points.items()})
