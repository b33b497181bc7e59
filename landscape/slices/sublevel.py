"""The part of a slice below a level."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from landscape.slices.axes import Bounds

_CELLS = 400  # along an axis, for areas

Place = tuple[float, float]
Loss = Callable[[np.ndarray, np.ndarray], np.ndarray]


def share_below(loss: Loss, bounds: Bounds, origin: Place, level: float, error: float) -> tuple[float, float, bool]:
    """The share of the rectangle that the part of {L ≤ level} around the origin has, its error, and whether it is cut.

    The error is what values off by `error` can make of it, what cells twice as wide do, and one cell.
    """
    if math.isnan(level) or bounds.beta[0] == bounds.beta[1]:
        return math.nan, math.nan, False
    low, high = np.array([bounds.alpha, bounds.beta]).T
    losses, starts = [], []
    for count in (_CELLS, _CELLS // 2):
        middles = low + (high - low) * (np.arange(count)[:, None] + 0.5) / count
        losses.append(loss(*np.meshgrid(*middles.T, indexing="ij")))
        starts.append(tuple(np.clip((origin - low) / (high - low) * count, 0, count - 1).astype(int)))
    share, is_cut = _component(losses[0] - level, starts[0])
    moved = [_component(losses[0] - level + sign * error, starts[0])[0] for sign in (-1, 1)]
    wider = _component(losses[1] - level, starts[1])[0]
    return share, farthest(share, moved) + abs(share - wider) + _CELLS**-2, is_cut


def _component(height: np.ndarray, start: tuple[int, ...]) -> tuple[float, bool]:
    """The share of the cells that the part of {height ≤ 0} around `start` has, and whether it meets an edge or a NaN.

    Of a cell on its rim as much counts as a loss that is linear on it, and alike along both axes, leaves below 0.
    """
    inside = _connected(height <= 0, start)
    wide = np.pad(inside, 1)
    rim = (wide[2:, 1:-1] | wide[:-2, 1:-1] | wide[1:-1, 2:] | wide[1:-1, :-2]) & ~(height <= 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # where the loss is constant or infinite
        share = np.clip(0.5 - height / np.abs(np.gradient(height)).sum(axis=0), 0, 1)
    share = np.where(np.isfinite(share), share, inside)
    is_cut = np.isnan(height[rim]).any() or np.isnan(height[start]) or inside[[0, -1]].any() or inside[:, [0, -1]].any()
    return float(share[inside | rim].sum() / share.size), bool(is_cut)


def _connected(allowed: np.ndarray, start: tuple[int, ...]) -> np.ndarray:
    """The cells that can be reached from `start` over allowed ones along the axes."""
    reached = np.zeros_like(allowed)
    reached[start] = allowed[start]
    walls = [np.pad(~side, ((0, 0), (1, 0)), constant_values=True) for side in (allowed, allowed.T)]
    along, across = (np.cumsum(wall).reshape(wall.shape)[:, 1:] for wall in walls)  # every wall begins a new run
    count = -1
    while reached.sum() > count:
        count = reached.sum()
        for run in (along, across.T):
            reached = allowed & np.bincount(run[reached], minlength=run.max() + 1).astype(bool)[run]
    return reached


def farthest(value: float, others: list[float]) -> float:
    """The largest distance from `value`; that between two infinities is 0."""
    return max(0.0 if other == value else abs(other - value) for other in others)
