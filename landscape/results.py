"""What names a result: a hash over everything that changes its numbers, and a file called after it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from landscape.errors import OptionError
from landscape.models.checkpoint import Checkpoint
from landscape.reporting import versions


def key_of(inputs: Mapping[str, Any]) -> str:
    """SHA-256 over `inputs` and the versions of the packages that compute."""
    return hashlib.sha256(json.dumps({**inputs, "versions": versions()}, sort_keys=True).encode()).hexdigest()


def path_of(out: Path, checkpoint: Checkpoint, *words: str, suffix: str = ".h5") -> Path:
    """`out` itself where it names an HDF5 file; else a file in it, called after the checkpoint and `words`.

    Raises:
        OptionError: a file that is no HDF5 file by its name.
    """
    if out.suffix in (".h5", ".hdf5"):
        return out
    if out.exists() and not out.is_dir():
        raise OptionError(f"--out {out}: a file; expected a directory or a name that ends in .h5")
    parts = [checkpoint.name.rsplit("/", 1)[-1], checkpoint.revision or "", *words]
    return out / ("-".join(part.replace("/", "_") for part in parts if part) + suffix)
