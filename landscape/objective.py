"""The loss as a function of Θ: mean token cross-entropy in nats over a fixed set of windows.

An objective maps weights and one batch to a *sum* and a *count*. Sums and counts add up; means of means do not, so
with these the result is weighted by tokens however ragged the windows are and however they are batched.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from landscape.decoder.head import Part, Split, split
from landscape.decoder.recompute import recomputing
from landscape.tokens import Windows

_CHUNK = 1 << 26  # logits turned into float32 log-probabilities at a time (256 MB); without gradients, made at a time


class Objective(Protocol):
    """A loss that depends on weights, given in batches; not only of language models."""

    @property
    def batches(self) -> Sequence[Any]:
        """What the loss is summed over."""
        ...

    def __call__(self, weights: Mapping[str, Tensor], batch: Any) -> tuple[Tensor, int]:
        """(sum of the losses over the batch: a scalar tensor that can be differentiated, number of losses)."""
        ...


class SplitObjective(Objective, Protocol):
    """An objective that is a loss of a model's outputs, as the Gauss-Newton matrix needs it: loss(outputs(Θ))."""

    def outputs(self, weights: Mapping[str, Tensor], batch: Any) -> Tensor:
        """What the model says of the batch."""
        ...

    def loss(self, outputs: Tensor, batch: Any) -> tuple[Tensor, int]:
        """(sum of the losses given the outputs, number of losses)."""
        ...


def mean(objective: Objective, weights: Mapping[str, Tensor]) -> float:
    """L(Θ) = Σ sums / Σ counts, without gradients, accumulated in float64. May be NaN or infinite: that is a result."""
    total, count = 0.0, 0
    with torch.no_grad():
        sums = [objective(weights, batch) for batch in objective.batches]
    for batch_sum, batch_count in sums:
        total, count = total + batch_sum.item(), count + batch_count
    return total / count if count else math.nan


@dataclass(frozen=True)
class TokenCrossEntropy:
    """Next-token cross-entropy of a causal language model; `model` gives the computation, Θ comes as an argument.

    The model is never written to: the weights are swapped in for the length of a call (`torch.func.functional_call`),
    tied tensors following their first name. `dtype` other than float32 runs the forward pass under autocast over the
    float32 masters; log-probabilities are float32 (float64 for a float64 model) and their sum float64. `recomputes`
    drops the activations inside every decoder block and computes them again in a backward pass. Where gradients are off
    and a batch has more than 2²⁶ logits, they are made and reduced part by part (`landscape.decoder.head`).
    """

    model: nn.Module
    batches: Sequence[Batch]
    dtype: torch.dtype = torch.float32
    recomputes: bool = False

    def __call__(self, weights: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, int]:
        """(Σ −log p(token | tokens before it in its window) in nats, number of predicted tokens)."""
        return self.by_window(weights, batch).sum(), batch.n_targets

    def by_window(self, weights: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """That sum for each window of the batch, float64 (windows,)."""
        in_two = None if torch.is_grad_enabled() else self.in_two
        if in_two is None or batch.ids.numel() * in_two.vocabulary <= _CHUNK:
            return cross_entropy(self.outputs(weights, batch), batch.ids, batch.lengths)
        given = {f"model.{name}": tensor for name, tensor in weights.items()}
        return functional_call(_InParts(in_two, self.dtype), given, (batch.ids, batch.lengths))

    def windows(self, weights: Mapping[str, Tensor], indices: Iterable[int]) -> Iterator[Tensor]:
        """`by_window` of the batches with these indices."""
        given = dict(weights)
        return (self.by_window(given, self.batches[index]) for index in indices)

    def outputs(self, weights: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Logits (windows, tokens, vocabulary)."""
        inputs = {"input_ids": batch.ids, "use_cache": False}
        lists = [m for m in self.model.modules() if isinstance(m, nn.ModuleList)] if self.recomputes else []
        blocks = max(lists, key=len, default=())
        with autocast(batch.ids.device.type, self.dtype), every_row(self.model), recomputing(blocks):
            return functional_call(self.model, dict(weights), (), inputs).logits

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """The sum and count of `__call__` from logits."""
        return cross_entropy(outputs, batch.ids, batch.lengths).sum(), batch.n_targets

    @cached_property
    def in_two(self) -> Split | None:
        """The model as body and head, found once; None where it cannot be taken apart."""
        return split(self.model)


class _InParts(nn.Module):
    """(ids, lengths) ↦ Σ of the losses of each window; a module, so that weights are swapped in once for all parts."""

    def __init__(self, in_two: Split, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.in_two, self.dtype = in_two.model, in_two, dtype

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        with autocast(ids.device.type, self.dtype):
            states = self.in_two.states(ids)
        sums = torch.zeros(len(ids), dtype=torch.float64, device=ids.device)
        for part in _parts(lengths.tolist(), ids.shape[1], self.in_two.vocabulary):
            rows = torch.arange(len(ids), device=ids.device)[part[0]]
            sums = sums.index_add(0, rows, self._part(states, ids, lengths, part))  # not in place: vmap comes by here
        return sums

    def _part(self, states: Any, ids: Tensor, lengths: Tensor, part: Part) -> Tensor:
        with autocast(ids.device.type, self.dtype):
            logits = self.in_two.logits(states, ids, part)
        windows, tokens = part
        return cross_entropy(logits, ids[part], lengths[windows] - tokens.start)


def _parts(lengths: Sequence[int], tokens: int, vocabulary: int) -> Iterator[Part]:
    """A batch as windows that overlap by a token: the last of one is predicted in it, and seen first by the next."""
    windows = _CHUNK // (tokens * vocabulary)
    if windows:
        yield from ((slice(i, i + windows), slice(0, tokens)) for i in range(0, len(lengths), windows))
        return
    step = max(1, _CHUNK // vocabulary - 1)
    for i, length in enumerate(lengths):
        for start in range(0, length - 1, step):
            yield slice(i, i + 1), slice(start, start + step + 1)


@dataclass(frozen=True)
class Batch:
    """Some windows: `ids` (windows, tokens), padded on the right, on the device; `lengths` (windows,) on the CPU."""

    ids: Tensor
    lengths: Tensor

    @property
    def n_targets(self) -> int:
        """Predicted tokens: every token of a window but its first."""
        return int((self.lengths - 1).sum())


def batches(windows: Windows, size: int, device: torch.device | str = "cpu") -> list[Batch]:
    """`windows` in batches of `size`, each cut to its longest window, on `device`."""
    cut = []
    for ids, lengths in zip(windows.ids.split(size), windows.lengths.split(size), strict=True):
        cut.append(Batch(ids[:, : int(lengths.max())].to(device), lengths))
    return cut


def cross_entropy(logits: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
    """Σ over positions t ≥ 1 within `lengths` of −log softmax(logits[t − 1])[ids[t]], for each window; float64.

    `logits` is (windows, tokens, vocabulary). Right padding needs no attention mask in a causal model: no real token
    sees it, and its own losses are left out here. So is that of a window's last token, which predicts nothing; to cut
    its logits off would copy all others.
    """
    exact = logits.dtype == torch.float64
    width = ids.shape[1]  # of a part of a window, less than its length
    is_last = (torch.arange(width)[None, :] >= lengths[:, None].clamp(max=width) - 1).to(ids.device)
    targets = ids.roll(-1, dims=1).masked_fill(is_last, -100)
    rows = max(1, _CHUNK // (logits.shape[1] * logits.shape[2]))
    sums = []
    for some, wanted in zip(logits.split(rows), targets.split(rows), strict=True):
        scores = some.flatten(0, 1)
        losses = nn.functional.cross_entropy(
            scores if exact else scores.float(), wanted.flatten(), ignore_index=-100, reduction="none"
        )
        sums.append(losses.view(wanted.shape).sum(dim=1, dtype=torch.float64))
    return torch.cat(sums)


@contextlib.contextmanager
def every_row(model: nn.Module) -> Iterator[None]:
    """Differentiate with respect to the row of a padding token too, on which the loss depends as on any other.

    An embedding's `padding_idx` changes gradients, not values. In reverse mode it holds that row constant, in forward
    mode it does not, and differences of losses know nothing of it: the products would contradict each other.
    """
    padded = [(m, m.padding_idx) for m in model.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None]
    try:
        for module, _ in padded:
            module.padding_idx = None
        yield
    finally:
        for module, index in padded:
            module.padding_idx = index


def autocast(device_type: str, dtype: torch.dtype) -> contextlib.AbstractContextManager[Any]:
    """Within, matrix products are computed in `dtype` if that is a short one, over the float32 masters."""
    if dtype in (torch.float32, torch.float64):
        return contextlib.nullcontext()
    return torch.autocast(device_type, dtype=dtype)
