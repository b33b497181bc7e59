"""How far another choice of windows would move a slope or a curvature: standard errors over those at hand.

A slope g·u or a curvature uᵀHu along a fixed direction u is a mean over windows. Each window's share is a difference of
its own losses at Θ ± hu, so that two forward passes tell the spread of all shares. For an eigenvalue λ = uᵀHu this is
exact to first order: turning u with the windows changes λ by the square of the turn.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch

from landscape.curvature import ParameterSpace, vectors
from landscape.losses import WindowLosses, standard_error, window_losses
from landscape.machine.ranks import ALONE, Ranks
from landscape.objective import TokenCrossEntropy
from landscape.weights import Lazy, Weights

_CHANGE = 1e-3  # of the loss, that a step is to change it by: far above rounding, and far below any bend
_FARTHEST = 1e-2  # ‖hu‖/‖Θ‖ at most


class Spread:
    """Standard errors along directions in weight space.

    Args:
        objective: whose windows are the sample.
        theta: Θ.
        space: of the directions.
        scale: what a direction is multiplied by first, element by element: that of a scaled operator.
        ranks: those that evaluate together.
    """

    def __init__(
        self,
        objective: TokenCrossEntropy,
        theta: Weights,
        space: ParameterSpace,
        scale: torch.Tensor | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self._objective, self._theta, self._space, self._scale = objective, theta, space, scale
        self._ranks = ranks
        self._norm = vectors.length(theta.values())

    def slope(self, direction: torch.Tensor, value: float) -> float:
        """The standard error of g·u, which is `value`; NaN for a single window."""
        u, here = self._scaled(direction), self._here
        h = self._step(u, _CHANGE * here.mean, abs(value))
        low, high = self._at(u, -h), self._at(u, h)
        return standard_error((high.sums - low.sums) / (2 * h), here.counts)

    def bend(self, direction: torch.Tensor, value: float) -> float:
        """The standard error of uᵀHu, which is `value`; NaN for a single window."""
        u, here = self._scaled(direction), self._here
        h = math.sqrt(self._step(u, 2 * _CHANGE * here.mean, abs(value), 2))
        low, high = self._at(u, -h), self._at(u, h)
        return standard_error((high.sums - 2 * here.sums + low.sums) / h**2, here.counts)

    @cached_property
    def _here(self) -> WindowLosses:
        return window_losses(self._objective, self._theta, ranks=self._ranks)

    def _scaled(self, direction: torch.Tensor) -> torch.Tensor:
        return direction if self._scale is None else direction * self._scale

    def _step(self, u: torch.Tensor, change: float, rate: float, order: int = 1) -> float:
        """h^order = change/rate, but no farther than where Θ is hardly itself any more."""
        farthest = (_FARTHEST * self._norm / vectors.norm(u)) ** order
        return min(change / rate, farthest) if rate else farthest

    def _at(self, u: torch.Tensor, h: float) -> WindowLosses:
        parts, theta = self._space.unflatten(u), self._theta
        moved = Lazy(theta, lambda name: theta[name] + h * parts[name] if name in parts else theta[name])
        return window_losses(self._objective, moved, ranks=self._ranks)
