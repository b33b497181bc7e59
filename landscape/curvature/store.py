"""The HDF5 file of a measurement: a group per part, replaced as a whole whenever a part is finished.

    /                         attributes: schema, kind, status, created, finished, key, and what the job adds
    /eigenvalues/top|bottom   values, residuals, converged; attributes missed, unseen, products, draft (worth so many
                              products more), precision, seconds
    /trace                    samples; attributes value, standard_error, reached, method, rounds, disagreement
    /trace/layers             name of a tensor, parameters, value, standard_error
    /density                  nodes, weights (probes, steps); points, density, standard_error; attribute n
    /direction                attributes length, slope, quadratic, predicted, actual; layers/: name, slope, quadratic

Arrays are datasets, single numbers and words attributes. Values come with their errors or residuals, never without.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from landscape.errors import StoreError
from landscape.files import write_whole

SCHEMA, KIND = 1, "sharpness"
RUNNING, COMPLETE = "running", "complete"

Section = Mapping[str, Any]


@dataclass(frozen=True)
class StoredSharpness:
    """The content of the file: what it says of itself, and its parts by name ("eigenvalues/top", "trace", …)."""

    attributes: dict[str, Any]
    sections: dict[str, dict[str, Any]]

    @property
    def complete(self) -> bool:
        """Whether every part that was asked for is there."""
        return bool(self.attributes["status"] == COMPLETE)


def write(path: Path, attributes: Mapping[str, Any], sections: Mapping[str, Section], complete: bool) -> None:
    """Replace the file at `path`.

    Raises:
        StoreError: the disk is full, or the place cannot be written.
    """
    memory = io.BytesIO()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with h5py.File(memory, "w") as file:
        file.attrs.update({"schema": SCHEMA, "kind": KIND, "status": COMPLETE if complete else RUNNING})
        file.attrs.update({"created": attributes.get("created", now), "finished": now if complete else ""})
        file.attrs.update({name: value for name, value in attributes.items() if name not in file.attrs})
        for place, section in sections.items():
            group = file.require_group(place)
            for name, value in section.items():
                if isinstance(value, np.ndarray) and value.dtype.kind in "US":
                    group.create_dataset(name, data=value.astype(object), dtype=h5py.string_dtype())
                elif isinstance(value, np.ndarray):
                    group[name] = value
                else:
                    group.attrs[name] = value
    write_whole(path, memory.getvalue())


def read(path: Path) -> StoredSharpness:
    """The file at `path`.

    Raises:
        StoreError: not such a file, of another schema, or damaged.
    """
    try:
        with h5py.File(path, "r") as file:
            attributes = {name: _plain(value) for name, value in file.attrs.items()}
            if attributes.get("kind") != KIND:
                raise StoreError(f"{path}: not a file of curvature; expected one that `landscape sharpness` wrote")
            if attributes.get("schema") != SCHEMA:
                raise StoreError(f"{path}: schema {attributes.get('schema')}, this version reads {SCHEMA}")
            sections: dict[str, dict[str, Any]] = {}

            def visit(name: str, item: Any) -> None:
                if isinstance(item, h5py.Dataset):
                    value = item.asstr()[()] if h5py.check_string_dtype(item.dtype) else item[()]
                    place, _, field = name.rpartition("/")
                    sections.setdefault(place, {})[field] = value
                else:
                    sections.setdefault(name, {}).update({k: _plain(v) for k, v in item.attrs.items()})

            file.visititems(visit)
    except (OSError, KeyError, ValueError) as error:
        if not path.exists():
            raise StoreError(f"{path}: no such file") from error
        raise StoreError(f"{path}: damaged ({error}); use --overwrite to measure again") from error
    for name in ("config", "versions"):
        attributes[name] = json.loads(attributes.get(name, "{}"))
    return StoredSharpness(attributes, {name: section for name, section in sections.items() if section})


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
