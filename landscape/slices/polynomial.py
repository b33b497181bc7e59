"""Polynomials in (α, β) on a rectangle: sums of products of Chebyshev polynomials over a lower set of degrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from landscape.slices.axes import Bounds

Degrees = Sequence[tuple[int, int]]


def lower_set(a: float, b: float) -> list[tuple[int, int]]:
    """All (p, q) with p/a + q/b ≤ 1: total degree, with an axis of its own speed each.

    >>> lower_set(2, 1)
    [(0, 0), (0, 1), (1, 0), (2, 0)]
    """
    return [
        (p, q)
        for p in range(int(a) + 1)
        for q in range(int(b) + 1)
        if (p / a if p else 0.0) + (q / b if q else 0.0) <= 1 + 1e-9
    ]


def basis(places: np.ndarray, degrees: Degrees) -> np.ndarray:
    """T_p(x)·T_q(y) at `places` (n, 2) in the unit square [−1, 1]², a column for each (p, q): (n, len(degrees))."""
    p, q = np.asarray(degrees).T
    along_x = chebyshev.chebvander(places[:, 0], int(p.max()))
    along_y = chebyshev.chebvander(places[:, 1], int(q.max()))
    return np.asarray(along_x[:, p] * along_y[:, q])


def to_unit(bounds: Bounds, places: np.ndarray) -> np.ndarray:
    """(α, β) → the unit square; an axis without extent → 0."""
    low, high = np.array([bounds.alpha, bounds.beta], dtype=np.float64).T
    half = (high - low) / 2
    return np.asarray(np.where(half > 0, (places - (low + high) / 2) / np.where(half > 0, half, 1), 0.0))


def from_unit(bounds: Bounds, places: np.ndarray) -> np.ndarray:
    """The unit square → (α, β); corners are met exactly."""
    low, high = np.array([bounds.alpha, bounds.beta], dtype=np.float64).T
    return np.asarray((low * (1 - places) + high * (1 + places)) / 2)


@dataclass(frozen=True)
class Polynomial:
    """Σ c_pq T_p(x) T_q(y), with (x, y) the place of (α, β) in `bounds` stretched to [−1, 1]².

    Attributes:
        bounds: the rectangle it was fitted on; beyond it a polynomial says nothing.
        coefficients: c, in nats, (degree along α + 1, degree along β + 1).
    """

    bounds: Bounds
    coefficients: np.ndarray

    @classmethod
    def fit(cls, bounds: Bounds, places: np.ndarray, values: np.ndarray, degrees: Degrees) -> Polynomial:
        """The polynomial over `degrees` nearest to `values` at `places` (unit square): through them all if it can."""
        matrix = basis(places, degrees)
        square = len(places) == len(degrees)
        solution = np.linalg.solve(matrix, values) if square else np.linalg.lstsq(matrix, values, rcond=None)[0]
        p, q = np.asarray(degrees).T
        coefficients = np.zeros((int(p.max()) + 1, int(q.max()) + 1))
        coefficients[p, q] = solution
        return cls(bounds, coefficients)

    def __call__(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Values at places given as two arrays of one shape."""
        return self.derivative(alpha, beta, 0, 0)

    def derivative(self, alpha: np.ndarray, beta: np.ndarray, along_alpha: int, along_beta: int) -> np.ndarray:
        """∂^(i+j) / ∂α^i ∂β^j at places given as two arrays of one shape, exact for the polynomial."""
        c = self.coefficients
        if along_alpha:
            c = chebyshev.chebder(c, along_alpha, axis=0)
        if along_beta:
            c = chebyshev.chebder(c, along_beta, axis=1)
        unit = to_unit(self.bounds, np.stack([alpha, beta], axis=-1))
        scale = _per_unit(self.bounds.alpha) ** along_alpha * _per_unit(self.bounds.beta) ** along_beta
        return np.asarray(chebyshev.chebval2d(unit[..., 0], unit[..., 1], c) * scale)


def _per_unit(interval: tuple[float, float]) -> float:
    """How much of the unit interval one unit of the axis is; 0 where the axis has no extent."""
    return 2 / (interval[1] - interval[0]) if interval[1] > interval[0] else 0.0
