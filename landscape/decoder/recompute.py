"""Activation checkpointing that can be differentiated twice, with weights given from outside.

A block y = f(x, θ) keeps its inputs and nothing else. Its derivative (ȳ, x, θ) ↦ ∇⟨ȳ, f(x, θ)⟩ is such a block again: a
second backward pass recomputes it too, so that a Hessian product never holds the inside of more than one block. Torch's
own checkpoint holds what a first backward pass recomputed until the second is over, and saves nothing there.

By the time of a backward pass the weights given to `functional_call` are gone from the module, and so is the choice of
an autocast dtype: a block remembers those it ran with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_unflatten

Run = Callable[..., tuple[Tensor, ...]]
_OUTPUT = object()  # in place of a tensor that must not be held


@contextmanager
def recomputing(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Forward passes within drop the activations inside each of `blocks`. For reverse mode, to second derivatives."""
    blocks = list(blocks)
    for block in blocks:
        block.forward = _checkpointed(block, block.forward)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward  # the class's own is behind it


class _Block(Function):
    """f, of tensors that all require a gradient."""

    @staticmethod
    def forward(ctx: Any, run: Run, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.run = run
        ctx.save_for_backward(*inputs)
        return run(*inputs)

    @staticmethod
    def backward(ctx: Any, *adjoint: Tensor) -> tuple[Tensor | None, ...]:
        slopes = _Derivative.apply(ctx.run, len(adjoint), *adjoint, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return None, *slopes


class _Derivative(Function):
    """(ȳ, inputs) ↦ ∇⟨ȳ, f(inputs)⟩."""

    @staticmethod
    def forward(ctx: Any, run: Run, outputs: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.run, ctx.outputs = run, outputs
        ctx.save_for_backward(*tensors)
        inputs = [tensor.detach().requires_grad_() for tensor in tensors[outputs:]]
        with torch.enable_grad():
            return _slopes(run(*inputs), inputs, tensors[:outputs])

    @staticmethod
    def backward(ctx: Any, *directions: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            tensors = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
            adjoint, inputs = tensors[: ctx.outputs], tensors[ctx.outputs :]
            slopes = _slopes(ctx.run(*inputs), inputs, adjoint, create_graph=True)
            return None, None, *_slopes(slopes, tensors, directions)


def _slopes(
    outputs: tuple[Tensor, ...], inputs: list[Tensor], adjoint: tuple[Tensor, ...] | list[Tensor], **how: bool
) -> tuple[Tensor, ...]:
    """∇⟨adjoint, outputs⟩; zeros where an input is of no consequence."""
    live = [i for i, output in enumerate(outputs) if output.requires_grad]
    if not live:
        return tuple(torch.zeros_like(tensor) for tensor in inputs)
    some, given = [outputs[i] for i in live], [adjoint[i] for i in live]
    return torch.autograd.grad(some, inputs, given, materialize_grads=True, **how)


def _checkpointed(block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    running = False

    def replacement(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        if running or not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        weights = dict(block.named_parameters()) | dict(block.named_buffers())
        values, shape = tree_flatten((args, kwargs, weights))
        places = [i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]
        inputs = [values[i] for i in places]
        if not inputs:
            return forward(*args, **kwargs)
        for i in places:
            values[i] = None  # the function keeps them
        autocast = _remembered_autocast(inputs[0].device.type)
        results: list[Any] = []
        structure: Any = None

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            nonlocal running, results, structure
            filled = list(values)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            args, kwargs, weights = tree_unflatten(filled, shape)
            running = True
            try:
                with autocast():
                    results, structure = tree_flatten(functional_call(block, weights, args, kwargs))
            finally:
                running = False
            outputs = tuple(result for result in results if _differentiable(result))
            results = [_OUTPUT if _differentiable(result) else result for result in results]
            return outputs

        outputs = iter(_Block.apply(run, *inputs))  # type: ignore[no-untyped-call]
        return tree_unflatten([next(outputs) if result is _OUTPUT else result for result in results], structure)

    return replacement


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _remembered_autocast(device_type: str) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    if device_type == "meta" or not torch.is_autocast_enabled(device_type):
        return contextlib.nullcontext
    dtype = torch.get_autocast_dtype(device_type)
    return lambda: torch.autocast(device_type, dtype=dtype)
