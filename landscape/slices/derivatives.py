"""First and second derivatives of a surface at a place, each with an honest error."""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import chebyshev

from landscape.slices.polynomial import Polynomial, to_unit
from landscape.slices.surface import Patch, Seam, Surface

ORDERS = np.array([(1, 0), (0, 1), (2, 0), (1, 1), (0, 2)])  # of derivatives along α and β, five together
_TAIL = 0.8  # degrees above this share of the highest are taken for what the next ones would be
_WINDOW, _LEAST = 5, 4  # lines along an axis that a quadratic is fitted to, and how many of them tell its error
_BENT = 4.0  # third and fourth powers bend such a fit by up to so many times what its residuals can

Place = tuple[float, float]
Derivatives = tuple[np.ndarray, np.ndarray, float]  # in the order of `ORDERS`, their errors, error between the cells
NOTHING = np.full(len(ORDERS), math.nan), np.full(len(ORDERS), math.nan), 0.0


def _leaves(surface: Surface, place: Place) -> list[tuple[float, Polynomial | Patch]]:
    """The polynomials and patches that make up the surface at `place`, each with its share."""
    if not isinstance(surface, Seam):
        return [(1.0, surface)]
    share = float(surface.share(*np.array(place)))
    parts = [(1 - share, surface.low), (share, surface.high)]
    return [(weight * inner, leaf) for weight, part in parts if weight for inner, leaf in _leaves(part, place)]


def derivatives(surface: Surface, place: Place, error: float) -> Derivatives:
    """The mean of the leaves at `place`; where those differ, that is part of the error."""
    shares, leaves = zip(*_leaves(surface, place), strict=True)
    found = [(_of_polynomial if isinstance(leaf, Polynomial) else _of_patch)(leaf, place, error) for leaf in leaves]
    values, errors, bends = (np.array(part) for part in zip(*found, strict=True))
    mean = shares @ values
    return mean, shares @ (errors + abs(values - mean)), float(bends.max())


def _of_polynomial(surface: Polynomial, place: Place, error: float) -> Derivatives:
    """Exact derivatives D Σ c_pq T_p T_q, and the larger of two things that see different errors.

    What is left out is like the highest fifth of the degrees, Σ |c_pq D T_p T_q|. And values off by `error`, at as many
    Chebyshev points as there are coefficients, come out as error · (mean over p, q of n_p n_q (D T_p T_q)²)^½, where
    n_0 = 1 and n_p = 2 otherwise.
    """
    c = surface.coefficients
    x, y = to_unit(surface.bounds, np.array(place))
    p, q = np.indices(c.shape)
    level = p / max(p.max(), 1) + q / max(q.max(), 1)
    norms = np.where(p > 0, 2, 1) * np.where(q > 0, 2, 1)
    per = [2 / np.ptp(axis) if np.ptp(axis) else 0.0 for axis in (surface.bounds.alpha, surface.bounds.beta)]
    values, errors = [], []
    for i, j in ORDERS.tolist():
        terms = np.outer(_chebyshev(len(c), i, x), _chebyshev(len(c.T), j, y)) * per[0] ** i * per[1] ** j
        tail = abs(c * terms)[level > _TAIL].sum()
        values.append((c * terms).sum())
        errors.append(max(tail, error * math.sqrt((norms * terms**2)[level <= 1 + 1e-9].mean())))
    return np.array(values), np.array(errors), 0.0


def _chebyshev(count: int, order: int, x: float) -> np.ndarray:
    """The derivative of the first `count` Chebyshev polynomials at `x`."""
    return np.asarray(chebyshev.chebval(x, chebyshev.chebder(np.eye(count), order)))


def _of_patch(surface: Patch, place: Place, error: float) -> Derivatives:
    """The quadratic nearest to the 5×5 cells around `place`, and what its residuals can make of its derivatives."""
    rows, columns = _nearest(surface.alpha, place[0]), _nearest(surface.beta, place[1])
    alpha, beta, cells = surface.alpha[rows], surface.beta[columns], surface.loss[rows, columns]
    finite, is_line = np.isfinite(cells), len(beta) == 1
    sizes = np.ptp(alpha), np.ptp(beta) or math.inf
    a, b = np.meshgrid(alpha - place[0], beta - place[1], indexing="ij")
    x, y = a[finite] / sizes[0], b[finite] / sizes[1]
    terms = np.stack([np.ones_like(x), x, y, x * x / 2, x * y, y * y / 2], axis=1)
    least = min(finite.any(1).sum(), _LEAST if is_line else finite.any(0).sum())
    if least < _LEAST or np.linalg.matrix_rank(terms) < (3 if is_line else 6):
        return NOTHING
    inverse = np.linalg.pinv(terms)
    fitted = inverse @ cells[finite]
    worst = _BENT * abs(cells[finite] - terms @ fitted).max() + error
    scale = np.array([sizes[0] ** -i * sizes[1] ** -j for i, j in ORDERS.tolist()])
    bend = (abs(fitted[[3, 5]]) / 8 / np.maximum(np.subtract(cells.shape, 1), 1) ** 2).sum()
    return fitted[1:] * scale, worst * abs(inverse).sum(axis=1)[1:] * scale, float(bend)


def _nearest(lines: np.ndarray, coordinate: float) -> slice:
    first = int(np.clip(abs(lines - coordinate).argmin() - _WINDOW // 2, 0, max(len(lines) - _WINDOW, 0)))
    return slice(first, first + _WINDOW)


def eigen(derivatives: np.ndarray) -> tuple[float, float, float]:
    """The eigenvalues of the Hessian among `derivatives`, the larger one first, and the angle of its direction."""
    aa, ab, bb = derivatives[2:].tolist()
    middle, radius = (aa + bb) / 2, math.hypot((aa - bb) / 2, ab)
    return middle + radius, middle - radius, math.atan2(2 * ab, aa - bb) / 2
