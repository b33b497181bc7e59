"""Losses along random signs, of which memory holds a block's share at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from landscape.curvature import ParameterSpace, vectors
from landscape.curvature.loss_differences import Probe
from landscape.curvature.probes import rademacher
from landscape.streaming.objective import StreamedCrossEntropy
from landscape.weights import Lazy, Weights


class StreamedProbes:
    """What `trace_by_losses` asks of a loss around Θ: all its probes in one pass over the blocks.

    The signs are those of `rademacher`, which finds the share of a tensor without those before it.
    """

    def __init__(self, objective: StreamedCrossEntropy, theta: Weights, only: str | Iterable[str]) -> None:
        space = ParameterSpace.select(theta, only)
        self._objective, self._theta, self._where = objective, theta, space.where()
        self.n, self.norm = space.n, vectors.length(theta[name] for name in space.names)

    def probed(self, probes: Sequence[Probe]) -> Iterator[tuple[float, int]]:
        """(Σ losses, count) of each probe, in order."""
        pairs = []
        for (name, step), some in groupby(probes, lambda probe: (probe.name, probe.step)):
            weights = self._at(name, step)
            pairs += [(weights, self._objective.batches[probe.batch]) for probe in some]
        for (_, batch), sums in zip(pairs, self._objective.each(pairs), strict=True):
            yield sums.sum().item(), batch.n_targets

    def _at(self, name: tuple[int, ...], step: float) -> Lazy:
        """Θ + step · z."""

        def make(tensor: str) -> Tensor:
            here = self._theta[tensor]
            if not step or tensor not in self._where:
                return here
            signs = rademacher(here.numel(), here, *name, start=self._where[tensor].start)
            return torch.add(here, signs.view_as(here), alpha=step)

        return Lazy(self._theta, make)
