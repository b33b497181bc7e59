"""Whether a checkpoint is packed, and how: read off its configuration and the names of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from landscape.errors import ModelError
from landscape.models.checkpoint import Checkpoint
from landscape.packed.gguf import gguf_files
from landscape.packed.stored import Settings, read_json


def is_packed(checkpoint: Checkpoint) -> str | None:
    """The format that `checkpoint` is packed in, as its configuration calls it; None for a float one. Loads nothing.

    It can be a format that `load_dense` does not read.

    Raises:
        ModelError: the configuration is damaged.
    """
    if gguf_files(checkpoint.folder):
        return "gguf"
    method = settings_of(checkpoint.folder).get("quant_method")
    return str(method) if method and method != "gguf" else None  # transformers unpacks GGUF and stores floats


def settings_of(folder: Path) -> Settings:
    """What the configuration says about quantization, with its `quant_method`; empty for a float checkpoint."""
    config = read_json(folder / "config.json")
    settings: dict[str, Any] = config.get("quantization_config") or config.get("compression_config") or {}
    if not isinstance(settings, dict):
        raise ModelError(f"model {folder.name}: quantization_config in config.json is no mapping")
    if settings.get("load_in_4bit") or settings.get("load_in_8bit"):
        return {"quant_method": "bitsandbytes", **settings}
    # Before transformers knew them, AutoGPTQ and AutoAWQ wrote files of their own.
    for name, method in (("quantize_config.json", "gptq"), ("quant_config.json", "awq")):
        if not settings and (beside := read_json(folder / name)):
            return {"quant_method": method, **beside}
    return settings
