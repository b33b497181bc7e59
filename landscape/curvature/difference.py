"""Products from gradients alone, for models that give nothing else: sharded, offloaded, compiled.

    H v ≈ [4 d(ε/2) − d(ε)]/3,    d(ε) = [∇L(Θ + εv) − ∇L(Θ − εv)]/2ε

Two step sizes, so that the error can be seen, and Richardson's combination of the two, which is right up to ε⁴.
The step must fit the vector. Along a random vector the gradient hardly changes and a short step drowns in rounding;
along a sharp direction a long step leaves the quadratic region. So ε is chosen by what it does: the gradient should
change by a set fraction of its typical length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from landscape.curvature import vectors
from landscape.curvature.checks import check_deterministic, explained, gradient
from landscape.curvature.operators import LinearOperator
from landscape.curvature.parameters import ParameterSpace
from landscape.errors import CurvatureError
from landscape.objective import Objective

_FRACTION = {torch.float32: 0.1, torch.float64: 1e-4}  # change of the gradient over its length
_WITHIN = 5.0  # the factor by which the change may miss that before the step is chosen again


class DifferenceHessian(LinearOperator):
    """∇²L(Θ) by central differences of gradients at two step sizes: 4 gradients per vector, 6 where the step is new.

    Attributes:
        disagreement: the largest relative difference seen between the two step sizes. Where it is not small, nor
            is the error.

    Raises:
        CurvatureError: nothing selected, or a loss or gradient that is not finite.
    """

    def __init__(self, objective: Objective, weights: Mapping[str, Tensor], only: str | Iterable[str] = "*") -> None:
        self.space = ParameterSpace.select(weights, only)
        self.theta = self.space.flatten(weights)
        super().__init__(self.space.n, self.theta.dtype, self.theta.device)
        self.objective = objective
        self.disagreement = 0.0
        others = {name: tensor for name, tensor in weights.items() if name not in self.space.names}
        self._weights = {name: tensor.detach().clone() for name, tensor in others.items()}
        check_deterministic(objective, dict(weights))
        self._stiffness = 0.0  # ‖Hv‖/‖v‖ of the vector before
        self._count, self._scale, self._loss = 0, 0.0, 0.0
        self._gradient = self._at(self.theta)

    def loss(self) -> float:
        """L(Θ)."""
        return self._loss

    def gradient(self) -> Tensor:
        """∇L(Θ) (n,)."""
        return self._gradient

    def _multiply(self, rows: Tensor) -> Tensor:
        return torch.stack([self._product(row) for row in rows])

    def _product(self, v: Tensor) -> Tensor:
        length = vectors.norm(v)
        if length == 0:
            return torch.zeros_like(v)
        u = v / length
        fraction = _FRACTION[self.dtype]
        longest = 0.1 * (vectors.norm(self.theta) or 1.0)
        step = min(longest, fraction * self._scale / self._stiffness) if self._stiffness else 1e-2 * longest
        for _ in range(4):
            coarse = self._slope(u, step)
            self._stiffness = vectors.norm(coarse)
            wanted = min(longest, fraction * self._scale / self._stiffness) if self._stiffness else longest
            if not self._scale or 1 / _WITHIN <= wanted / step <= _WITHIN:
                break
            step = wanted
        fine = self._slope(u, step / 2)
        change = vectors.norm(fine - coarse)
        if change:
            self.disagreement = max(self.disagreement, change / max(vectors.norm(fine), 1e-300))
        return (4 * fine - coarse) * (length / 3)

    def _slope(self, u: Tensor, step: float) -> Tensor:
        return (self._at(self.theta + step * u) - self._at(self.theta - step * u)) / (2 * step)

    def _at(self, theta: Tensor) -> Tensor:
        """∇L at `theta`; the first call learns how long a batch's gradient is: rounding goes with it."""
        leaves = [piece.requires_grad_() for piece in self.space.split(theta.detach())]
        weights = self._weights | dict(zip(self.space.names, leaves, strict=True))
        total, count, scale, losses = torch.zeros_like(self.theta), 0, 0.0, 0.0
        for index, batch in enumerate(self.objective.batches):
            part, loss, n = self._of_batch(weights, leaves, index, batch)
            total, count, losses = total + part, count + n, losses + loss
            scale += vectors.norm(part) if not self._count else 0.0
        if not count:
            raise CurvatureError("the batches hold no target: there is no loss to differentiate")
        if not self._count:
            self._count, self._scale, self._loss = count, scale / count, losses / count
        return total / count

    def _of_batch(
        self, weights: Mapping[str, Tensor], leaves: list[Tensor], index: int, batch: Any
    ) -> tuple[Tensor, float, int]:
        with explained(f"batch {index}"):
            loss, count = self.objective(weights, batch)
            slope = torch.cat([piece.reshape(-1) for piece in gradient(loss, leaves)])
        if not bool(torch.isfinite(loss)) or not bool(torch.isfinite(slope).all()):
            raise CurvatureError(f"the loss or gradient of batch {index} is not finite: no differences can be taken")
        return slope, loss.item(), count
