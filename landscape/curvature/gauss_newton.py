"""The generalized Gauss-Newton matrix of an objective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from landscape.curvature.batched import BatchedOperator, Local, Slope
from landscape.curvature.checks import check_twice_differentiable, gradient
from landscape.objective import SplitObjective


class GaussNewton(BatchedOperator):
    """G = (1/N) Σ_b J_bᵀ (∇²_z ℓ_b) J_b at Θ: the Hessian without the curvature of the model's own outputs z = f(Θ).

    Positive semi-definite for a loss convex in z; for cross-entropy it equals the Fisher matrix (Martens 2020, arXiv
    1412.1193). The Jacobian's product is the derivative of Jᵀw with respect to w, so everything is pulled through
    graphs that are built once per batch: about 1.4 gradients per vector.
    """

    objective: SplitObjective

    def __init__(
        self,
        objective: SplitObjective,
        weights: Mapping[str, Tensor],
        only: str | Iterable[str] = "*",
        keep: bool | None = None,
        workers: int | None = None,
    ) -> None:
        super().__init__(objective, weights, only, keep, workers)

    def _differentiate(self, batch: Any) -> Local:
        leaves = self._leaves
        outputs = self.objective.outputs(self._weights, batch)
        if not outputs.requires_grad:
            total, count = self.objective.loss(outputs, batch)
            return Local(
                lambda v: [torch.zeros_like(x) for x in v], Slope(total.item(), count, gradient(total, leaves))
            )
        at = outputs.detach().requires_grad_()
        total, count = self.objective.loss(at, batch)
        (slope,) = torch.autograd.grad(total, at, create_graph=True)  # ∇_z ℓ
        w = torch.zeros_like(outputs, requires_grad=True)
        transposed = torch.autograd.grad(outputs, leaves, w, create_graph=True, materialize_grads=True)  # Jᵀw
        check_twice_differentiable([*transposed, slope])
        live = [i for i, part in enumerate(transposed) if part.requires_grad]

        def pull(vector: Sequence[Tensor]) -> Sequence[Tensor]:
            (tangent,) = torch.autograd.grad(  # J v
                [transposed[i] for i in live], w, [vector[i] for i in live], retain_graph=True, materialize_grads=True
            )
            (bent,) = torch.autograd.grad(slope, at, tangent, retain_graph=True, materialize_grads=True)  # ∇²_z ℓ J v
            return torch.autograd.grad(outputs, leaves, bent, retain_graph=True, materialize_grads=True)

        pulled = torch.autograd.grad(outputs, leaves, slope.detach(), retain_graph=True, materialize_grads=True)
        return Local(pull, Slope(total.item(), count, pulled))
