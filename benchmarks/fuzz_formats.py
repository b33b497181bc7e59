"""Damage to what a format says of itself: safetensors, arrays of numpy, Parquet, HDF5.

As `fuzz_mutations`: a seeded `random.Random` and the bytes of a whole file give those of a damaged one. Digests are
mostly made anew, as one would who means harm.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import struct
import zipfile
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

from fuzz_mutations import HUGE, NUMBERS, WORDS, changed_json, json_values
from landscape.slices.opened import FILLED, RUNNING
from landscape.storage import digests
from landscape.storage import hdf5 as store


def content(rng: random.Random, whole: bytes) -> bytes:
    """What an HDF5 file or a JSON file says."""
    return (hdf5 if whole.startswith(b"\x89HDF") else json_values)(rng, whole)


def safetensors_header(rng: random.Random, content: bytes) -> bytes:
    """A header that lies about shapes, places, dtypes or its own length."""
    size = struct.unpack("<Q", content[:8])[0]
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    if rng.random() < 0.3:
        name = rng.choice(list(header))
        header[rng.choice((name, "other", "../x"))] = header.pop(name)
    written = changed_json(rng, header).encode("utf-8", "surrogatepass")
    told = len(written) if rng.random() < 0.8 else rng.choice((*HUGE, len(written) + 1, len(written) - 1)) % (1 << 64)
    return struct.pack("<Q", told) + written + body


def arrays(rng: random.Random, content: bytes) -> bytes:
    """An .npz whose arrays are of another kind: pickled, empty, huge by their header, missing."""
    with np.load(io.BytesIO(content)) as file:
        found = dict(file)
    name, out = rng.choice(list(found)), io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for each, array in found.items():
            piece = io.BytesIO()
            np.lib.format.write_array(piece, array)
            raw = piece.getvalue()
            if each == name:
                way = rng.randrange(6)
                if way == 0:
                    continue
                if way == 1:
                    shape = str(array.shape).encode()
                    raw = raw.replace(shape, rng.choice((b"(1000000000000,)", b"(-1,)", b"()", b"(3, 3, 3)", b"[]")), 1)
                elif way == 2:
                    raw = raw.replace(b"'<f8'", rng.choice((b"'|O' ", b"'<c16", b"'|S9'", b"'<i4'")), 1)
                else:
                    piece = io.BytesIO()
                    odd = rng.choice((np.array(None, dtype=object), np.zeros(0), np.array("x"), np.zeros((2, 2), bool)))
                    np.lib.format.write_array(piece, odd, allow_pickle=True)
                    raw = piece.getvalue()
            file.writestr(f"{each}.npy", raw)
    return out.getvalue()


def parquet(rng: random.Random, content: bytes) -> bytes:
    """A table whose columns are missing, of another kind or longer; or that says other things of itself."""
    table = pq.read_table(io.BytesIO(content))
    about = dict(table.schema.metadata or {})
    name = rng.choice(table.column_names)
    place, way = table.column_names.index(name), rng.randrange(7)
    if way == 0:
        table = table.drop_columns([name])
    elif way == 1:
        table = table.rename_columns(
            [rng.choice((*WORDS[:1], "other")) if n == name else n for n in table.column_names]
        )
    elif way == 2:
        kind = rng.choice((pa.string(), pa.float64(), pa.int64(), pa.bool_(), pa.binary(), pa.list_(pa.int64())))
        table = table.set_column(place, name, pa.nulls(len(table), kind))
    elif way == 3:
        value = rng.choice((NUMBERS[7], 1e308, -1.0, "x", "A" * 9999, True, [1], b"\xff"))
        table = table.set_column(place, name, pa.array([value] * len(table)))
    elif way == 4:
        table = table.slice(0, rng.randrange(len(table) + 1))
    elif way == 5:
        some, rows = rng.choice(((table.column_names, 10**3), (table.column_names[:2], 2 * 10**6)))
        table = table.select(some).take(pa.array(np.zeros(rows, dtype=np.int64)))
    about[b"landscape"] = json_values(rng, about[b"landscape"]) if way == 6 else _undigested(about[b"landscape"])
    memory = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(about), memory)
    return memory.getvalue()


def _undigested(about: bytes) -> bytes:
    """As earlier versions wrote it, so that the content may be any."""
    return json.dumps({k: v for k, v in json.loads(about).items() if k not in (digests.DIGEST, "rows")}).encode()


def hdf5(rng: random.Random, content: bytes) -> bytes:
    """A whole HDF5 file with an object or an attribute that is missing, of another kind, huge, or leads elsewhere."""
    memory = io.BytesIO(content)
    with h5py.File(memory, "r+") as file:
        for _ in range(rng.choice((1, 1, 1, 2))):
            names: list[str] = []
            file.visit(names.append)
            with contextlib.suppress(
                ValueError, TypeError, KeyError, OSError, RuntimeError
            ):  # h5py writes not all of it
                at: Any = file[rng.choice((*names, "/"))]
                _attribute(rng, at) if rng.random() < 0.5 and len(at.attrs) else _object(rng, file, at.name)
        if store.DIGEST in file.attrs and rng.random() < 0.8:  # as one would who means harm
            with contextlib.suppress(Exception):
                _seal(file)
    return memory.getvalue()


def _seal(file: h5py.File) -> None:
    sizes: list[int] = []
    file.visititems(lambda name, item: sizes.append(item.size or 0) if isinstance(item, h5py.Dataset) else None)
    if sum(sizes) < 10**6:
        store.seal(file, FILLED if file.attrs["status"].strip() == RUNNING.encode() else None)


def _attribute(rng: random.Random, at: Any) -> None:
    name = rng.choice(list(at.attrs))
    if rng.random() < 0.15:
        del at.attrs[name]
    elif rng.random() < 0.1:
        at.attrs.create(name, np.frombuffer(b"\xff\xfe\0\xd8", "S4")[0], dtype=h5py.string_dtype("utf-8", 4))
    elif rng.random() < 0.1:
        at.attrs[name] = h5py.Empty(rng.choice(("f8", "S3")))
    elif isinstance(at.attrs[name], str) and at.attrs[name][:1] in "{[":
        at.attrs[name] = json_values(rng, at.attrs[name].encode()).decode("utf-8", "replace").replace("\0", "")
    else:
        odd = (*NUMBERS[:-1], *WORDS[:-1], [1, 2], [[0.5]], [], ["a", "b"], np.zeros(3000), b"\xff", True)
        value = rng.choice(odd)
        if isinstance(value, str):
            value = value.replace("\0", "").encode("utf-8", "replace").decode()
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            value = float(value)
        at.attrs[name] = value


def _object(rng: random.Random, file: h5py.File, name: str) -> None:
    if name == "/":
        name = "/" + rng.choice(list(file))
    parent, own, way = file[name].parent, name.rpartition("/")[2], rng.randrange(14)
    kept = parent[own]
    del parent[own]
    if way == 0:
        return
    if way == 1:
        parent[own] = h5py.SoftLink(rng.choice(("/", "/nothing", name, "/alpha")))
    elif way == 2:
        parent[own] = h5py.ExternalLink(rng.choice(("/etc/passwd", "other.h5", "s.h5")), "/")
    elif way == 3:
        parent[own] = parent if rng.random() < 0.5 else file["/"]
    elif way == 4:  # a claim without storage
        parent.create_dataset(own, shape=(rng.choice((10**6, 10**9, 10**13)),), dtype="f8", chunks=(1024,))
    elif way == 5:  # a claim that is kept, by a compressor
        parent.create_dataset(own, data=np.zeros(10**7 if rng.random() < 0.05 else 10**4), compression="gzip")
    elif way == 6:
        parent.create_dataset(own, shape=(10,), dtype="f8", external=[("/etc/passwd", 0, 80)])
    elif way == 7:
        layout = h5py.VirtualLayout(shape=(rng.choice((10, 10**9)),), dtype="f8")
        layout[:5] = h5py.VirtualSource("other.h5", "x", shape=(5,))
        parent.create_virtual_dataset(own, layout)
    elif way == 8:
        parent.create_group(own)
    elif way == 9:
        parent[own] = rng.choice(([b"\xff\xfe"], ["a", "b"], "word", [True], np.zeros(0), h5py.Empty("f8"), 1 + 2j))
    elif way == 10 and isinstance(kept, h5py.Dataset):
        parent[own] = kept[()].tolist() if kept.dtype.kind not in "OSV" else 3
    elif way == 11 and isinstance(kept, h5py.Dataset) and kept.shape:
        parent[own] = kept[: rng.randrange(len(kept) + 1)]
    elif way == 12 and isinstance(kept, h5py.Dataset) and kept.dtype.kind == "f":
        values = np.array(kept[()])
        values[...] = rng.choice((np.nan, np.inf, -1e308, 1e308, 0.0, 5e-324))
        parent[own] = values
    else:
        parent[own] = np.zeros(rng.choice(((), (1,), (3, 3), (2, 2, 2))), dtype=rng.choice(("f8", "i1", "f2", "?")))
