"""The gradient of the loss, block by block: forward keeping what comes into each, backward through one at a time.

    x₀ → x₁ → … → x_B → L;    ∂L/∂x_B by the head;    (∂L/∂W_b, ∂L/∂x_b) from x_b and ∂L/∂x_{b+1}, b from B − 1 to 0

A block runs again from its input before it is differentiated. Embeddings come last, and what is tied gets both shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from landscape.curvature import vectors
from landscape.decoder.blocks import Walk
from landscape.errors import CurvatureError, ModelError
from landscape.objective import TokenCrossEntropy, every_row
from landscape.storage.scratch import Scratch
from landscape.streaming.objective import StreamedCrossEntropy


@dataclass(frozen=True)
class Slope:
    """The loss summed over all batches, and the length of each batch's gradient of its sum, (batches,).

    What a tied tensor gets from either place counts there as two tensors.
    """

    loss: float
    lengths: Sequence[float]


def add_gradient(
    objective: StreamedCrossEntropy, weights: Mapping[str, Tensor], into: Mapping[str, Tensor], scratch: Scratch
) -> Slope:
    """Add ∇ Σ losses at `weights` to the tensors of `into`. What blocks take and give is held in `scratch`.

    Raises:
        ModelError: a block passes on more than hidden states.
        CurvatureError: a loss or a gradient that is not finite.
    """
    walk = Walk(objective.model, [batch.ids for batch in objective.batches], strict=True)
    with every_row(objective.model):
        entering = _forward(walk, objective, weights, scratch)
        total = _Total(objective, into, [0.0] * len(walk.ids))
        loss, adjoints = _through_head(walk, objective, weights, total, scratch)
        for index in reversed(range(len(walk.blocks))):
            _through_block(walk, index, entering.pop(), adjoints, weights, total, scratch)
    for batch, square in enumerate(total.squares):
        if not math.isfinite(square):
            raise CurvatureError(f"the loss or gradient of batch {batch} is not finite: no differences can be taken")
    return Slope(loss, [math.sqrt(square) for square in total.squares])


@dataclass(frozen=True)
class _Total:
    """Where gradients are added up by name, and the squared length of each batch's."""

    objective: StreamedCrossEntropy
    into: Mapping[str, Tensor]
    squares: list[float]

    def wanted(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Those of `tensors` that a gradient is wanted of."""
        return [tensor for tensor in tensors if self.objective.names.get(tensor) in self.into]

    def add(self, batch: int, tensors: Sequence[Tensor], slopes: Sequence[Tensor | None]) -> None:
        """Add what a batch gives."""
        for tensor, slope in zip(tensors, slopes, strict=True):
            if slope is not None:
                self.into[self.objective.names[tensor]].add_(slope.cpu())
                self.squares[batch] += vectors.norm(slope.reshape(-1)) ** 2


def _forward(
    walk: Walk, objective: StreamedCrossEntropy, weights: Mapping[str, Tensor], scratch: Scratch
) -> list[list[Tensor | None]]:
    """What comes into each block, batch by batch; `walk` then holds what the last one puts out."""
    entering: list[list[Tensor | None]] = []
    for index in range(len(walk.blocks)):
        entering.append(list(walk.hidden))
        with torch.no_grad(), objective.held(index, weights):
            for batch in range(len(walk.ids)):
                walk.advance(index, batch)
                walk.hidden[batch] = scratch.keep(_there(walk.hidden[batch]))
    return entering


def _through_head(
    walk: Walk, objective: StreamedCrossEntropy, weights: Mapping[str, Tensor], total: _Total, scratch: Scratch
) -> tuple[float, list[Tensor]]:
    """The summed loss, and its gradient by what the last block puts out, batch by batch."""
    loss, adjoints = 0.0, []
    with objective.held(None, weights):
        wanted = total.wanted(objective.outside)
        for batch, windows in enumerate(objective.batches):
            state = walk.hidden[batch] = _there(walk.hidden[batch]).requires_grad_()
            with torch.enable_grad(), walk.finished(batch):
                own = TokenCrossEntropy.by_window(objective, {}, windows).sum()
            loss += own.item()
            adjoint, *slopes = torch.autograd.grad(own, [state, *wanted], allow_unused=True)
            total.add(batch, wanted, slopes)
            adjoints.append(scratch.keep(adjoint))
            walk.hidden[batch] = None
    return loss, adjoints


def _through_block(
    walk: Walk,
    index: int,
    entering: list[Tensor | None],
    adjoints: list[Tensor],
    weights: Mapping[str, Tensor],
    total: _Total,
    scratch: Scratch,
) -> None:
    """Turn gradients by what block `index` puts out into those by what comes in; add those by its weights.

    Into the first block come embeddings, which the model makes again; it ends there.
    """
    objective = total.objective
    with objective.held(index, weights):
        wanted = total.wanted([*objective.inside(index), *(() if index else objective.outside)])
        for batch, adjoint in enumerate(adjoints):
            states = [_there(entering[batch]).requires_grad_()] if index else []
            if not states and not wanted:
                continue
            walk.hidden[batch] = states[0] if index else None
            with torch.enable_grad():
                output = _only_states(walk.run(index, batch))
            slopes = torch.autograd.grad(output, [*states, *wanted], adjoint.to(output.device), allow_unused=True)
            total.add(batch, wanted, slopes[len(states) :])
            if index:
                adjoints[batch] = scratch.keep(slopes[0])
            walk.hidden[batch] = None


def _only_states(output: Any) -> Tensor:
    """The hidden states that a block puts out, if nothing else it puts out could be differentiated."""
    state, *others = output if isinstance(output, tuple | list) else (output,)
    if any(isinstance(value, Tensor) and value.is_floating_point() for value in tree_leaves(others)):
        raise ModelError(
            "a block passes on more than hidden states; this model cannot be differentiated block by block"
        )
    assert isinstance(state, Tensor)
    return state


def _there(state: Tensor | None) -> Tensor:
    assert state is not None
    return state.detach()
