"""A model whose decoder blocks stay in their file, to be brought into memory one at a time.

transformers maps safetensors into memory where it need not convert them, and the system drops what was mapped as it
sees fit. The model is therefore loaded in the dtype of its file; embeddings, last norm and head are turned into float32
for good, a block only while it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from landscape.decoder.blocks import decoder_blocks
from landscape.errors import ModelError
from landscape.models import first_line, read_model
from landscape.models.checkpoint import Checkpoint
from landscape.models.shards import shards
from landscape.storage.scratch import Scratch
from landscape.weights import Weights

_FLOATS = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def load_mapped(checkpoint: Checkpoint, device: str = "cpu", remote_code: bool = False) -> nn.Module:
    """The model at `checkpoint`, all but its blocks in float32 on `device`; for these, see `brought_in`.

    Raises:
        ModelError: it cannot be loaded, is no safetensors, or computes constants in the dtype of its file.
    """
    found = {dtype for dtype, _ in _headers(checkpoint)}
    if not found:
        raise ModelError(
            f"model {checkpoint}: no safetensors, so that its blocks cannot stay in the file; use --stream never, or "
            "save it as safetensors"
        )
    dtype = _FLOATS[found.pop()] if len(found) == 1 else torch.float32  # which holds all of them as they are
    model = read_model(checkpoint, dtype, "sdpa", remote_code)
    inside = {id(tensor) for block in decoder_blocks(model)[1] for tensor in (*block.parameters(), *block.buffers())}
    for module in model.modules():
        for name in module._non_persistent_buffers_set:
            buffer = getattr(module, name)
            if buffer is not None and buffer.is_floating_point() and buffer.dtype != torch.float32:
                raise ModelError(
                    f"model {checkpoint}: computes {name} in {str(buffer.dtype)[6:]} as its file has it, which differs "
                    "from what it is in float32; use --stream never"
                )
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in inside:
            tensor.data = tensor.data.to(device, torch.float32 if tensor.is_floating_point() else None)
    return model


@contextmanager
def brought_in(block: nn.Module, device: str) -> Iterator[None]:
    """Within, a block of a model that `load_mapped` loaded is in float32 on `device`."""
    with holding([*block.parameters(), *block.buffers()], device, lambda tensor: tensor.data):
        yield


@contextmanager
def holding(tensors: Iterable[Tensor], device: str, value: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within, parameters and buffers hold the `value` of each, in float32 on `device`."""
    before = [(tensor, tensor.data) for tensor in tensors]
    try:
        for tensor, _ in before:
            tensor.data = value(tensor).to(device, torch.float32 if tensor.is_floating_point() else None)
        yield
    finally:
        for tensor, data in before:
            tensor.data = data


def masters(model: nn.Module, device: str, scratch: Scratch) -> Weights:
    """Θ in float32 in scratch space, on which the parameters of a model that `load_mapped` loaded lie from now on.

    Those outside its blocks lie on `device` where that is not the CPU.
    """
    theta = scratch.weights(Weights.of(model))
    inside = {id(parameter) for block in decoder_blocks(model)[1] for parameter in block.parameters()}
    for name, parameter in model.named_parameters():
        parameter.data = theta[name] if id(parameter) in inside else theta[name].to(device)
    return theta


def stored_parameters(checkpoint: Checkpoint) -> int:
    """The entries of all tensors in the safetensors of `checkpoint`; 0 where there are none.

    Raises:
        ModelError: a file that is none.
    """
    return sum(numel for _, numel in _headers(checkpoint))


def _headers(checkpoint: Checkpoint) -> Iterator[tuple[str, int]]:
    """(dtype, number of entries) of every tensor that is floating point, from the files' headers alone."""
    index = checkpoint.folder / "model.safetensors.index.json"
    whole = checkpoint.folder / "model.safetensors"
    try:
        for path in [whole] if whole.exists() else shards(index) if index.exists() else []:
            with safe_open(path, "pt") as file:
                for key in file.keys():  # noqa: SIM118 - not a dictionary
                    part = file.get_slice(key)
                    if part.get_dtype() in _FLOATS:
                        yield part.get_dtype(), math.prod(part.get_shape())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise ModelError(f"model {checkpoint}: unreadable weights ({first_line(error)})") from error
