"""GPTQ: codes packed along the inputs, zero points along the outputs, a group index per input.

The layout of AutoGPTQ, as GPTQModel's page "Packing Formats and Compatibility" describes it, for a layer of n inputs
and m outputs in b bits: `qweight` int32 (n·b/32, m), `qzeros` int32 (groups, m·b/32), `scales` (groups, m) and `g_idx`
(n,).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from landscape.errors import ModelError
from landscape.packed.bits import unpack
from landscape.packed.stored import Dense, Parts, Settings, TensorFiles, layer_by_layer

_PARTS = ("qweight", "qzeros", "scales", "g_idx")
_VERSIONS = ("gptq", "gptq_v2")
_BITS = (2, 3, 4, 8)


def read(folder: Path, settings: Settings, model: nn.Module) -> Iterator[Dense]:
    """Every tensor of a GPTQ checkpoint, dense.

    Raises:
        ModelError: another packing, as `marlin`, or another number of bits.
    """
    version = settings.get("checkpoint_format") or settings.get("format") or "gptq"
    if version not in _VERSIONS:
        raise ModelError(f"GPTQ checkpoint in the format {version}: expected one of {', '.join(_VERSIONS)}")

    def one(layer: str, parts: Parts) -> tuple[Tensor, int]:
        # GPTQModel's `dynamic` gives some layers other bits than the configuration says; the shapes know.
        bits = 32 * len(parts["qweight"]) // len(parts["g_idx"]) if "g_idx" in parts else int(settings["bits"])
        if bits not in _BITS:
            raise ModelError(f"layer {layer}: {bits} bits; expected one of {', '.join(map(str, _BITS))}")
        return dequantize(parts, bits, version == "gptq", int(settings.get("group_size", -1))), bits

    return layer_by_layer(TensorFiles(folder), "qweight", _PARTS, one)


def dequantize(parts: Parts, bits: int, one_less: bool, group_size: int) -> Tensor:
    """W = s[g]·(q − z[g]) in float32, (outputs, inputs), where g is the group of each input.

    Args:
        parts: `qweight`, `qzeros` and `scales`; `g_idx` where an activation order has scattered the groups.
        bits: of a code.
        one_less: the zero points are stored as z − 1, as in the first version of the format.
        group_size: consecutive inputs in a group where there is no `g_idx`; all of them if it is not positive.
    """
    scales = parts["scales"].float()  # (groups, outputs)
    zeros = _zero_points(parts["qzeros"], bits, one_less)[:, : scales.shape[1]]
    codes = unpack(parts["qweight"].T, bits)  # (outputs, inputs), and what fills the last words
    if "g_idx" in parts:
        group = parts["g_idx"].long()
    else:
        group = torch.arange(codes.shape[1]) // (group_size if group_size > 0 else codes.shape[1])
    codes = codes[:, : len(group)]
    return (codes - zeros[group].T) * scales[group].T


def _zero_points(words: Tensor, bits: int, one_less: bool) -> Tensor:
    """(groups, outputs) zero points.

    A zero point of 0 was stored as −1. GPTQModel, which reads these files for transformers today, subtracts and adds
    the one in whole words, so that the borrow of one code is given back to it; with 3 bits it goes code by code.
    """
    if not one_less:
        return unpack(words, bits)
    if 32 % bits:
        return unpack(words, bits) + 1 & (1 << bits) - 1
    return unpack(words + sum(1 << shift for shift in range(0, 32, bits)), bits)
