"""The HDF5 file of one slice: readable at any moment, complete or not, and resumed after a kill.

    /                    attributes: schema, status, created, finished, key, plane_fingerprint, what the job adds, and
                         a digest over all else: of what was laid out, and once it is complete of everything
    /alpha  /beta        float64, coordinates as distances in weight space; dimension scales of /loss and /done
    /loss                float64 (alpha, beta), nats per token; NaN until done, then whatever came out
    /done                uint8 (alpha, beta), 1 where /loss holds a result
    /evaluated           uint8 (alpha, beta), 1 where that result was evaluated, 0 where it is reconstructed
    /points/<name>       attributes label, role, what, alpha, beta, residual, distance, raw; scalars loss and done
    /profile             t, loss, done along the line from the first named point to the last
    /nodes               kind, alpha, beta, loss of the evaluations off the grid, in the order they were made
    /sums                CRC-32 of each cell, place of the profile, point and node; until the file is complete
    /tables/<name>       columns of equal length, such as the quantizer's report per layer

and, where the picture was reconstructed, once it is:

    /surface             polynomials with their coefficients, seams, patches: the loss at any resolution
    /checks              alpha, beta, loss, reconstructed at the check points
    /certificate         attributes: the error that the reconstruction states, and what it rests on
    /reading             attributes: what the slice says, as `landscape.slices.reading` defines it

Everything is laid out and allocated when the file is created: in memory first, then under a temporary name. While it is
filled, numbers are overwritten in place, never HDF5's own structures, so that the file stays whole when its writer is
killed and a disk that fills up later does no harm. A result reaches the file before its sum, and this before its `done`
flag. What is known only at the end comes in by replacing the whole file at once.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from landscape.errors import StoreError
from landscape.slices.opened import COMPLETE, FILLED, RUNNING, SCHEMA, opened, sums
from landscape.slices.reconstruct import Reconstruction
from landscape.slices.samples import CHECK, NODE
from landscape.slices.surface import on_grid, patches, to_plain
from landscape.storage import hdf5
from landscape.storage.files import disk_errors, write_whole

if TYPE_CHECKING:
    from landscape.slices.plane import Plane

KINDS = ("", NODE, CHECK)  # a row of /nodes that is still empty has kind 0
_NEVER = " " * 25  # room for a time, so that finishing a file overwrites in place

Tile = tuple[slice, slice]
Attributes = Mapping[str, str | float | int]
Table = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Named:
    """What a named point is.

    Attributes:
        label: Θ with what tells it from others.
        role: "origin", "checkpoint", "quantized" or "other".
        what: the model reference or the quantizer behind it.
    """

    label: str
    role: str = "other"
    what: str = ""


@dataclass(frozen=True)
class Layout:
    """What a new file holds besides losses.

    Attributes:
        plane: gives the coordinates of the named points.
        alpha, beta: the grid lines.
        profile: positions t along the line from the first named point (t = 0) to the last (t = 1).
        points: what each named point is.
        attributes: what the job wants to be told of the run; strings and numbers.
        tables: columns by name, by table.
        key: identity of all inputs; a file with another key is another slice.
        rows: evaluations off the grid that there must be room for.
    """

    plane: Plane
    alpha: np.ndarray
    beta: np.ndarray
    profile: np.ndarray
    points: Mapping[str, Named]
    attributes: Attributes
    tables: Mapping[str, Table]
    key: str
    rows: int = 0


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
    file.attrs["mixed"] = np.uint8(0)
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
    file["evaluated"] = np.zeros(shape, dtype=np.uint8)
    for dataset in (file["loss"], file["done"], file["evaluated"]):
        dataset.dims[0].attach_scale(file["alpha"])
        dataset.dims[1].attach_scale(file["beta"])
    for name, place in layout.plane.points.items():
        group = file.create_group(f"points/{name}")
        group.attrs.update(asdict(layout.points[name]))
        group.attrs.update({"alpha": place.alpha, "beta": place.beta, "residual": place.residual})
        group.attrs.update({"distance": place.distance, "raw": place.raw})
        group["loss"], group["done"] = math.nan, np.uint8(0)
    profile = file.create_group("profile")
    profile["t"] = layout.profile
    profile["loss"] = np.full(len(layout.profile), np.nan)
    profile["done"] = np.zeros(len(layout.profile), dtype=np.uint8)
    file["nodes/kind"] = np.zeros(layout.rows, dtype=np.uint8)
    for name in ("alpha", "beta", "loss"):
        file[f"nodes/{name}"] = np.full(layout.rows, np.nan)
    for table, columns in layout.tables.items():
        for column, values in columns.items():
            file[f"tables/{table}/{column}"] = list(values)
    for name, size in (("cells", shape), ("profile", len(layout.profile)), ("nodes", layout.rows)):
        file[f"sums/{name}"] = np.zeros(size, dtype=np.uint32)
    file["sums/points"] = np.zeros(len(layout.plane.points), dtype=np.uint32)
    hdf5.seal(file, FILLED)


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

    def go_on(self, environment: str) -> None:
        """Note whether the file is filled in another environment than it was begun in: bits may be of either."""
        from landscape.machine.environment import differences  # torch, which readers do without

        stored = self._file.attrs
        begun = stored.get("environment", environment)
        if "mixed" in stored and differences(json.loads(begun), json.loads(environment)):
            stored.modify("mixed", np.uint8(1))

    def pending_points(self) -> list[str]:
        """Named points without a loss, in the order they were given."""
        return [name for name in self._point_names() if not self._file[f"points/{name}/done"][()]]

    def pending_profile(self) -> list[tuple[int, float, float]]:
        """(index, α, β) of the profile's places without a loss."""
        if len(self._point_names()) < 2:
            return []
        done = self._file["profile/done"][:]
        return [(i, a, b) for i, (a, b) in enumerate(_line(self._file).tolist()) if not done[i]]

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

    def made(self) -> dict[tuple[str, float, float], float]:
        """The evaluations off the grid made so far: (kind, α, β) → loss."""
        nodes = self._file["nodes"]
        kinds = nodes["kind"][:]
        columns = (nodes[name][kinds > 0].tolist() for name in ("alpha", "beta", "loss"))
        words = (KINDS[kind] for kind in kinds[kinds > 0])
        return {(kind, a, b): loss for kind, a, b, loss in zip(words, *columns, strict=True)}

    def write_node(self, row: int, kind: str, alpha: float, beta: float, loss: float) -> None:
        """Store an evaluation off the grid in a row that is still empty."""
        with disk_errors(self.path):
            number = KINDS.index(kind)
            self._file["sums/nodes"][row] = sums(np.array([[number, alpha, beta, loss]]))[0]
            for name, value in (("alpha", alpha), ("beta", beta), ("loss", loss), ("kind", number)):
                self._file[f"nodes/{name}"][row] = value
            self._file.flush()

    def cell(self, row: int, column: int) -> float | None:
        """The loss of a cell; None where it is not evaluated yet."""
        return float(self._file["loss"][row, column]) if self._file["done"][row, column] else None

    def write_point(self, name: str, loss: float) -> None:
        """Store the loss at a named point."""
        self._write(f"points/{name}", (), loss, "points", self._point_names().index(name))

    def write_profile(self, index: int, loss: float) -> None:
        """Store one loss of the profile."""
        self._write("profile", index, loss, "profile", index)

    def write_tile(self, tile: Tile, losses: np.ndarray) -> None:
        """Store the evaluated losses of one tile."""
        self._file["evaluated"][tile] = 1
        self._write("", tile, losses, "cells", tile)

    def finish(self) -> None:
        """Mark the slice complete."""
        self._replace(lambda file: None)

    def finish_reconstructed(self, found: Reconstruction, reading: Mapping[str, float]) -> None:
        """Fill the cells and the profile from the surface, add what is known of it, and mark the slice complete."""
        self._replace(lambda file: _complete(file, found, reading))

    def _replace(self, change: Callable[[h5py.File], None]) -> None:
        """Put a complete file in the place of this one, unless it is complete."""
        if self._file.attrs["status"] == COMPLETE.encode():
            return
        with disk_errors(self.path):
            self._file.flush()
        image = io.BytesIO(self._file.id.get_file_image())  # copies of datasets would lose their dimension scales
        with h5py.File(image, "r+") as new:
            change(new)
            del new["sums"]
            new.attrs.modify("finished", np.bytes_(_now()))
            new.attrs.modify("status", np.bytes_(COMPLETE))
            hdf5.seal(new)
        self.close()
        write_whole(self.path, image.getvalue())
        self._file = h5py.File(self.path, "r+", locking=False)

    def _write(self, group: str, where: Any, values: Any, part: str, place: Any) -> None:
        """In this order: see the module's docstring."""
        of_each = sums(np.reshape(values, (-1, 1))).reshape(np.shape(values))
        with disk_errors(self.path):
            for name, spot, content in (
                (f"{group}/loss", where, values),
                (f"sums/{part}", place, of_each),
                (f"{group}/done", where, 1),
            ):
                self._file[f"/{name}"][spot] = content
                self._file.flush()

    def _point_names(self) -> list[str]:
        return json.loads(self._file.attrs["point_order"])  # type: ignore[no-any-return]

    def points(self) -> dict[str, tuple[float, float, float, float]]:
        """α, β, distance from the plane and loss (NaN until known) of every named point."""
        found = {}
        for name in self._point_names():
            group = self._file[f"points/{name}"]
            alpha, beta, residual = (float(group.attrs[a]) for a in ("alpha", "beta", "residual"))
            found[name] = (alpha, beta, residual, float(group["loss"][()]))
        return found


def _complete(file: h5py.File, found: Reconstruction, reading: Mapping[str, float]) -> None:
    alpha, beta = file["alpha"][:], file["beta"][:]
    loss, evaluated = on_grid(found.surface, alpha, beta), np.zeros((len(alpha), len(beta)), dtype=np.uint8)
    for patch in patches(found.surface):  # some of its cells were evaluated as nodes or named points
        cells = np.ix_(np.isin(alpha, patch.alpha), np.isin(beta, patch.beta))
        loss[cells], evaluated[cells] = patch.loss, 1
    file["loss"][...], file["evaluated"][...], file["done"][...] = loss, evaluated, 1
    places = _line(file)
    inside = ((places >= [alpha[0], beta[0]]) & (places <= [alpha[-1], beta[-1]])).all(axis=1)
    file["profile/loss"][inside] = found.surface(*places[inside].T)
    file["profile/done"][...] = inside
    used = file["nodes/kind"][:] > 0
    for name in list(file["nodes"]):
        values = file[f"nodes/{name}"][used]
        del file[f"nodes/{name}"]
        file[f"nodes/{name}"] = values
    for name, column in zip(("alpha", "beta", "loss", "reconstructed"), found.checked.T, strict=True):
        file[f"checks/{name}"] = column
    _write_plain(file.create_group("surface"), to_plain(found.surface))
    file.create_group("certificate").attrs.update(asdict(found.certificate))
    file.create_group("reading").attrs.update(reading)


def _line(file: h5py.File) -> np.ndarray:
    """(n, 2) the places of the profile: on the straight line from the first named point to the last."""
    names = json.loads(file.attrs["point_order"])
    first, last = (
        np.array([file[f"points/{name}"].attrs[axis] for axis in ("alpha", "beta")]) for name in (names[0], names[-1])
    )
    return np.asarray(first + file["profile/t"][:][:, None] * (last - first))


def _write_plain(group: h5py.Group, plain: Mapping[str, Any]) -> None:
    """Nested dictionaries as groups, lists as datasets, numbers as attributes."""
    for name, value in plain.items():
        if isinstance(value, Mapping):
            _write_plain(group.create_group(name), value)
        elif isinstance(value, list):
            group[name] = np.array(value, dtype=np.float64)
        else:
            group.attrs[name] = value


def check_is_slice(path: Path) -> str:
    """The key of the slice at `path`.

    Raises:
        StoreError: not there, not HDF5, truncated, damaged, or of another schema.
    """
    with opened(path) as (_, attributes):
        return str(attributes["key"])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
