"""A model whose decoder blocks stay in their file, to be brought into memory one at a time.

transformers maps safetensors into memory where it need not convert them, and the system drops what was mapped as it
sees fit. The model is therefore loaded in the dtype of its file; embeddings, last norm and head are turned into float32
for good, a block only while it is needed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from landscape.blocks import decoder_blocks
from landscape.errors import ModelError
from landscape.models import first_line, read_model
from landscape.references import Checkpoint

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
    """Within, a block of a model loaded `in_blocks` is in float32 on `device`."""
    tensors = [*block.parameters(), *block.buffers()]
    mapped = [tensor.data for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.data = tensor.data.to(device, torch.float32 if tensor.is_floating_point() else None)
        yield
    finally:
        for tensor, data in zip(tensors, mapped, strict=True):
            tensor.data = data


def stored_parameters(checkpoint: Checkpoint) -> int:
    """The entries of all tensors in the safetensors of `checkpoint`; 0 where there are none.

    Raises:
        ModelError: a file that is none.
    """
    return sum(numel for _, numel in _headers(checkpoint))


def _headers(checkpoint: Checkpoint) -> Iterator[tuple[str, int]]:
    """(dtype, number of entries) of every tensor that is floating point, from the files' headers alone."""
    index = checkpoint.folder / "model.safetensors.index.json"
    names = {"model.safetensors"}
    try:
        if not (checkpoint.folder / "model.safetensors").exists():
            names = (
                set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()) if index.exists() else set()
            )
        for name in sorted(names):
            with safe_open(checkpoint.folder / name, "pt") as file:
                for key in file.keys():  # noqa: SIM118 - not a dictionary
                    part = file.get_slice(key)
                    if part.get_dtype() in _FLOATS:
                        yield part.get_dtype(), math.prod(part.get_shape())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise ModelError(f"model {checkpoint}: unreadable weights ({first_line(error)})") from error
