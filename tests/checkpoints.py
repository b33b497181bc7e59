"""Folders that look like checkpoints: what references read is names and bytes, not weights."""

from __future__ import annotations

import json
from pathlib import Path


def save(folder: Path, weights: bytes = b"weights", file: str = "model.safetensors", config: str = "{}") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config)
    (folder / file).write_bytes(weights)
    return folder


def save_shards(folder: Path, whole: str, shards: dict[str, bytes]) -> Path:
    """A model whose weights are in several files, as `index` tells."""
    for name, content in shards.items():
        save(folder, content, name)
    index = {"metadata": {}, "weight_map": {f"tensor.{number}": name for number, name in enumerate(shards)}}
    (folder / f"{whole}.index.json").write_text(json.dumps(index))
    return folder
