"""An operator whose batches are spread over ranks: A = Σ_r (N_r/N) A_r, one all-reduce a product.

Every rank has all of the vector and the graphs of its own batches alone. All run the same lines, so that a Lanczos
iteration, a trace or a density is written as if there were one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor

from landscape.curvature.batched import BatchedOperator
from landscape.curvature.difference import DifferenceHessian
from landscape.curvature.operators import LinearOperator
from landscape.curvature.parameters import ParameterSpace
from landscape.errors import CurvatureError
from landscape.machine.ranks import Ranks


def over(ranks: Ranks, objective: Any, make: Callable[[Any], BatchedOperator | DifferenceHessian]) -> Operator:
    """What `make` makes of `objective`, a dataclass, with the batches spread over `ranks`.

    Raises:
        CurvatureError: fewer batches than ranks.
    """
    if ranks.size == 1:
        return make(objective)
    batches = objective.batches
    if len(batches) < ranks.size:
        raise CurvatureError(
            f"{len(batches)} batches, {ranks.size} ranks: expected one each; lower --batch-size, or give more --tokens"
        )
    return Shared(make(replace(objective, batches=[batches[index] for index in ranks.share(len(batches))])), ranks)


class Shared(LinearOperator):
    """The mean over the losses of all ranks, where `own` is that over the losses of this one."""

    def __init__(self, own: BatchedOperator | DifferenceHessian, ranks: Ranks) -> None:
        super().__init__(own.n, own.dtype, own.device)
        self.own, self.ranks = own, ranks
        slopes = ranks.collect((own.loss(), own.count()))
        self._count = sum(count for _, count in slopes)
        self._loss = sum(loss * count for loss, count in slopes) / self._count
        self._share = own.count() / self._count
        self._gradient = ranks.sum(own.gradient() * self._share)

    @property
    def space(self) -> ParameterSpace:
        """The parameters it covers."""
        return self.own.space

    def loss(self) -> float:
        """L(Θ), the mean over all batches of all ranks."""
        return self._loss

    def gradient(self) -> Tensor:
        """∇L(Θ) over the selected parameters (n,)."""
        return self._gradient

    def count(self) -> int:
        """N, the number of losses the mean is over."""
        return self._count

    def release(self) -> None:
        """Forget the kept graphs."""
        self.own.release()

    def parts(self) -> Sequence[LinearOperator]:
        """A_b/N for each batch b of this rank."""
        return [_Share(part, self._share) for part in self.own.parts()]

    def _multiply(self, rows: Tensor) -> Tensor:
        return self.ranks.sum((self.own @ rows.T).T.mul_(self._share))


Operator: TypeAlias = BatchedOperator | DifferenceHessian | Shared


class _Share(LinearOperator):
    def __init__(self, part: LinearOperator, share: float) -> None:
        super().__init__(part.n, part.dtype, part.device)
        self.part, self.share = part, share

    def _multiply(self, rows: Tensor) -> Tensor:
        return (self.part @ rows.T).T * self.share
