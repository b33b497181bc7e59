"""Losses along a way: of a slice that is a line, and of the profile from the first named point to the last."""

from __future__ import annotations

import math

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.describe import Description
from landscape.viewer.described.trust import evaluated_cells

_FINE = 601  # places at which a reconstruction is read off


def curve_losses(stored: StoredSlice) -> tuple[np.ndarray, np.ndarray]:
    """α and loss: those of the grid, or read off the reconstruction more finely."""
    if not is_smooth(stored) or stored.surface is None:
        return stored.alpha, np.where(stored.done[:, 0], stored.loss[:, 0], np.nan)
    alpha = np.union1d(np.linspace(stored.alpha[0], stored.alpha[-1], _FINE), stored.alpha)
    return alpha, stored.surface(alpha, np.full(len(alpha), stored.beta[0]))


def loss_limits(stored: StoredSlice, described: Description) -> tuple[float, float]:
    """The losses between which the axis runs: the colours' range and the named points, with room at both ends."""
    losses = [point.loss for point in described.points if point.inside and math.isfinite(point.loss)]
    if described.colours:
        losses += [described.colours.low, described.colours.high]
    known = np.concatenate([*stored.nodes.values()])[:, 2]
    if not described.colours and np.isfinite(known).any():
        losses += [float(known[np.isfinite(known)].min()), float(known[np.isfinite(known)].max())]
    low, high = (min(losses), max(losses)) if losses else (0.0, 1.0)
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room


def is_smooth(stored: StoredSlice) -> bool:
    """Whether the curve is known between the grid's places, too."""
    return stored.surface is not None and not evaluated_cells(stored).any()


def profile_losses(stored: StoredSlice) -> tuple[np.ndarray, np.ndarray]:
    """The way t and the loss; of a reconstruction, as far as the rectangle reaches."""
    t, loss = stored.profile
    if stored.surface is None:
        return t, loss
    first, last = stored.points[0], stored.points[-1]
    alpha, beta = first.alpha + t * (last.alpha - first.alpha), first.beta + t * (last.beta - first.beta)
    inside = (alpha >= stored.alpha[0]) & (alpha <= stored.alpha[-1])
    inside &= (beta >= stored.beta[0]) & (beta <= stored.beta[-1])
    return t[inside], loss[inside]
