"""Products from gradients alone, for models that give nothing else: sharded, offloaded, compiled.

    H v ≈ [4 d(ε/2) − d(ε)]/3,    d(ε) = [∇L(Θ + εv) − ∇L(Θ − εv)]/2ε

Two step sizes, so that the error can be seen, and Richardson's combination of the two, which is right up to ε⁴.
The step must fit the vector. Along a random vector the gradient hardly changes and a short step drowns in rounding;
along a sharp direction a long step leaves the quadratic region. So ε is chosen by what it does: the gradient should
change by a set fraction of its typical length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

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
        first = weights[self.space.names[0]]
        super().__init__(self.space.n, first.dtype, first.device)
        self.objective = objective
        self.disagreement = 0.0
        self.theta, self._moved = self.new(self.n), self.new(self.n)
        for name, piece in self.space.unflatten(self.theta).items():
            piece.copy_(weights[name].detach())
        self._weights = {
            name: self.new(*tensor.shape).to(tensor).copy_(tensor.detach())
            for name, tensor in weights.items()
            if name not in self.space.names
        } | self.space.unflatten(self._moved)
        check_deterministic(objective, dict(weights))
        self._stiffness = 0.0  # ‖Hv‖/‖v‖ of the vector before
        self._count, self._scale, self._loss = 0, 0.0, 0.0
        self._gradient = self._at(self.theta, 0.0)

    def loss(self) -> float:
        """L(Θ)."""
        return self._loss

    def count(self) -> int:
        """N, the number of losses the mean is over."""
        return self._count

    def gradient(self) -> Tensor:
        """∇L(Θ) (n,)."""
        return self._gradient

    def _multiply(self, rows: Tensor) -> Tensor:
        if len(rows) == 1:
            return self._product(rows[0])[None]
        return torch.stack([self._product(row) for row in rows])

    def _product(self, v: Tensor) -> Tensor:
        length = vectors.norm(v)
        if length == 0:
            return torch.zeros_like(v)
        fraction = _FRACTION[self.dtype]
        longest = 0.1 * (vectors.norm(self.theta) or 1.0)
        step = min(longest, fraction * self._scale / self._stiffness) if self._stiffness else 1e-2 * longest
        for _ in range(4):
            coarse = self._slope(v, step / length)
            self._stiffness = vectors.norm(coarse) / length
            wanted = min(longest, fraction * self._scale / self._stiffness) if self._stiffness else longest
            if not self._scale or 1 / _WITHIN <= wanted / step <= _WITHIN:
                break
            step = wanted
        fine = self._slope(v, step / length / 2)
        change = coarse.sub_(fine)  # in its place: vectors may be as long as memory is large
        if distance := vectors.norm(change):
            self.disagreement = max(self.disagreement, distance / max(vectors.norm(fine), 1e-300))
        return fine.sub_(change, alpha=1 / 3)

    def _slope(self, v: Tensor, step: float) -> Tensor:
        return self._at(v, step).sub_(self._at(v, -step)).div_(2 * step)

    def _at(self, v: Tensor, step: float) -> Tensor:
        """∇L(Θ + step · v); the first call learns how long a batch's gradient is: rounding goes with it."""
        torch.add(self.theta, v, alpha=step, out=self._moved)
        total = self.new(self.n)
        losses, count, lengths = self._add_gradient(total)
        if not count:
            raise CurvatureError("the batches hold no target: there is no loss to differentiate")
        if not self._count:
            self._count, self._scale, self._loss = count, math.fsum(lengths) / count, losses / count
        return total.div_(count)

    def _add_gradient(self, total: Tensor) -> tuple[float, int, Sequence[float]]:
        """Add ∇ Σ losses at `_moved`; Σ losses, their number, and the length of each batch's gradient."""
        leaves = [piece.requires_grad_() for piece in self.space.split(self._moved.detach())]
        weights = self._weights | dict(zip(self.space.names, leaves, strict=True))
        targets = self.space.split(total)
        losses, count, lengths = 0.0, 0, []
        for index, batch in enumerate(self.objective.batches):
            with explained(f"batch {index}"):
                loss, n = self.objective(weights, batch)
                slopes = gradient(loss, leaves)
            lengths.append(vectors.length(slopes))
            if not math.isfinite(loss.item()) or not math.isfinite(lengths[-1]):
                raise CurvatureError(
                    f"the loss or gradient of batch {index} is not finite: no differences can be taken"
                )
            for target, slope in zip(targets, slopes, strict=True):
                target.add_(slope)
            losses, count = losses + loss.item(), count + n
        return losses, count, lengths
