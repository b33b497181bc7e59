"""Activation checkpointing that works with weights given from outside, and twice differentiable.

A checkpointed block forgets its activations after the forward pass and computes them again when a backward pass asks.
By then the weights given to `functional_call` are gone from the module, so the block keeps those it ran with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


@contextmanager
def recomputing(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Forward passes within drop the activations inside each of `blocks`."""
    blocks = list(blocks)
    for block in blocks:
        block.forward = _checkpointed(block, block.forward)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward  # the class's own is behind it


def _checkpointed(block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    running = False

    def replacement(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        if running:
            return forward(*args, **kwargs)
        weights = dict(block.named_parameters()) | dict(block.named_buffers())

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal running
            running = True
            try:
                return functional_call(block, weights, args, kwargs)
            finally:
                running = False

        return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return replacement
