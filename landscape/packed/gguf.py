"""GGUF, the file of llama.cpp: blocks of codes by type of tensor (q4_0, q8_0, q4_k, q6_k, …) under names of its own.

llama.cpp's converter (its folder `conversion`) also lays some tensors out anew: where its rotary embeddings turn pairs
of neighbours instead of two halves, the rows of each head's queries and keys are interleaved; GPT-NeoX's rows are
sorted by query, key and value first and by head second; GPT-2's matrices are transposed. Here this is undone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from landscape.errors import ModelError
from landscape.packed.stored import Dense, Settings, load_package

_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_BITS = re.compile(r"(?:IQ|TQ|Q|FP)(\d)")
_COMPUTED = ("rope_freqs.", "rope_factors_")  # factors of the rotary embedding: follow from the configuration
_PURPOSE = "a GGUF file"

# What llama.cpp calls an architecture: the types of model that transformers has for it, and the tensors laid out anew.
_HEADS, _FUSED = re.compile(r"\.(q|k)_proj\."), re.compile(r"\.query_key_value\.")
_ARCHITECTURES: dict[str, tuple[tuple[str, ...], re.Pattern[str] | None]] = {
    "llama": (("llama", "mistral"), _HEADS),
    "olmo": (("olmo",), _HEADS),
    "smollm3": (("smollm3",), _HEADS),
    "olmo2": (("olmo2", "olmo3"), None),
    "qwen2": (("qwen2",), None),
    "qwen3": (("qwen3",), None),
    "gpt2": (("gpt2",), None),
    "gptneox": (("gpt_neox",), _FUSED),
}


def gguf_files(folder: Path) -> list[Path]:
    """The GGUF files that `folder` offers: itself, or those in it where there are no weights of another kind."""
    if folder.is_file():
        return [folder] if folder.suffix == ".gguf" else []
    others = any(next(folder.glob(pattern), None) for pattern in ("*.safetensors*", "pytorch_model*.bin*"))
    return [] if others else sorted(folder.glob("*.gguf"))


def read(folder: Path, settings: Settings, model: nn.Module) -> Iterator[Dense]:
    """Every tensor of the GGUF file in `folder`, dense, under the names and in the layout of `model`.

    `activations` is false throughout: whether a layer's inputs are quantized is up to the program that runs the file.

    Raises:
        MissingExtraError: the package gguf is not installed.
        ModelError: several files, another architecture, or a type of block that the package cannot unpack.
    """
    gguf = load_package("gguf", _PURPOSE)
    path, *others = gguf_files(folder)
    if others:
        raise ModelError(
            f"{len(others) + 1} GGUF files, as {path.name}; expected one, in a directory of its own (llama-gguf-split "
            "joins the parts of a split one)"
        )
    reader = _bounded(gguf.GGUFReader)(path)
    architecture = str(reader.fields["general.architecture"].contents())
    moved = _check_architecture(architecture, model)
    names = _names(gguf, architecture, model)
    for stored in reader.tensors:
        if stored.name.startswith(_COMPUTED):
            continue
        name, kind = names.get(stored.name, stored.name), stored.tensor_type.name
        try:
            tensor = torch.from_numpy(gguf.dequantize(stored.data, stored.tensor_type)).float()
        except NotImplementedError as error:
            raise ModelError(f"tensor {stored.name}: of type {kind}, which the package gguf cannot unpack") from error
        if moved and moved.search(name):
            tensor = _in_place(tensor, name, model)
        if kind in _FLOATS:
            yield Dense(name, tensor.to(_FLOATS[kind]), by_output=True)
        else:
            bits = _BITS.search(kind)
            yield Dense(name, tensor, int(bits[1]) if bits else 0, 8 * int(stored.n_bytes), by_output=True)


def _bounded(reader: type) -> type:
    """`reader`, which raises `ValueError` where it would read beyond the end of its file.

    A length is else believed: of an array of 2⁶⁰ numbers every single one would be looked for, and nothing be found.
    """

    def get(self: Any, offset: int, dtype: Any, count: int = 1, *rest: Any, **more: Any) -> Any:
        if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
            raise ValueError("it ends before what its lengths say")
        return reader._get(self, offset, dtype, count, *rest, **more)  # type: ignore[attr-defined]

    return type("Bounded", (reader,), {"_get": get})


def _check_architecture(architecture: str, model: nn.Module) -> re.Pattern[str] | None:
    """The tensors that the converter moved in this architecture."""
    if architecture not in _ARCHITECTURES:
        raise ModelError(f"GGUF file of a {architecture}: expected one of {', '.join(_ARCHITECTURES)}")
    types, moved = _ARCHITECTURES[architecture]
    if _config(model).model_type not in types:
        raise ModelError(
            f"GGUF file of a {architecture}, Θ of a {_config(model).model_type}: expected the same architecture"
        )
    return moved


def _names(gguf: Any, architecture: str, model: nn.Module) -> dict[str, str]:
    """GGUF's name of every parameter of `model` → its own, by the package's table."""
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    table = gguf.get_tensor_name_map(kind, _config(model).num_hidden_layers)
    found = {}
    for name, _ in model.named_parameters(remove_duplicate=False):
        if other := table.get_name(name, try_suffixes=(".weight", ".bias")):
            found[other] = name
    return found


def _in_place(tensor: Tensor, name: str, model: nn.Module) -> Tensor:
    """The rows of a tensor that the converter laid out anew, as transformers has them."""
    config = _config(model)
    heads = config.num_attention_heads
    if _FUSED.search(name):  # (3, heads, size) → (heads, 3, size)
        return tensor.unflatten(0, (3, heads, -1)).transpose(0, 1).reshape(tensor.shape)
    if ".k_proj." in name:
        heads = getattr(config, "num_key_value_heads", None) or heads
    # (heads, half a size, 2) → (heads, 2, half a size)
    return tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(tensor.shape)


def _config(model: nn.Module) -> Any:
    return model.config
