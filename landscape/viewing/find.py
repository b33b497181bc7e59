"""What lies in the folders named: files that may be results, by their kind, with what tells whether they changed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from landscape.errors import StoreError

HDF5, EVALUATION, STUDY = "hdf5", "evaluation", "study"
MANIFEST = ".landscape-view.json"  # in every folder of pages that this package made
TABLE = "study.parquet"
_OF_A_STUDY = ("curvature", "evaluations")  # folders of what its table was made from
_EVALUATION = re.compile(rb'\s*\{\s*"kind":\s*"evaluation"')

Stamp = tuple[int, int]


@dataclass(frozen=True)
class Source:
    """A file that may be a result.

    Attributes:
        kind: what its name and first bytes promise; whether it keeps that shows when it is read.
        place: below the folder named, that folder's name included; what a reader knows it by.
        stamp: time of the last change and size.
    """

    path: Path
    kind: str
    place: str
    stamp: Stamp


def look(named: Sequence[Path], except_in: Path | None = None) -> list[Source]:
    """All sources in the files and folders `named`, each once, by place; not those below `except_in`.

    Raises:
        StoreError: a path that is not there, or a file that is no result by its name.
    """
    found: dict[Path, Source] = {}
    for root in named:
        whole = root.resolve()
        if whole.is_dir():
            for path in _files(whole, except_in.resolve() if except_in else None):
                _add(found, path, f"{whole.name}/{path.relative_to(whole).as_posix()}")
        elif not whole.is_file():
            raise StoreError(f"{root}: no such file or directory; expected a slice (.h5), study.parquet or a folder")
        elif not _add(found, whole, whole.name):
            raise StoreError(f"{root}: not a result; expected a slice (.h5), study.parquet or a folder of them")
    studies = {source.path.parent for source in found.values() if source.kind == STUDY}
    own = {study / name for study in studies for name in _OF_A_STUDY}
    sources = [each for each in found.values() if each.path.parent not in own]
    if len({each.place for each in sources}) < len(sources):  # two folders of one name
        common = Path(os.path.commonpath([each.path.parent for each in sources]))
        sources = [replace(each, place=each.path.relative_to(common).as_posix()) for each in sources]
    return sorted(sources, key=lambda each: each.place)


def stamp_of(path: Path) -> Stamp | None:
    """What changes with the content of `path`; None where there is no file."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def _files(root: Path, except_in: Path | None) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        ours = MANIFEST in names
        folders[:] = [] if ours else sorted(n for n in folders if n[0] != "." and here / n != except_in)
        yield from (here / name for name in sorted(names) if name[0] != "." and not ours)


def _add(found: dict[Path, Source], path: Path, place: str) -> bool:
    kind = _kind(path)
    stamp = stamp_of(path) if kind else None
    if stamp is not None and kind is not None:
        found.setdefault(path, Source(path, kind, place, stamp))
    return stamp is not None


def _kind(path: Path) -> str | None:
    if path.suffix in (".h5", ".hdf5"):
        return HDF5
    if path.name == TABLE:
        return STUDY
    if path.suffix == ".json":
        try:
            with path.open("rb") as file:
                return EVALUATION if _EVALUATION.match(file.read(64)) else None
        except OSError:
            return None
    return None
