"""Eigenvectors in files of their own: as named tensors in the shapes of the parameters, to be used as directions.

    <end>.<i>.<parameter>     the i-th from the outside, a unit vector over all parameters covered

They are the start of the next measurement, too: along a training run the sharpest direction turns slowly.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from landscape.curvature import ParameterSpace
from landscape.errors import OptionError
from landscape.storage.files import write_whole

_KIND = "eigenvectors"


def file_beside(result: Path, which: str) -> Path:
    """Where the vectors of one end go."""
    return result.with_name(f"{result.stem}.{which}.safetensors")


def files_beside(result: Path) -> tuple[Path, ...]:
    """Those that are there."""
    return tuple(path for which in ("top", "bottom") if (path := file_beside(result, which)).exists())


def write(path: Path, which: str, space: ParameterSpace, vectors: Tensor) -> None:
    """Keep the rows (k, n).

    Raises:
        StoreError: the disk is full, or the place cannot be written.
    """
    tensors = {
        f"{which}.{index}.{name}": piece.cpu().contiguous()
        for index, row in enumerate(vectors)
        for name, piece in space.unflatten(row).items()
    }
    write_whole(path, save(tensors, {"kind": _KIND, "names": json.dumps(space.names)}))


def fingerprint(path: Path, option: str) -> str:
    """SHA-256 of the file that `option` named.

    Raises:
        OptionError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise OptionError(
            f"{option} {path}: cannot be read ({error.strerror}); expected a file of --vectors"
        ) from error


def read(path: Path, space: ParameterSpace, like: Tensor, option: str) -> Tensor:
    """The vectors as rows (k, n) over `space`, in the dtype and on the device of `like`; `option` named the file.

    Raises:
        OptionError: not such a file, or of other parameters.
    """
    try:
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("kind") != _KIND:
                raise OptionError(f"{option} {path}: no eigenvectors; expected a file that --vectors wrote")
            there = set(file.keys())
            prefixes = sorted({".".join(name.split(".", 2)[:2]) for name in there})
            rows = []
            for prefix in prefixes:
                pieces = []
                for name, shape in zip(space.names, space.shapes, strict=True):
                    full = f"{prefix}.{name}"
                    if full not in there or file.get_slice(full).get_shape() != list(shape):
                        raise OptionError(
                            f"{option} {path}: holds no {name} of shape {list(shape)}; expected vectors over the "
                            "parameters measured here"
                        )
                    pieces.append(file.get_tensor(full).reshape(-1))
                rows.append(torch.cat(pieces))
    except (SafetensorError, OSError) as error:
        raise OptionError(f"{option} {path}: cannot be read ({error}); expected a file of --vectors") from error
    return torch.stack(rows).to(like)
