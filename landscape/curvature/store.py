"""The HDF5 file of a measurement: a group per part, replaced as a whole whenever a part is finished.

    /                         attributes: schema, kind, status, created, finished, key, a digest over all else, and what
                              the job adds
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
from landscape.storage import hdf5
from landscape.storage.files import write_whole

SCHEMA, KIND = 2, "sharpness"
READABLE = (1, SCHEMA)  # files of schema 1 have no digest
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
        hdf5.seal(file)
    write_whole(path, memory.getvalue())


def read(path: str | Path) -> StoredSharpness:
    """The file at `path`.

    Raises:
        StoreError: not such a file, of another schema, or damaged.
    """
    with hdf5.opened(Path(path), "use --overwrite to measure again") as file:
        attributes = hdf5.attributes(file)
        if attributes.get("kind") != KIND:
            raise StoreError(f"{path}: not a file of curvature; expected one that `landscape sharpness` wrote")
        if (schema := attributes.get("schema")) not in READABLE:
            raise StoreError(f"{path}: schema {schema}, this version reads {SCHEMA}")
        if schema == SCHEMA or hdf5.DIGEST in attributes:
            hdf5.check_seal(file)
        for name in (hdf5.DIGEST, hdf5.SEAL):  # of this content; another one gets its own
            attributes.pop(name, None)
        if not isinstance(attributes.get("status"), str):
            raise ValueError("no status")
        for name in ("config", "versions", "environment"):
            attributes[name] = json.loads(attributes.get(name, "{}"))
            if not isinstance(attributes[name], dict):
                raise ValueError(f"{name} is a {type(attributes[name]).__name__}")
        sections: dict[str, dict[str, Any]] = {}

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                place, _, field = name.rpartition("/")
                sections.setdefault(place, {})[field] = hdf5.array(item)
            else:
                sections.setdefault(name, {}).update(hdf5.attributes(item))

        file.visititems(visit)
    return StoredSharpness(attributes, {name: section for name, section in sections.items() if section})
