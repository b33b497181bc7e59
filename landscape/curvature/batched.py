"""What the Hessian and the Gauss-Newton matrix share: a sum over batches of matrices known by their products.

    A = (1/N) Σ_b A_b,    A_b the matrix of the *sum* of the losses in batch b, N the number of losses in all batches

Sums and one division, so the matrix does not depend on how the data were cut. The expensive part of a product, the
graph of a batch's gradient, does not depend on the vector. It is built once per batch and every vector is pulled
through it; where memory allows, it is kept from product to product.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from landscape.curvature.checks import check_deterministic, explained, gradient
from landscape.curvature.memory import sized
from landscape.curvature.operators import LinearOperator
from landscape.curvature.parameters import ParameterSpace
from landscape.errors import CurvatureError
from landscape.machine.memory import available
from landscape.objective import Objective

Pull = Callable[[Sequence[Tensor]], Sequence[Tensor]]
_KEEP = 0.5  # of the free memory, for graphs that are kept


@dataclass(frozen=True)
class Slope:
    """One batch at Θ: its summed loss, their number, and the gradient of the sum."""

    loss: float
    count: int
    gradient: Sequence[Tensor]


@dataclass(frozen=True)
class Local:
    """One batch at Θ: v ↦ A_b v in the parameters' shapes, and the slope where the graph gave it for nothing."""

    pull: Pull
    slope: Slope | None = None


class BatchedOperator(LinearOperator):
    """(1/N) Σ_b A_b of an objective at Θ, over the parameters that `only` selects.

    Args:
        objective: weights and a batch to (sum, count).
        weights: Θ. The operator copies the part it covers, so that training on does not disturb it.
        only: patterns over names, `!` excludes; see `ParameterSpace.select`.
        keep: keep the batches' graphs between products. A first product costs about 3 gradients and later ones 2;
            without, each costs 3. None keeps them if they fit into half of the free memory.
        workers: vectors or batches that are multiplied at a time on a CPU, each on its share of the threads. None
            means all threads: small matrix products use two cores badly together and well apart.

    Raises:
        CurvatureError: nothing selected, a loss that is random or not finite, an operation without second derivative.
    """

    def __init__(
        self,
        objective: Objective,
        weights: Mapping[str, Tensor],
        only: str | Iterable[str] = "*",
        keep: bool | None = None,
        workers: int | None = None,
    ) -> None:
        self.space = ParameterSpace.select(weights, only)
        theta = self.space.flatten(weights)
        super().__init__(self.space.n, theta.dtype, theta.device)
        self.objective = objective
        self.theta = theta
        self._leaves = [piece.detach().requires_grad_() for piece in self.space.split(theta)]
        others = {name: tensor for name, tensor in weights.items() if name not in self.space.names}
        self._weights = {name: tensor.detach().clone() for name, tensor in others.items()}
        self._weights |= dict(zip(self.space.names, self._leaves, strict=True))
        self._keep = keep
        self._kept: list[Local] | None = None
        self._first: Local | None = None  # of batch 0, built to see its size
        self._graph_bytes: int | None = None
        self._totals: tuple[float, int, Tensor] | None = None  # summed loss, count, summed gradient
        if workers is None:
            workers = torch.get_num_threads() if self.device.type == "cpu" else 1
        self.workers = 1 if getattr(objective, "recomputes", False) else workers
        check_deterministic(objective, self._weights)

    @abstractmethod
    def _differentiate(self, batch: Any) -> Local:
        """Build the graph of one batch."""

    def loss(self) -> float:
        """L(Θ), the mean over all batches."""
        total, count, _ = self._measured()
        return total / count

    def gradient(self) -> Tensor:
        """∇L(Θ) over the selected parameters (n,)."""
        _, count, gradient = self._measured()
        return gradient / count

    def count(self) -> int:
        """N, the number of losses the mean is over."""
        return self._measured()[1]

    @property
    def keeps(self) -> bool:
        """Whether graphs are kept between products; decides on first use."""
        if self._keep is None:
            graph = self.graph_bytes()
            free = available(self.device) + (graph if self._first is not None else 0)
            self._keep = graph * len(self.objective.batches) < _KEEP * free
            self._first = self._first if self._keep else None
        return self._keep

    def graph_bytes(self) -> int:
        """Bytes that the graph of the first batch takes; builds it to see."""
        if self._graph_bytes is None:
            with explained("batch 0"):
                local, self._graph_bytes = sized(lambda: self._differentiate(self.objective.batches[0]))
            self._first = None if self._keep is False else local
        return self._graph_bytes

    def release(self) -> None:
        """Forget the kept graphs."""
        self._kept = self._first = None

    def parts(self) -> Sequence[LinearOperator]:
        """A_b/N for each batch b."""
        return [_Part(self, i) for i in range(len(self.objective.batches))]

    def _multiply(self, rows: Tensor) -> Tensor:
        out = torch.zeros_like(rows)
        if self.keeps:
            self._pull_all([local.pull for local in self._locals()], rows, out)
            return out.div_(self.count())
        count = 0
        for index in range(len(self.objective.batches)):
            local = self._local(index)
            count += local.slope.count if local.slope is not None else 0
            self._pull_all([local.pull], rows, out)
            del local  # before the next graph is built
        return out.div_(count or self.count())

    def _measured(self) -> tuple[float, int, Tensor]:
        if self._totals is None and self.keeps:
            slopes = _Slopes(self.space, self.theta)
            for local in self._locals():
                slopes.add(local.slope)
            self._totals = slopes.totals()
        if self._totals is None:
            slopes = _Slopes(self.space, self.theta)
            for index, batch in enumerate(self.objective.batches):
                with explained(f"batch {index}"):
                    total, count = self.objective(self._weights, batch)
                    slope = Slope(total.item(), count, gradient(total, self._leaves))
                slopes.add(self._checked(index, slope))
            self._totals = slopes.totals()
        if self._totals is None:
            raise CurvatureError("the batches hold no target: there is no loss to differentiate")
        return self._totals

    def _locals(self) -> list[Local]:
        if self._kept is None:
            self._kept = [self._local(index) for index in range(len(self.objective.batches))]
        return self._kept

    def _local(self, index: int) -> Local:
        if self._kept is not None:
            return self._kept[index]
        local, self._first = (self._first, None) if index == 0 else (None, self._first)
        if local is None:
            with explained(f"batch {index}"):
                local = self._differentiate(self.objective.batches[index])
        if local.slope is not None:
            self._checked(index, local.slope)
        return local

    def _pull_all(self, pulls: Sequence[Pull], rows: Tensor, out: Tensor) -> None:
        """Add Σ pulls(row) to each row of `out`."""
        targets = [self.space.split(row) for row in out]
        vectors = [self.space.split(row) for row in rows]

        def whole(k: int) -> None:
            for pull in pulls:
                _add(targets[k], pull(vectors[k]))

        with explained("a product"):
            if len(rows) >= self.workers or len(pulls) == 1:
                for _ in self._spread(whole, range(len(rows))):
                    pass
                return
            for k in range(len(rows)):  # few vectors: batches side by side, added in their order
                for product in self._spread(lambda pull, k=k: pull(vectors[k]), pulls):  # type: ignore[misc]
                    _add(targets[k], product)

    def _spread(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """function(item) for each, in order; several at a time when there are workers for it."""
        workers = min(self.workers, len(items))
        if workers <= 1:
            yield from map(function, items)
            return
        threads = torch.get_num_threads()

        def on_share(item: Any) -> Any:
            torch.set_num_threads(max(1, threads // workers))
            return function(item)

        try:
            with ThreadPoolExecutor(workers) as pool:
                yield from pool.map(on_share, items)
        finally:
            torch.set_num_threads(threads)

    @staticmethod
    def _checked(index: int, slope: Slope) -> Slope:
        if not math.isfinite(slope.loss):
            raise CurvatureError(f"the loss of batch {index} is {slope.loss}: there is no curvature at such a point")
        if not all(bool(torch.isfinite(part).all()) for part in slope.gradient):
            raise CurvatureError(f"the gradient of batch {index} is not finite: there is no curvature at such a point")
        return slope


class _Part(LinearOperator):
    """A_b/N for one batch."""

    def __init__(self, whole: BatchedOperator, index: int) -> None:
        super().__init__(whole.n, whole.dtype, whole.device)
        self._whole, self._index = whole, index

    def _multiply(self, rows: Tensor) -> Tensor:
        out = torch.zeros_like(rows)
        if self._whole.keeps:
            self._whole._locals()
        self._whole._pull_all([self._whole._local(self._index).pull], rows, out)
        return out.div_(self._whole.count())


class _Slopes:
    """The sum of the batches' slopes, if each is known."""

    def __init__(self, space: ParameterSpace, like: Tensor) -> None:
        self._loss, self._count, self._whole = 0.0, 0, True
        self._gradient = torch.zeros_like(like)
        self._pieces = space.split(self._gradient)

    def add(self, slope: Slope | None) -> None:
        if slope is None:
            self._whole = False
            return
        self._loss, self._count = self._loss + slope.loss, self._count + slope.count
        _add(self._pieces, [part.detach() for part in slope.gradient])

    def totals(self) -> tuple[float, int, Tensor] | None:
        return (self._loss, self._count, self._gradient) if self._whole and self._count else None


def _add(targets: Sequence[Tensor], products: Sequence[Tensor]) -> None:
    for target, product in zip(targets, products, strict=True):
        target.add_(product)
