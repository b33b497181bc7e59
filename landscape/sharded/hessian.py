"""Products and probes where every vector is in pieces. All of it within `vectors.in_pieces`, which adds up lengths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from landscape.curvature import DifferenceHessian, ParameterSpace, vectors
from landscape.curvature.loss_differences import Probe
from landscape.curvature.probes import rademacher
from landscape.errors import CurvatureError
from landscape.sharded.objective import ShardedCrossEntropy


class ShardedHessian(DifferenceHessian):
    """`DifferenceHessian` whose vectors hold this rank's elements.

    Raises:
        CurvatureError: as `DifferenceHessian`.
    """

    objective: ShardedCrossEntropy

    def __init__(
        self, objective: ShardedCrossEntropy, weights: Mapping[str, Tensor], only: str | Iterable[str]
    ) -> None:
        self.ranks = objective.ranks
        super().__init__(objective, weights, only)

    def whole(self) -> int:
        """n, of the elements of all ranks."""
        return sum(self.objective.pieces.sizes[name] for name in self.space.names)

    def _add_gradient(self, total: Tensor) -> tuple[float, int, Sequence[float]]:
        self.objective.put(self._weights)
        losses, count, lengths = self.objective.add_gradient(self.space.unflatten(total))
        if not (math.isfinite(losses) and all(map(math.isfinite, lengths))):
            raise CurvatureError("the loss or gradient of a batch is not finite: no differences can be taken")
        return losses, count, lengths


class ShardedProbes:
    """What `trace_by_losses` asks of a loss around Θ. Ranks move together, so that a probe is of a round of batches.

    Attributes:
        batches: the rounds, by number.
        n, norm: of the elements of all ranks.
    """

    def __init__(self, objective: ShardedCrossEntropy, theta: Mapping[str, Tensor], only: str | Iterable[str]) -> None:
        self._objective, self._theta = objective, theta
        names, pieces = ParameterSpace.select(theta, only).names, objective.pieces
        self.batches = range(len(objective.batches) // objective.ranks.size)
        self._starts: dict[str, int] = {}
        self.n = 0
        for name in names:
            self._starts[name] = self.n + pieces.starts[name]
            self.n += pieces.sizes[name]
        self.norm = vectors.length(theta[name] for name in names)

    def probed(self, probes: Sequence[Probe]) -> Iterator[tuple[float, int]]:
        """(Σ losses, count) of each probe over all ranks, in order."""
        objective, ranks = self._objective, self._objective.ranks
        for probe in probes:
            batch = objective.batches[probe.batch * ranks.size + ranks.rank]
            with torch.no_grad():
                loss = objective.by_window(self._at(probe), batch).sum().item()
            shares = ranks.collect((loss, batch.n_targets))
            yield sum(share[0] for share in shares), sum(share[1] for share in shares)

    def _at(self, probe: Probe) -> Mapping[str, Tensor]:
        """This rank's rows of Θ + step · z; the signs of an element do not depend on where it lies."""
        moved = dict(self._theta)
        for name, start in self._starts.items() if probe.step else ():
            here = self._theta[name]
            signs = rademacher(here.numel(), here, *probe.name, start=start)
            moved[name] = torch.add(here, signs.view_as(here), alpha=probe.step)
        return moved
