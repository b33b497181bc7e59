"""AWQ in its GEMM layout: 4-bit codes packed along the outputs, eight to a word, even ones before odd ones.

As AutoAWQ wrote it and GPTQModel writes it, for n inputs and m outputs: `qweight` int32 (n, m/8), `qzeros` int32
(groups, m/8), `scales` (groups, m). From its lowest bits upward a word holds the outputs 0, 2, 4, 6, 1, 3, 5, 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from landscape.errors import ModelError
from landscape.packed.bits import unpack
from landscape.packed.stored import Dense, Parts, Settings, TensorFiles, layer_by_layer

_PARTS = ("qweight", "qzeros", "scales")
_PLACE = [0, 4, 1, 5, 2, 6, 3, 7]  # of each output within its word


def read(folder: Path, settings: Settings, model: nn.Module) -> Iterator[Dense]:
    """Every tensor of an AWQ checkpoint, dense; scales that AWQ moved into the layers before stay where they are.

    Raises:
        ModelError: another layout, as `gemv`, or another number of bits.
    """
    version = str(settings.get("version") or settings.get("format") or "gemm").lower()
    if version != "gemm":
        raise ModelError(f"AWQ checkpoint in the layout {version}: expected gemm")
    bits = int(settings.get("bits") or settings.get("w_bit") or 4)
    if bits != 4:
        raise ModelError(f"AWQ checkpoint of {bits} bits: expected 4")
    return layer_by_layer(TensorFiles(folder), "qweight", _PARTS, lambda layer, parts: (dequantize(parts), 4))


def dequantize(parts: Parts) -> Tensor:
    """W = s[g]·(q − z[g]) in float32, (outputs, inputs); the inputs of a group follow one another."""
    scales = parts["scales"].float()  # (groups, outputs)
    codes, zeros = _in_order(parts["qweight"]), _in_order(parts["qzeros"])
    group = torch.arange(len(codes)) // (len(codes) // len(scales))
    return ((codes - zeros[group]) * scales[group]).T


def _in_order(words: Tensor) -> Tensor:
    """(rows, n) words → (rows, 8·n) codes in the order of the outputs."""
    return unpack(words, 4).unflatten(1, (-1, 8))[:, :, _PLACE].flatten(1)
