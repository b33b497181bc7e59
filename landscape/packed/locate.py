"""Where a packed checkpoint is: like any other model, or a GGUF file, which no model reference names."""

from __future__ import annotations

import hashlib

from landscape.errors import ModelError
from landscape.models.checkpoint import Checkpoint
from landscape.models.references import resolve
from landscape.packed.formats import is_packed
from landscape.packed.gguf import gguf_files
from landscape.storage.files import on_disk


def locate(reference: str, near: Checkpoint | None = None) -> Checkpoint:
    """The packed checkpoint that `reference` names: a GGUF file, a directory, or a Hub id with or without @revision.

    Raises:
        ModelError: nothing there, or a checkpoint that is not packed.
    """
    checkpoint = find(reference, near)
    if is_packed(checkpoint) is None:
        raise ModelError(f"model {checkpoint}: not packed; expected a quantized checkpoint, or name it as the MODEL")
    return checkpoint


def find(reference: str, near: Checkpoint | None = None, remote_code: bool = False) -> Checkpoint:
    """What `reference` names, packed or not; a GGUF file may be named too.

    Raises:
        ModelError: nothing there.
    """
    path = on_disk(reference)
    files = gguf_files(path) if path else []
    if path and len(files) == 1:
        with open(files[0], "rb") as file:
            identity = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        return Checkpoint(path.name, None, identity, path.resolve(), path.resolve().parent)
    return resolve(reference, near, remote_code)
