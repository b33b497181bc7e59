"""A decoder run block by block: all windows through one block before the next one is needed.

Only that block has to be there, and it may be changed before the windows pass: this is how a model larger than memory
is evaluated, and how layers are quantized on what the layers before them give.

No architecture is named, and nothing is kept of how a model calls its blocks. For one block the model's own forward
pass runs, masks and positions and all, in which the blocks before answer with the hidden states the windows have there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from landscape.decoder.head import answering
from landscape.errors import ModelError


def decoder_blocks(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """The stack of decoder blocks and its name: the module list that holds the most parameters.

    Raises:
        ModelError: the model has no module list.
    """
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise ModelError(f"{type(model).__name__}: no stack of blocks found; expected a decoder of transformers")
    return max(lists, key=lambda item: sum(p.numel() for p in item[1].parameters()))


class Walk:
    """Batches of windows on their way through `model`; `ids[i]` is (windows, tokens).

    Between two blocks the hidden states of all of them are held: on the device `keep`, or where they come to be.
    Everything here raises ModelError where the model does not call its blocks one after the other, each on what the one
    before put out; with `strict` also where anything but these hidden states tells a block about other weights than its
    own, as embeddings by layer do.

    Attributes:
        hidden: the hidden states of each batch; None before the first block.

    Raises:
        ModelError: the model has no blocks.
    """

    def __init__(
        self,
        model: nn.Module,
        ids: Sequence[Tensor],
        keep: torch.device | str | None = None,
        strict: bool = False,
    ) -> None:
        self.model, self.blocks, self.ids, self.keep, self.strict = model, decoder_blocks(model)[1], ids, keep, strict
        self.hidden: list[Tensor | None] = [None] * len(ids)
        # of blocks that put out several things, the others: some go on to the next block too
        self._rest: list[tuple[Any, ...] | None] = [None] * len(ids)

    def step(self, index: int, on_batch: Callable[[], None] = lambda: None) -> None:
        """Take every batch through block `index`; through those before it, they were taken already."""
        for batch in range(len(self.ids)):
            self.advance(index, batch)
            on_batch()

    def advance(self, index: int, batch: int) -> None:
        """Take one batch through block `index`."""
        output = self.run(index, batch)
        if isinstance(output, tuple | list):
            output, self._rest[batch] = output[0], tuple(output[1:])
        self.hidden[batch] = output if self.keep is None else output.to(self.keep)

    def run(self, index: int, batch: int) -> Any:
        """What block `index` puts out for a batch that has come as far; nothing moves on."""
        own, differentiates = self.blocks[index].forward, torch.is_grad_enabled()

        def forward(*args: Any, **kwargs: Any) -> Any:
            came = args[0] if args else kwargs["hidden_states"]
            others = [value for value in tree_leaves((args, kwargs)) if value is not came]
            if self.strict and index and any(isinstance(v, Tensor) and v.requires_grad for v in others):
                raise self._unlike(f"block {index} is told more about other weights than hidden states")
            with torch.set_grad_enabled(differentiates):
                raise _Done(own(*args, **kwargs))

        with self._passing(batch, index, forward), torch.set_grad_enabled(differentiates or self.strict):
            try:
                self.model(input_ids=self.ids[batch], use_cache=False)
            except _Done as done:
                return done.output
        raise self._unlike(f"block {index} does not run")

    @contextmanager
    def finished(self, batch: int) -> Iterator[None]:
        """Within, the model run on `ids[batch]` goes on from what the last block put out; only its head computes."""
        with self._passing(batch, len(self.blocks)):
            yield

    @contextmanager
    def skipped(self) -> Iterator[None]:
        """Within, the model runs without its blocks."""
        with self._passing(0, len(self.blocks), arrived=False):
            yield

    @contextmanager
    def _passing(
        self, batch: int, index: int, forward: Callable[..., Any] | None = None, arrived: bool = True
    ) -> Iterator[None]:
        """Blocks before `index` hand on what the batch has come to, or what comes in. Block `index` runs `forward`."""
        hidden, rest = self.hidden[batch] if arrived else None, self._rest[batch]
        passed: list[Tensor] = []

        def call(own: int, *args: Any, **kwargs: Any) -> Any:
            came = args[0] if args else kwargs.get("hidden_states")
            if own != len(passed) or not isinstance(came, Tensor) or (passed and came is not passed[-1]):
                raise self._unlike(f"block {own} does not take what the block before it puts out")
            if own == index:
                assert forward is not None
                return forward(*args, **kwargs)
            passed.append(hidden.to(came.device) if hidden is not None and own == 0 else came)
            return passed[-1] if rest is None else (passed[-1], *rest)

        with ExitStack() as stack:
            hook = self.model.register_forward_pre_hook(lambda *_: passed.clear())
            stack.callback(hook.remove)
            for own, block in enumerate(self.blocks[: index + 1]):
                stack.enter_context(answering(block, partial(call, own)))
            yield

    def _unlike(self, what: str) -> ModelError:
        return ModelError(f"{type(self.model).__name__}: {what}; this model cannot be run block by block")


class _Done(Exception):
    """On the way out of a forward pass, behind the block that was wanted."""

    def __init__(self, output: Any) -> None:
        self.output = output
