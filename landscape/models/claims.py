"""What a checkpoint's configuration claims, held against its files before anything of that size is made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from landscape.errors import ModelError
from landscape.models.checkpoint import Checkpoint

_LAYERS, _EXPERTS = re.compile(r"(num|n)_(\w+_)?layers?"), re.compile(r"(num|n)_\w*experts?")  # are made one by one
_MOST = 10_000
_PER_BYTE = 16  # weights in a byte of a file: no packing has more
_ROOM = 1 << 26  # entries of buffers that no file holds


def check_claims(checkpoint: Checkpoint) -> None:
    """Look at the configuration before transformers does.

    Raises:
        ModelError: damaged, layers that no file can hold, or weights that lie elsewhere.
    """
    try:
        config = json.loads((checkpoint.folder / "config.json").read_text(encoding="utf-8"))
        numbers = list(_counts(config))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"model {checkpoint}: config.json is damaged; copy or download it again") from error
    tensors = min(_MOST, _tensors(checkpoint.folder) or _MOST)
    for name, number in numbers:
        most = tensors if _LAYERS.fullmatch(name) else _MOST
        if number > most:
            raise ModelError(f"model {checkpoint}: config.json says {name}={number}; its files hold {most} at most")
    if "transformers_weights" in config or (checkpoint.folder / "adapter_config.json").exists():
        raise ModelError(
            f"model {checkpoint}: says that its weights lie in other files; expected a whole model in model.safetensors"
        )


def check_size(checkpoint: Checkpoint) -> None:
    """Hold the number of weights that the configuration asks for against the size of the files.

    Raises:
        ModelError: more weights than any packing puts into these files.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(checkpoint.folder, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", trust_remote_code=False)
    except Exception:  # loading says it better
        return
    stored = sum(path.stat().st_size for path in _weights(checkpoint.folder))
    weights = sum(tensor.numel() for tensor in model.parameters())
    buffers = sum(tensor.numel() for tensor in model.buffers())
    if weights > _PER_BYTE * stored or buffers > _PER_BYTE * stored + _ROOM:
        raise ModelError(
            f"model {checkpoint}: config.json asks for {weights + buffers:,} numbers, and its files hold {stored:,} "
            "bytes; expected a configuration that belongs to these weights"
        )


def _counts(config: Any) -> Iterator[tuple[str, float]]:
    """Names and values of what says how many layers and experts there are, here and in configurations within."""
    if not isinstance(config, dict):
        raise ValueError("no mapping")
    for name, value in config.items():
        if isinstance(value, int | float) and (_LAYERS.fullmatch(name) or _EXPERTS.fullmatch(name)):
            yield name, value
        elif isinstance(value, dict):
            yield from _counts(value)


def _weights(folder: Path) -> list[Path]:
    return [path for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern)]


def _tensors(folder: Path) -> int:
    """Tensors in the safetensors of `folder`; 0 where there are none, or none that can be read."""
    found = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, "pt") as file:
                found += len(file.keys())
        except Exception:  # loading says it better
            return 0
    return found
