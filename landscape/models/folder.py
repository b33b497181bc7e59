"""A checkpoint's files in a folder: all there, what they were written as, and a hash over them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from landscape.errors import ModelError
from landscape.models.shards import shards
from landscape.storage.digests import SUMS, broken, of_file, read_sums

_SHA256 = re.compile(r"[0-9a-f]{64}")


def _model_files(folder: Path) -> list[Path]:
    """The configuration and the weight files that transformers would load, there or not."""
    config, whole = folder / "config.json", folder / "model.safetensors"
    for weights in (whole, folder / "pytorch_model.bin"):
        index = folder / f"{weights.name}.index.json"
        if weights.is_file():
            return [config, weights]
        if index.is_file():
            return [config, *shards(index)]
    return [config, whole]


def missing(folder: Path) -> list[str]:
    """Names of the files that are not there."""
    return [path.name for path in _model_files(folder) if not path.is_file()]


def require_complete(folder: Path, name: str) -> None:
    """Raise `ModelError` where a file is missing that transformers would load."""
    if absent := missing(folder):
        raise ModelError(
            f"model {name}: it has no {absent[0]}; expected config.json and model.safetensors or pytorch_model.bin, "
            "with every shard their index names, as transformers saves them"
        )


def require_intact(folder: Path, name: str) -> None:
    """Raise `ModelError` where a weight file in the Hub's cache is not what it is named after, its own SHA-256."""
    for path in _model_files(folder):
        blob = path.resolve()
        if _SHA256.fullmatch(blob.name) and of_file(blob) != blob.name:
            raise ModelError(f"model {name}: {path.name} in the local cache is damaged; delete {blob} and try again")


def content_hash(folder: Path) -> str:
    """SHA-256 over the configuration and the weight files that would be loaded.

    Raises:
        ModelError: incomplete, or not what SHA256SUMS says where there is one.
    """
    require_complete(folder, folder.name)
    try:
        odd = broken(folder, read_sums(folder))
    except (OSError, ValueError) as error:
        raise ModelError(f"model {folder.name}: {SUMS} cannot be read; copy the checkpoint again") from error
    if odd:
        raise ModelError(
            f"model {folder.name}: {odd} is not the file that {SUMS} names; copy the checkpoint again, or remove "
            f"{SUMS} if it was changed on purpose"
        )
    digest = hashlib.sha256()
    for path in _model_files(folder):
        digest.update(path.name.encode())
        with open(path, "rb") as file:
            while block := file.read(1 << 24):
                digest.update(block)
    return f"sha256:{digest.hexdigest()}"
