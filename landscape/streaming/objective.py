"""The loss at many weights at once, of which memory holds one block at a time.

    for every block: for every Θ: its tensors of this block made → its windows through it → gone

A Θ here is a mapping that makes a tensor when it is asked for it. Each block's part of it is made once in a pass; what
is held between blocks are the hidden states of every window of every Θ, as many at a time as memory has room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor, nn

from landscape.decoder.blocks import Walk, decoder_blocks
from landscape.machine.memory import available
from landscape.models.mapped import holding
from landscape.objective import Batch, TokenCrossEntropy, autocast

_FILLED = 0.25  # of the free memory, by hidden states

Pair = tuple[Mapping[str, Tensor], Batch]


@dataclass(frozen=True)
class StreamedCrossEntropy(TokenCrossEntropy):
    """`TokenCrossEntropy` of a model that `landscape.models.mapped` loaded, to the bit, without gradients.

    Raises:
        ModelError: the model does not call its blocks one after the other, or they depend on more than hidden states.
    """

    def by_window(self, weights: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The losses of one batch; to ask for many at a time costs less."""
        return next(self.each([(weights, batch)]))

    def windows(self, weights: Mapping[str, Tensor], indices: Iterable[int]) -> Iterator[Tensor]:
        """`by_window` of the batches with these indices."""
        return self.each([(weights, self.batches[index]) for index in indices])

    def means(self, points: Iterable[Mapping[str, Tensor]]) -> Iterator[float]:
        """`landscape.objective.mean` at every point."""
        points, count = list(points), sum(batch.n_targets for batch in self.batches)
        found = self.each([(point, batch) for point in points for batch in self.batches])
        for _ in points:
            total = 0.0
            for _ in self.batches:
                total += next(found).sum().item()
            yield total / count

    def each(self, pairs: Sequence[Pair]) -> Iterator[Tensor]:
        """`by_window` of weights and a batch, for each pair in order; pairs with the same weights side by side."""
        room = int(_FILLED * available("cpu"))
        some: list[Pair] = []
        taken = 0
        for pair in pairs:
            size = self._hidden_bytes(pair[1])
            if some and taken + size > room:
                yield from self._passed(some)
                some, taken = [], 0
            some.append(pair)
            taken += size
        if some:
            yield from self._passed(some)

    def held(self, index: int | None, weights: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        """Within, block `index` has `weights`, and with the first one embeddings; None: what is outside the blocks."""
        tensors = [*(self.inside(index) if index is not None else ()), *(() if index else self.outside)]
        return holding(tensors, self.device, lambda t: weights[self.names[t]] if t in self.names else t.data)

    def inside(self, index: int) -> list[Tensor]:
        """Parameters and buffers of block `index`."""
        return [*self.blocks[index].parameters(), *self.blocks[index].buffers()]

    @cached_property
    def blocks(self) -> nn.ModuleList:
        """The decoder blocks."""
        return decoder_blocks(self.model)[1]

    @cached_property
    def outside(self) -> list[Tensor]:
        """Parameters outside the blocks."""
        inner = set(self.blocks.parameters())
        return [parameter for parameter in self.model.parameters() if parameter not in inner]

    @cached_property
    def names(self) -> dict[Tensor, str]:
        """Every parameter's name, tied ones under their first."""
        return {parameter: name for name, parameter in self.model.named_parameters()}

    @cached_property
    def device(self) -> str:
        """Where it computes."""
        return str(self.batches[0].ids.device)

    @torch.no_grad()
    def _passed(self, pairs: Sequence[Pair]) -> list[Tensor]:
        walk = Walk(self.model, [batch.ids for _, batch in pairs], keep="cpu", strict=True)
        points = [list(some) for _, some in groupby(range(len(pairs)), lambda i: id(pairs[i][0]))]
        for index in range(len(walk.blocks)):
            for point in points:
                weights = pairs[point[0]][0]
                with self.held(index, weights), autocast(self.device, self.dtype):
                    for i in point:
                        walk.advance(index, i)
        with walk.skipped():
            _ = self.in_two  # decided on six tokens of its own
        sums = []
        for point in points:
            with self.held(None, pairs[point[0]][0]):
                for i in point:
                    with walk.finished(i):
                        sums.append(super().by_window({}, pairs[i][1]))
                    walk.hidden[i] = None
        return sums

    def _hidden_bytes(self, batch: Batch) -> int:
        """About what the hidden states of a batch take: they are mostly as wide as embeddings."""
        return 4 * batch.ids.numel() * int(self.model.get_input_embeddings().weight.shape[1])  # type: ignore[operator, union-attr, arg-type]
