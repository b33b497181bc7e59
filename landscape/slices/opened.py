"""A slice file opened for reading: of this schema, with parts that fit together, and holding what was written.

A complete file has a digest over all of it. One that is being filled has a digest over what it was laid out with, and a
CRC-32 beside each evaluation, written before its `done` flag.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from landscape.errors import StoreError
from landscape.storage import hdf5

SCHEMA = 3
READABLE = (2, SCHEMA)  # files of schema 2 have no digest
RUNNING, COMPLETE = "running", "complete"
FILLED = re.compile(r"loss|done|evaluated|(profile|points/[^/]+)/(loss|done)|(nodes|sums)/.*")  # while it is running
_REMEDY = "delete it, or use --overwrite"
_JSON = {"config": dict, "versions": dict, "environment": dict, "point_order": list}
_WORDS = ("key", "status", "plane_fingerprint")


@contextmanager
def opened(path: Path) -> Iterator[tuple[h5py.File, dict[str, Any]]]:
    """The file and what it says of itself: attributes by name, those that are JSON parsed.

    Raises:
        StoreError: not there, no HDF5, truncated, of another schema, or with parts that do not fit together.
    """
    with hdf5.opened(path, _REMEDY) as file:
        attributes = hdf5.attributes(file)
        if (schema := attributes.get("schema")) not in READABLE or "key" not in attributes:
            raise StoreError(
                f"{path}: schema {schema}, this version reads {SCHEMA}; make it anew with --overwrite or another --out"
            )
        for name, kind in _JSON.items():
            if name in attributes or kind is list:
                attributes[name] = _parsed(attributes.get(name), name, kind)
        if odd := [name for name in _WORDS if not isinstance(attributes.get(name), str)]:
            raise ValueError(f"no {odd[0]}")
        _check_layout(file, attributes["point_order"])
        if schema == SCHEMA or hdf5.DIGEST in attributes:
            is_running = attributes["status"] == RUNNING
            hdf5.check_seal(file, FILLED if is_running else None)
            if is_running:
                _check_sums(file, attributes["point_order"])
        yield file, attributes


def sums(rows: np.ndarray) -> np.ndarray:
    """uint32 (n,) CRC-32 of each row of `rows`, float64 (n, k)."""
    return np.array([zlib.crc32(row.tobytes()) for row in np.asarray(rows, dtype=np.float64)], dtype=np.uint32)


def _check_sums(file: h5py.File, order: list[str]) -> None:
    """Raise `ValueError` where an evaluation is not the one that was stored.

    The writer may be at work: it writes losses, then sums, then flags, so they are read the other way round.
    """
    points = [file[f"points/{name}"] for name in order]
    parts = {
        "cells": ([file["done"]], [file["loss"]]),
        "profile": ([file["profile/done"]], [file["profile/loss"]]),
        "points": ([point["done"] for point in points], [point["loss"] for point in points]),
        "nodes": ([file["nodes/kind"]], [file[f"nodes/{name}"] for name in ("kind", "alpha", "beta", "loss")]),
    }
    for name, (flags, columns) in parts.items():
        done = np.concatenate([np.ravel(flag[()]) for flag in flags]) > 0
        stored = np.ravel(_part(file, f"sums/{name}")[()])
        values = [np.ravel(column[()]) for column in columns]
        rows = np.concatenate(values)[:, None] if name == "points" else np.column_stack(values)
        if len(stored) != len(done) or (sums(rows[done]) != stored[done]).any():
            raise ValueError(f"some {name} are not what was evaluated")
    if (file["evaluated"][()] < (file["done"][()] > 0)).any():
        raise ValueError("some cells are not what was evaluated")


def _parsed(text: Any, name: str, kind: type) -> Any:
    value = json.loads(str(text))
    if not isinstance(value, kind):
        raise ValueError(f"{name} is a {type(value).__name__}")
    return value


def _check_layout(file: h5py.File, order: list[Any]) -> None:
    """Raise `ValueError` where shapes disagree, a grid line is out of order, or a point is not there."""
    alpha, beta = (_numbers(file, name, 1)[:] for name in ("alpha", "beta"))
    for name, line in (("alpha", alpha), ("beta", beta)):
        if not len(line) or not np.isfinite(line).all() or (np.diff(line) <= 0).any():
            raise ValueError(f"{name} is no line of rising numbers")
    for name in ("loss", "done", "evaluated"):
        _fits(_numbers(file, name, 2), (len(alpha), len(beta)))
    for group, names in (("profile", ("t", "loss", "done")), ("nodes", ("kind", "alpha", "beta", "loss"))):
        columns = [_numbers(file, f"{group}/{name}", 1) for name in names]
        for column in columns:
            _fits(column, columns[0].shape)
    if not order or len({name for name in order if isinstance(name, str)}) < len(order):
        raise ValueError("point_order is no list of names")
    for name in order:
        for part in ("loss", "done"):
            _fits(_part(file, f"points/{name}/{part}"), ())
        place = hdf5.attributes(file[f"points/{name}"])
        if not all(isinstance(place.get(axis), int | float) for axis in ("alpha", "beta", "residual")):
            raise ValueError(f"the point {name} is in no place")


def _numbers(file: h5py.File, name: str, dimensions: int) -> Any:
    found = _part(file, name)
    if found.dtype.kind not in "biuf" or len(found.shape) != dimensions:
        raise ValueError(f"{name} is of type {found.dtype} and shape {found.shape}")
    return found


def _part(file: h5py.File, name: str) -> Any:
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise ValueError(f"no {name}")
    return found


def _fits(dataset: Any, shape: tuple[int, ...]) -> None:
    if dataset.shape != shape:
        raise ValueError(f"{dataset.name} has the shape {dataset.shape}, {shape} expected")
