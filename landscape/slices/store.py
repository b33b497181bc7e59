"""The HDF5 file of one slice: readable at any moment, complete or not, and resumed after a kill.

    /                    attributes: schema, status, created, finished, key, plane_fingerprint, and what the job adds
    /alpha  /beta        float64, coordinates as distances in weight space; dimension scales of /loss and /done
    /loss                float64 (alpha, beta), nats per token; NaN until done, then whatever came out
    /done                uint8 (alpha, beta), 1 where /loss holds a result
    /points/<name>       attributes label, alpha, beta, residual, distance, raw; scalars loss and done
    /profile             t, loss, done along the line from the first named point to the last
    /tables/<name>       columns of equal length, such as the quantizer's report per layer

Everything is laid out and allocated when the file is created: in memory first, then under a temporary name. From then
on only numbers are overwritten in place, never HDF5's own structures, so that the file stays whole when its writer is
killed and a disk that fills up later does no harm. A tile's losses reach the file before its `done` flags.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from landscape.errors import StoreError
from landscape.files import disk_errors, write_whole
from landscape.slices.plane import Plane

SCHEMA = 1
RUNNING, COMPLETE = "running", "complete"
_NEVER = " " * 25  # room for a time, so that finishing a file overwrites in place

Tile = tuple[slice, slice]
Attributes = Mapping[str, str | float | int]
Table = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Layout:
    """What a new file holds besides losses.

    Attributes:
        plane: gives the coordinates of the named points.
        alpha, beta: the grid lines.
        profile: positions t along the line from the first named point (t = 0) to the last (t = 1).
        labels: a label for each named point.
        attributes: what the job wants to be told of the run; strings and numbers.
        tables: columns by name, by table.
        key: identity of all inputs; a file with another key is another slice.
    """

    plane: Plane
    alpha: np.ndarray
    beta: np.ndarray
    profile: np.ndarray
    labels: Mapping[str, str]
    attributes: Attributes
    tables: Mapping[str, Table]
    key: str


def create(path: Path, layout: Layout) -> None:
    """Write an empty slice at `path`, all or nothing."""
    with h5py.File(path.name, "w", driver="core", backing_store=False) as file:
        _lay_out(file, layout)
        file.flush()
        image = file.id.get_file_image()
    write_whole(path, image)


def _lay_out(file: h5py.File, layout: Layout) -> None:
    shape = (len(layout.alpha), len(layout.beta))
    for name, value in layout.attributes.items():
        file.attrs[name] = value
    file.attrs["schema"] = SCHEMA
    file.attrs["status"] = np.bytes_(RUNNING.ljust(len(COMPLETE)))
    file.attrs["created"] = _now()
    file.attrs["finished"] = np.bytes_(_NEVER)
    file.attrs["key"] = layout.key
    file.attrs["plane_fingerprint"] = layout.plane.fingerprint()
    file.attrs["point_order"] = json.dumps(list(layout.plane.points))
    file.attrs["cosine"] = layout.plane.cosine
    file.attrs["direction_lengths"] = layout.plane.lengths
    for name, line in (("alpha", layout.alpha), ("beta", layout.beta)):
        file[name] = line
        file[name].make_scale(name)
        file[name].attrs["units"] = "L2 distance in weight space"
    file["loss"] = np.full(shape, np.nan)
    file["loss"].attrs["units"] = "nats per token"
    file["done"] = np.zeros(shape, dtype=np.uint8)
    for dataset in (file["loss"], file["done"]):
        dataset.dims[0].attach_scale(file["alpha"])
        dataset.dims[1].attach_scale(file["beta"])
    for name, place in layout.plane.points.items():
        group = file.create_group(f"points/{name}")
        group.attrs["label"] = layout.labels[name]
        group.attrs.update({"alpha": place.alpha, "beta": place.beta, "residual": place.residual})
        group.attrs.update({"distance": place.distance, "raw": place.raw})
        group["loss"], group["done"] = math.nan, np.uint8(0)
    profile = file.create_group("profile")
    profile["t"] = layout.profile
    profile["loss"] = np.full(len(layout.profile), np.nan)
    profile["done"] = np.zeros(len(layout.profile), dtype=np.uint8)
    for table, columns in layout.tables.items():
        for column, values in columns.items():
            file[f"tables/{table}/{column}"] = list(values)


class SliceWriter:
    """Fills a slice that `create` laid out; hold `lock(path)` while using it."""

    def __init__(self, path: Path, key: str, plane_fingerprint: str) -> None:
        """Open `path` to go on with it.

        Raises:
            StoreError: damaged, of another schema, or another slice than `key` and `plane_fingerprint` say.
        """
        self.path = path
        check_is_slice(path)
        # Readers may hold HDF5's own lock on the file; ours is `lock`.
        self._file = h5py.File(path, "r+", locking=False)
        stored = self._file.attrs
        if stored["key"] != key or stored["plane_fingerprint"] != plane_fingerprint:
            what = "was made from other inputs" if stored["key"] != key else "lies in a plane that differs in its bits"
            self.close()
            raise StoreError(f"{path}: holds a slice that {what}; name another file with --out, or use --overwrite")

    def __enter__(self) -> SliceWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """The grid lines (α, β)."""
        return self._file["alpha"][:], self._file["beta"][:]

    def pending_points(self) -> list[str]:
        """Named points without a loss, in the order they were given."""
        return [name for name in self._point_names() if not self._file[f"points/{name}/done"][()]]

    def pending_profile(self) -> list[tuple[int, float, float]]:
        """(index, α, β) of the profile's places without a loss."""
        names = self._point_names()
        if len(names) < 2:
            return []
        (a0, b0), (a1, b1) = (self._place(names[0]), self._place(names[-1]))
        t, done = self._file["profile/t"][:], self._file["profile/done"][:]
        return [(i, a0 + t[i] * (a1 - a0), b0 + t[i] * (b1 - b0)) for i in range(len(t)) if not done[i]]

    def pending_tiles(self, size: int) -> list[Tile]:
        """Tiles of `size` × `size` cells in which a loss is missing, in order."""
        done = self._file["done"][:]
        rows, columns = done.shape
        tiles = [
            (slice(i, min(i + size, rows)), slice(j, min(j + size, columns)))
            for i in range(0, rows, size)
            for j in range(0, columns, size)
        ]
        return [tile for tile in tiles if not done[tile].all()]

    def write_point(self, name: str, loss: float) -> None:
        """Store the loss at a named point."""
        self._write(f"points/{name}", (), loss)

    def write_profile(self, index: int, loss: float) -> None:
        """Store one loss of the profile."""
        self._write("profile", index, loss)

    def write_tile(self, tile: Tile, losses: np.ndarray) -> None:
        """Store the losses of one tile."""
        self._write("", tile, losses)

    def finish(self) -> None:
        """Mark the slice complete."""
        with disk_errors(self.path):
            self._file.attrs.modify("finished", np.bytes_(_now()))
            self._file.attrs.modify("status", np.bytes_(COMPLETE))
            self._file.flush()

    def _write(self, group: str, where: Any, values: Any) -> None:
        with disk_errors(self.path):
            for name, content in (("loss", values), ("done", 1)):  # in this order: see the module's docstring
                self._file[f"/{group}/{name}"][where] = content
                self._file.flush()

    def _point_names(self) -> list[str]:
        return json.loads(self._file.attrs["point_order"])  # type: ignore[no-any-return]

    def _place(self, name: str) -> tuple[float, float]:
        attributes = self._file[f"points/{name}"].attrs
        return float(attributes["alpha"]), float(attributes["beta"])


def check_is_slice(path: Path) -> str:
    """The key of the slice at `path`.

    Raises:
        StoreError: not there, not HDF5, truncated, or of another schema.
    """
    try:
        with h5py.File(path, "r", locking=False) as file:
            schema, key = file.attrs.get("schema"), file.attrs.get("key")
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file") from error
    except OSError as error:
        raise StoreError(
            f"{path}: not a whole HDF5 file (truncated, or something else); delete it, or use --overwrite"
        ) from error
    if schema != SCHEMA or key is None:
        raise StoreError(
            f"{path}: schema {schema}, this version reads {SCHEMA}; make it anew with --overwrite or another --out"
        )
    return str(key)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
