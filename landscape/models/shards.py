"""The files that an index of weights names: plain names, beside the index."""

from __future__ import annotations

import json
from pathlib import Path

from landscape.errors import ModelError

_LONGEST = 200  # bytes
_BLOBS = "blobs"  # where the Hub's cache has what the links of its snapshots lead to


def shards(index: Path) -> list[Path]:
    """The files of `index`, such as model.safetensors.index.json, in order of name, there or not.

    Raises:
        ModelError: the index is damaged, or names a file that lies elsewhere or leads there.
    """
    folder = index.parent
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        if not all(isinstance(name, str) for name in names):
            raise TypeError("no names")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"model {folder.name}: {index.name} is damaged; copy or download it again") from error
    for name in names:
        if not is_beside(folder, name):
            raise ModelError(
                f"model {folder.name}: {index.name} names {name[:100]!r}, which does not lie beside it; expected the "
                "names of files in the same folder"
            )
    return [folder / name for name in names]


def is_beside(folder: Path, name: str) -> bool:
    """Whether `name` is that of a file in `folder` itself, and no link that leads out of it or of the Hub's cache."""
    if "\\" in name or "\0" in name or name in ("", ".", "..") or Path(name).name != name:
        return False
    if len(name.encode(errors="replace")) > _LONGEST or not name.isprintable():
        return False
    at, home = (folder / name).resolve(), folder.resolve()
    return at.is_relative_to(home) or at.is_relative_to(home.parent.parent / _BLOBS)
