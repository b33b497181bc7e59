"""Read a slice back: arrays and words, no model and no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from landscape.slices.store import COMPLETE, check_is_slice


@dataclass(frozen=True)
class StoredPoint:
    """A named point: label, orthonormal coordinates, distances, and the loss evaluated at the point itself."""

    name: str
    label: str
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
        alpha, beta: float64 grid lines; loss, done: (alpha, beta).
        points: in the order they were named, the origin first.
        profile: (t, loss) along the line from the first named point to the last.
        attributes: what the file says of itself; config and versions as dictionaries.
        tables: columns by name, by table.
    """

    alpha: np.ndarray
    beta: np.ndarray
    loss: np.ndarray
    done: np.ndarray
    points: tuple[StoredPoint, ...]
    profile: tuple[np.ndarray, np.ndarray]
    attributes: dict[str, Any]
    tables: dict[str, dict[str, np.ndarray]]

    @property
    def complete(self) -> bool:
        """Whether every cell has its loss."""
        return bool(self.attributes["status"] == COMPLETE)

    def point(self, name: str) -> StoredPoint:
        """The point called `name`."""
        return next(point for point in self.points if point.name == name)

    def at(self, alpha: float, beta: float) -> float:
        """The loss at the cell nearest to (α, β)."""
        return float(self.loss[np.abs(self.alpha - alpha).argmin(), np.abs(self.beta - beta).argmin()])


def read(path: str | Path) -> StoredSlice:
    """The slice at `path`, whether or not it is complete, also while another process fills it.

    Raises:
        StoreError: not a slice of this schema.
    """
    path = Path(path)
    check_is_slice(path)
    with h5py.File(path, "r", locking=False) as file:
        attributes = {name: _plain(value) for name, value in file.attrs.items()}
        for name in ("config", "versions", "point_order"):
            if name in attributes:
                attributes[name] = json.loads(attributes[name])
        points = tuple(_point(file[f"points/{name}"], name) for name in attributes["point_order"])
        tables = {
            name: {column: _column(values) for column, values in table.items()}
            for name, table in file.get("tables", {}).items()
        }
        return StoredSlice(
            file["alpha"][:],
            file["beta"][:],
            file["loss"][:],
            file["done"][:].astype(bool),
            points,
            (file["profile/t"][:], file["profile/loss"][:]),
            attributes,
            tables,
        )


def _point(group: h5py.Group, name: str) -> StoredPoint:
    a = group.attrs
    return StoredPoint(
        name,
        label=str(a["label"]),
        alpha=float(a["alpha"]),
        beta=float(a["beta"]),
        residual=float(a["residual"]),
        distance=float(a["distance"]),
        raw=(float(a["raw"][0]), float(a["raw"][1])),
        loss=float(group["loss"][()]),
    )


def _column(values: h5py.Dataset) -> np.ndarray:
    is_text = h5py.check_string_dtype(values.dtype) is not None
    return np.asarray(values.asstr()[:] if is_text else values[:])


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode().strip()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
