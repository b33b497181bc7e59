"""What makes second derivatives wrong or impossible, found before it does harm and said in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape.errors import CurvatureError
from landscape.objective import Objective


def check_deterministic(objective: Objective, weights: Mapping[str, Tensor]) -> None:
    """Evaluate the first batch twice.

    Raises:
        CurvatureError: there is no batch, or the two losses differ.
    """
    if not len(objective.batches):
        raise CurvatureError("an objective without batches: there is no loss to differentiate")
    with explained("batch 0"), torch.no_grad():
        first, second = (objective(weights, objective.batches[0])[0].item() for _ in range(2))
    if abs(first - second) > 1e-5 * abs(first):
        raise CurvatureError(
            f"the loss of batch 0 is {first:.6g} once and {second:.6g} again: it is random; put the model into "
            "evaluation mode (dropout off)"
        )


def check_twice_differentiable(tensors: Iterable[Tensor]) -> None:
    """Look through the graph of a gradient for functions that can be differentiated only once.

    Torch puts an error where such a function ends, but the error is not on the way to the parameters: their second
    derivatives would silently lack its part.

    Raises:
        CurvatureError: there is one.
    """
    waiting = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if "Error" in node.name():
            raise CurvatureError(
                "a function of the model has no second derivative (once_differentiable): take differences of gradients "
                "(product difference)"
            )
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def gradient(total: Tensor, leaves: Sequence[Tensor], create_graph: bool = False) -> Sequence[Tensor]:
    """∂total/∂leaves; zeros where `total` does not depend on them."""
    if not total.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return torch.autograd.grad(total, leaves, create_graph=create_graph, materialize_grads=True)


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Allow only attention kernels that can be differentiated twice, and turn what torch raises into one line.

    The choice of kernels is the process's, not the thread's: enter this from one thread at a time.

    Raises:
        CurvatureError: no memory, or an operation without second derivative.
    """
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    except (RuntimeError, MemoryError) as error:
        text, line = str(error).lower(), (str(error).splitlines() or [""])[0][:160]
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "alloc" in text or "out of memory" in text:
            raise CurvatureError(
                f"out of memory at {where}: recompute activations (--checkpointing), lower the batch size or the "
                "number of vectors at a time, or keep no graphs"
            ) from error
        if "compile" in text or "double backward" in text or "aot_autograd" in text:
            raise CurvatureError(
                "the model is compiled and has no second derivative: give the model before torch.compile, or take "
                "differences of gradients (product difference)"
            ) from error
        if "expected scalar type" in text:
            raise CurvatureError(
                f"a forward product of an objective under autocast ({line}): compute in float32, or take "
                "reverse products"
            ) from error
        if "is not implemented" in text or "not support" in text or "mixed torch.tensor and dtensor" in text:
            raise CurvatureError(
                f"an operation at {where} has no second derivative ({line}): load the model with eager attention, "
                "unsharded; or take differences of gradients (product difference)"
            ) from error
        raise
