"""What the files found hold: slices, measurements and studies, or one line that says why not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py

from landscape.curvature import store as curvature
from landscape.curvature.store import StoredSharpness
from landscape.errors import LandscapeError
from landscape.slices.stored import StoredSlice
from landscape.slices.stored import read as read_slice
from landscape.study import table
from landscape.study.columns import LAYERS, STUDY
from landscape.viewer.described.course import Course, Spectrum
from landscape.viewing.find import EVALUATION, HDF5, TABLE, Source, Stamp, stamp_of

LAYERS_TABLE = "layers.parquet"


@dataclass(frozen=True)
class Study:
    """The tables of a study, and the spectra measured for it by the checkpoint's identity."""

    rows: tuple[Mapping[str, Any], ...]
    layers: tuple[Mapping[str, Any], ...]
    spectra: Mapping[str, Spectrum]

    @cached_property
    def identities(self) -> frozenset[str]:
        """Of its checkpoints."""
        return frozenset(str(row["identity"]) for row in self.rows if row["identity"])

    def course(self, name: str, slices: Sequence[tuple[StoredSlice, str]]) -> Course:
        """What its page draws; `slices` are all that there are, with their addresses."""
        of: dict[str, tuple[tuple[StoredSlice, str], ...]] = {}
        for stored, address in slices:
            identity = str(stored.attributes.get("model_identity"))
            if identity in self.identities:
                of[identity] = (*of.get(identity, ()), (stored, address))
        meanings = {column: meaning for column, (_, meaning) in ({**LAYERS, **STUDY}).items()}
        return Course(name, self.rows, self.layers, meanings, self.spectra, of)


Stamps = tuple[Stamp | None, ...]
Content = StoredSlice | StoredSharpness | Study | dict[str, Any]  # the last an evaluation


@dataclass
class Reader:
    """Reads sources, each again when it changed; one that cannot be read any more is what it was at last."""

    _known: dict[Path, tuple[Stamps, Content]] = field(default_factory=dict)

    def read(self, source: Source) -> tuple[Stamps, Content]:
        """What `source` holds, and what tells whether that changed.

        Raises:
            LandscapeError: nothing that can be shown.
        """
        stamps = stamps_of(source)  # first: what changes from here on is read again
        before = self._known.get(source.path)
        if before is not None and before[0] == stamps:
            return before
        try:
            found = self._known[source.path] = stamps, _content(source)
        except Exception as error:
            if before is not None:  # another process is at it
                return before
            if isinstance(error, LandscapeError):
                raise
            raise LandscapeError(f"{source.path}: cannot be read ({type(error).__name__}: {error})") from error
        return found


def stamps_of(source: Source) -> Stamps:
    """Those of all files that `source` is read from."""
    if source.path.name != TABLE:
        return (source.stamp,)
    folder = source.path.parent
    return (source.stamp, stamp_of(folder / LAYERS_TABLE), *map(stamp_of, _curvature_files(folder)))


def reason(error: Exception, source: Source) -> str:
    """What `error` says, without the path that stands beside it anyway."""
    return str(error).removeprefix(f"{source.path}: ")


def _content(source: Source) -> Content:
    if source.kind == HDF5:
        return _stored(source.path)
    if source.kind == EVALUATION:
        content = json.loads(source.path.read_text(encoding="utf-8"))
        if not isinstance(content.get("comparison"), dict):
            raise LandscapeError(f"{source.path}: an evaluation without its losses")
        return dict(content)
    return _study(source.path.parent)


def _stored(path: Path) -> StoredSlice | StoredSharpness:
    kind = None
    with suppress(OSError), h5py.File(path, "r", locking=False) as file:
        kind = file.attrs.get("kind")
    return curvature.read(path) if kind == curvature.KIND else read_slice(path)


def _study(folder: Path) -> Study:
    rows = tuple(table.read(folder / TABLE))
    if not rows:
        raise LandscapeError(f"{folder / TABLE}: a table without rows")
    layers = tuple(table.read(folder / LAYERS_TABLE)) if (folder / LAYERS_TABLE).is_file() else ()
    by_key = {row["curvature_key"]: row["identity"] for row in rows if row["curvature_key"] and row["identity"]}
    spectra = {}
    for path in _curvature_files(folder):
        try:
            stored = curvature.read(path)
            spectrum = Spectrum.of(stored)
        except LandscapeError:
            continue  # being written, say; the tables stand without it
        a = stored.attributes
        if spectrum is not None:
            spectra[by_key.get(a.get("key")) or str(a.get("model_identity"))] = spectrum
    return Study(rows, layers, spectra)


def _curvature_files(folder: Path) -> list[Path]:
    return sorted((folder / "curvature").glob("*.h5"))
