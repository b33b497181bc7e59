"""bitsandbytes: 4-bit codes of a table (nf4, fp4) in blocks, and LLM.int8, as transformers saves them.

4 bits: `weight` holds two codes to a byte and its scales lie beside it as `weight.absmax`, themselves quantized where
double quantization was on. 8 bits: `weight` int8 (outputs, inputs) and `SCB`, the largest |w| of each output.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from landscape.errors import ModelError
from landscape.packed.stored import Dense, Parts, Settings, TensorFiles, layer_by_layer, load_package

_STATE = "weight.quant_state.bitsandbytes__"
_PARTS_4 = ("weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map")
_PARTS_8 = ("weight", "SCB", "weight_format")


def read(folder: Path, settings: Settings, model: nn.Module) -> Iterator[Dense]:
    """Every tensor of a bitsandbytes checkpoint, dense. LLM.int8 quantizes activations too, at run time.

    Raises:
        MissingExtraError: bitsandbytes is not installed.
        ModelError: 8-bit weights in a layout of some GPU.
    """
    functional = load_package("bitsandbytes.functional", "a bitsandbytes checkpoint")
    files = TensorFiles(folder)
    if settings.get("load_in_8bit"):
        return layer_by_layer(
            files, "SCB", _PARTS_8, lambda layer, parts: (_eight(functional, layer, parts), 8), lambda layer: True
        )
    parts = (*_PARTS_4, f"{_STATE}nf4", f"{_STATE}fp4")
    return layer_by_layer(files, "weight.absmax", parts, lambda layer, own: (_four(functional, own), 4))


def _four(functional: Any, parts: Parts) -> Tensor:
    """(outputs, inputs) in float32: the products of table and scale before any rounding to the dtype of computation."""
    weight = parts["weight"]
    state = functional.QuantState.from_dict({k: v for k, v in parts.items() if k != "weight"}, weight.device)
    state.dtype = torch.float32
    return functional.dequantize_4bit(weight.contiguous(), state)


def _eight(functional: Any, layer: str, parts: Parts) -> Tensor:
    """W = q·max|w| / 127 by output."""
    if int(parts.get("weight_format", torch.zeros(()))) != 0:
        raise ModelError(f"layer {layer}: 8-bit weights in the layout of a GPU; save them with a newer bitsandbytes")
    return functional.int8_vectorwise_dequant(parts["weight"], parts["SCB"].float())
