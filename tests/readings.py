"""Surfaces to read: reconstructed ones, evaluated cells, and what is known of them."""

from __future__ import annotations

import numpy as np

from landscape.slices import Bounds, read_surface
from landscape.slices.reconstruct import reconstruct
from landscape.slices.surface import Patch

SQUARE = Bounds((-1.0, 1.0), (-1.0, 1.0))
WIDE = Bounds((-2.0, 3.0), (-4.0, 2.0))
ORIGIN = {"theta": (0.0, 0.0)}
WAYS = [f"{name}_{side}" for name in ("alpha", "beta", "delta") for side in ("plus", "minus")]
ORDERS = ((2, 0), (1, 1), (0, 2))


def reconstructed(loss, bounds, tolerance=(1e-3, 1e-3), lines=41, known=None, scale=1.0):
    """The surface and its error, from evaluations of `loss`(α, β)."""
    alpha = np.linspace(*bounds.alpha, lines)
    beta = np.linspace(*bounds.beta, lines if bounds.beta[0] < bounds.beta[1] else 1)
    found = reconstruct(
        lambda kind, at: [float(loss(*place)) for place in at], alpha, beta, tolerance, scale, known or {}, 0
    )
    return found.surface, found.certificate


def reading_of(loss, bounds, points, rise=0.5, **options):
    surface, certificate = reconstructed(loss, bounds, **options)
    return read_surface(surface, bounds, certificate.error, points, rise)


def cells(loss, bounds, lines):
    """A patch of lines × lines evaluated cells."""
    alpha, beta = np.linspace(*bounds.alpha, lines), np.linspace(*bounds.beta, lines)
    return Patch(alpha, beta, loss(*np.meshgrid(alpha, beta, indexing="ij")))


def derivatives(truth, place, step=4e-3):
    """Gradient and Hessian by differences of fourth order: right to about nine digits."""
    first = np.array([1, -8, 0, 8, -1]) / (12 * step)
    second = np.array([-1, 16, -30, 16, -1]) / (12 * step**2)
    around = step * np.arange(-2, 3)
    values = truth.on_grid(place[0] + around, place[1] + around)
    mixed = first @ values @ first
    gradient = np.array([first @ values[:, 2], values[2] @ first])
    return gradient, np.array([[second @ values[:, 2], mixed], [mixed, values[2] @ second]])


def quadratic(seed):
    """A positive definite Hessian, a gradient, and the loss they make."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(2, 2))
    h, g = a @ a.T + 0.3 * np.eye(2), 0.3 * rng.normal(size=2)

    def loss(alpha, beta):
        place = np.stack(np.broadcast_arrays(alpha, beta), axis=-1)
        return 3 + place @ g + np.einsum("...i,ij,...j", place, h, place) / 2

    return h, g, loss
