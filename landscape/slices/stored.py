"""Read a slice back: arrays and words, no model and no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from landscape.slices.axes import Bounds
from landscape.slices.opened import COMPLETE, opened
from landscape.slices.reconstruct import Certificate
from landscape.slices.samples import CHECK, NODE
from landscape.slices.store import KINDS
from landscape.slices.surface import Surface, from_plain, on_grid
from landscape.storage.hdf5 import array
from landscape.storage.hdf5 import attributes as plain_attributes


@dataclass(frozen=True)
class StoredPoint:
    """A named point: label, orthonormal coordinates, distances, and the loss evaluated at the point itself.

    Attributes:
        role: what kind of weights these are: "origin", "checkpoint", "quantized" or "other".
        what: the model reference or the quantizer behind it, in words.
    """

    name: str
    label: str
    role: str
    what: str
    alpha: float
    beta: float
    residual: float
    distance: float
    raw: tuple[float, float]
    loss: float


@dataclass(frozen=True)
class StoredSlice:
    """The content of a slice file.

    Attributes:
        alpha, beta: float64 grid lines; β has a single one where the slice is a line.
        loss, done: (alpha, beta).
        evaluated: (alpha, beta) where the loss was evaluated, not reconstructed.
        points: in the order they were named, the origin first.
        profile: (t, loss) along the line from the first named point to the last.
        attributes: what the file says of itself; config and versions as dictionaries.
        tables: columns by name, by table.
        nodes: {"node" or "check": (n, 3)}: α, β and loss of the evaluations off the grid, so far.
        surface: the loss at any place; None where every cell was evaluated, or the reconstruction is not finished.
        certificate: how far the surface can be trusted.
        checks: (n, 4) α, β, loss, reconstructed loss at the check points.
        reading: what the slice says, by name; empty where there is no surface.
    """

    alpha: np.ndarray
    beta: np.ndarray
    loss: np.ndarray
    done: np.ndarray
    evaluated: np.ndarray
    points: tuple[StoredPoint, ...]
    profile: tuple[np.ndarray, np.ndarray]
    attributes: dict[str, Any]
    tables: dict[str, dict[str, np.ndarray]]
    nodes: dict[str, np.ndarray]
    surface: Surface | None
    certificate: Certificate | None
    checks: np.ndarray
    reading: dict[str, float]

    @property
    def complete(self) -> bool:
        """Whether every cell has its loss."""
        return bool(self.attributes["status"] == COMPLETE)

    @property
    def bounds(self) -> Bounds:
        """The rectangle."""
        return Bounds((float(self.alpha[0]), float(self.alpha[-1])), (float(self.beta[0]), float(self.beta[-1])))

    @property
    def is_line(self) -> bool:
        """Whether the slice has one dimension, α."""
        return len(self.beta) == 1

    def point(self, name: str) -> StoredPoint:
        """The point called `name`."""
        return next(point for point in self.points if point.name == name)

    def at(self, alpha: float, beta: float) -> float:
        """The loss at (α, β): the surface's, or where there is none that of the nearest cell."""
        if self.surface is not None:
            return float(on_grid(self.surface, np.array([alpha]), np.array([beta]))[0, 0])
        return float(self.loss[np.abs(self.alpha - alpha).argmin(), np.abs(self.beta - beta).argmin()])


def read(path: str | Path) -> StoredSlice:
    """The slice at `path`, whether or not it is complete, also while another process fills it.

    Raises:
        StoreError: not a slice of this schema, or a damaged one.
    """
    with opened(Path(path)) as (file, attributes):
        done = file["done"][:].astype(bool)  # before the losses, which a writer stores before it says so
        points = tuple(_point(file[f"points/{name}"], name) for name in attributes["point_order"])
        tables = {
            name: {column: array(values) for column, values in table.items()}
            for name, table in file.get("tables", {}).items()
        }
        for name, table in tables.items():
            if any(column.shape != (len(next(iter(table.values()))),) for column in table.values()):
                raise ValueError(f"the columns of {name} differ in length")
        return StoredSlice(
            file["alpha"][:],
            file["beta"][:],
            file["loss"][:],
            done,
            file["evaluated"][:].astype(bool),
            points,
            (file["profile/t"][:], file["profile/loss"][:]),
            attributes,
            tables,
            _nodes(file["nodes"]),
            from_plain(_read_plain(file["surface"])) if "surface" in file else None,
            Certificate(**plain_attributes(file["certificate"])) if "certificate" in file else None,
            _columns(file["checks"], ("alpha", "beta", "loss", "reconstructed"))
            if "checks" in file
            else np.zeros((0, 4)),
            {name: float(value) for name, value in plain_attributes(file["reading"]).items()}
            if "reading" in file
            else {},
        )


def _nodes(group: h5py.Group) -> dict[str, np.ndarray]:
    kinds, rows = group["kind"][:], _columns(group, ("alpha", "beta", "loss"))
    return {kind: rows[kinds == KINDS.index(kind)] for kind in (NODE, CHECK)}


def _columns(group: h5py.Group, names: tuple[str, ...]) -> np.ndarray:
    return np.column_stack([array(group[name]) for name in names]).astype(np.float64)


def _read_plain(group: h5py.Group) -> dict[str, Any]:
    """What `SliceWriter.finish_reconstructed` wrote of a surface."""
    nested = {name: _read_plain(item) if isinstance(item, h5py.Group) else array(item) for name, item in group.items()}
    return {**plain_attributes(group), **nested}


def _point(group: h5py.Group, name: str) -> StoredPoint:
    a = plain_attributes(group)
    first, second = a["raw"]
    return StoredPoint(
        name,
        label=str(a["label"]),
        role=str(a["role"]),
        what=str(a["what"]),
        alpha=float(a["alpha"]),
        beta=float(a["beta"]),
        residual=float(a["residual"]),
        distance=float(a["distance"]),
        raw=(float(first), float(second)),
        loss=float(group["loss"][()]),
    )
