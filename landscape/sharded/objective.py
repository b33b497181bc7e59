"""The loss of a model in pieces: every rank calls it at the same time, with its own rows of Θ and its own windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from landscape.curvature import vectors
from landscape.machine.ranks import Ranks
from landscape.objective import Batch, TokenCrossEntropy, cross_entropy, every_row
from landscape.sharded.model import Pieces


class ShardedCrossEntropy(TokenCrossEntropy):
    """Next-token cross-entropy where `weights` are this rank's rows; batches must be a multiple of the ranks."""

    ranks: Ranks
    pieces: Pieces

    def __init__(self, model: nn.Module, batches: Sequence[Batch], ranks: Ranks) -> None:
        """`model` is one that `shard` has cut."""
        super().__init__(model, batches)
        object.__setattr__(self, "ranks", ranks)
        object.__setattr__(self, "pieces", Pieces.of(model, ranks))

    def by_window(self, weights: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Σ −log p of each window of the batch, float64 (windows,); other ranks take another batch meanwhile."""
        self.put(weights)
        return self._here(batch)

    def put(self, weights: Mapping[str, Tensor]) -> None:
        """Let the model compute with `weights`."""
        with torch.no_grad():
            for name, rows in self.pieces.rows.items():
                rows.copy_(weights[name])

    def add_gradient(self, into: Mapping[str, Tensor]) -> tuple[float, int, list[float]]:
        """Add this rank's rows of ∇ Σ losses of all ranks to `into`; with Σ losses, their number, and the length of the
        gradient of each round of batches.
        """  # noqa: D205
        losses, count, lengths = 0.0, 0, []
        parameters = {name: tensor for name, tensor in self.model.named_parameters() if name in into}
        for index in self.ranks.share(len(self.batches)):
            batch = self.batches[index]
            with torch.enable_grad():
                loss = self._here(batch).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            rows = {name: tensor.grad.to_local().mul_(self.ranks.size) for name, tensor in parameters.items()}  # type: ignore[union-attr]
            lengths.append(vectors.length(rows.values()))
            for name, each in rows.items():
                into[name].add_(each)
            self.model.zero_grad(set_to_none=True)
            losses, count = losses + loss.item(), count + batch.n_targets
        shares = self.ranks.collect((losses, count))
        return sum(share[0] for share in shares), sum(share[1] for share in shares), lengths

    def _here(self, batch: Batch) -> Tensor:
        """At the weights that were put; the logits at once, since all ranks gather weights equally often."""
        with every_row(self.model):
            logits = self.model(input_ids=batch.ids, use_cache=False).logits
        return cross_entropy(logits, batch.ids, batch.lengths)
