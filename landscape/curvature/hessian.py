"""The Hessian of an objective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import grad, jvp

from landscape.curvature.batched import BatchedOperator, Local, Pull, Slope
from landscape.curvature.checks import check_twice_differentiable, gradient
from landscape.errors import CurvatureError
from landscape.objective import Objective


class Hessian(BatchedOperator):
    """∇²L(Θ), with exact products.

    * `product="reverse"`: reverse over reverse. The graph of a batch's gradient is built once and v is pulled
      through it: ∇⟨∇L, v⟩ = ∇²L·v (Pearlmutter 1994). Per vector: 2 gradients, and 1 more per graph built. Of an
      objective that recomputes its blocks: 14/3 gradients where the graph is built, 10/3 where it is kept, and a
      graph that holds no more than the inputs of the blocks.
    * `product="forward"`: forward over reverse, the derivative of the gradient along v. About 3.8 gradients per
      vector, and no less memory: a check on the other.

    Forward over forward and reverse over forward are not offered: they are silently wrong through layer norms in
    torch 2.13.
    """

    def __init__(
        self,
        objective: Objective,
        weights: Mapping[str, Tensor],
        only: str | Iterable[str] = "*",
        product: Literal["reverse", "forward"] = "reverse",
        keep: bool | None = None,
        workers: int | None = None,
    ) -> None:
        if product not in ("reverse", "forward"):
            raise CurvatureError(f"product {product}: expected reverse or forward; differences are DifferenceHessian")
        self.product = product
        if product == "forward":
            keep, workers = False, 1  # every product is a forward pass of its own
            if getattr(objective, "recomputes", False):
                raise CurvatureError("a forward product of an objective that recomputes: take reverse products")
        super().__init__(objective, weights, only, keep, workers)

    def _differentiate(self, batch: Any) -> Local:
        return self._reverse(batch) if self.product == "reverse" else self._forward(batch)

    def _reverse(self, batch: Any) -> Local:
        total, count = self.objective(self._weights, batch)
        slope = Slope(total.item(), count, gradient(total, self._leaves, create_graph=True))
        check_twice_differentiable(slope.gradient)
        return Local(_pull_through(slope.gradient, self._leaves), slope)

    def _forward(self, batch: Any) -> Local:
        def loss(chosen: Mapping[str, Tensor]) -> Tensor:
            return self.objective({**self._weights, **chosen}, batch)[0]

        point = {name: leaf.detach() for name, leaf in zip(self.space.names, self._leaves, strict=True)}

        def pull(vector: Sequence[Tensor]) -> Sequence[Tensor]:
            direction = dict(zip(self.space.names, vector, strict=True))
            return list(jvp(grad(loss), (point,), (direction,))[1].values())

        return Local(pull)


def _pull_through(gradient: Sequence[Tensor], leaves: Sequence[Tensor]) -> Pull:
    """V ↦ ∇⟨gradient, v⟩. Tensors the loss does not depend on, or depends on linearly, have no graph and give zeros."""
    live = [i for i, part in enumerate(gradient) if part.requires_grad]

    def pull(vector: Sequence[Tensor]) -> Sequence[Tensor]:
        if not live:
            return [torch.zeros_like(leaf) for leaf in leaves]
        return torch.autograd.grad(
            [gradient[i] for i in live],
            leaves,
            [vector[i] for i in live],
            retain_graph=True,
            materialize_grads=True,
        )

    return pull
