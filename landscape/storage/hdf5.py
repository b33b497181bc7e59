"""HDF5 files read as a stranger's: nothing beyond the file, and no memory for what it only claims to hold.

HDF5 can name other files (external links, external storage, virtual datasets), hold one object in many places, and
claim any size for what it does not hold or holds compressed. The files of this suite do none of that: every object is
in one place, and every dataset lies in one piece, as large as it says. A digest over its content tells whether it is
still what was written.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from landscape.errors import StoreError
from landscape.storage.files import reading
from landscape.storage.hdf5_bytes import check_collections, lengths, lengths_of_attributes

_IN_ONE_PIECE = (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS)
DIGEST, SEAL = "digest", "seal"
_WHEN_AND_WHERE = ("created", "finished", "environment")
_APART = {DIGEST, SEAL, *_WHEN_AND_WHERE, "mixed"}
_APART |= {"DIMENSION_LIST", "REFERENCE_LIST"}  # addresses of scales
_KINDS = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.ENUM, h5py.h5t.STRING)
_WIDEST = 1 << 16  # bytes of a string of one length: no attribute is longer
_LARGEST = 1 << 31  # bytes of a file: a picture of 10,000 by 10,000 cells has 1 GB


@contextmanager
def opened(path: Path, todo: str) -> Iterator[h5py.File]:
    """The file at `path` for reading, also while another process fills it.

    Whatever goes wrong within ends in one line; `todo` is its last part, what a person can do about it.

    Raises:
        StoreError: not there, not HDF5, or damaged; it holds or claims what no file of this suite does.
    """
    with reading(path, todo):
        content = _bytes(path)
        try:
            file = h5py.File(path, "r", locking=False)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(f"{path}: not a whole HDF5 file (truncated, or something else); {todo}") from error
        with file:
            check_collections(content)
            _check(file, content)
            yield file


def attributes(item: Any) -> dict[str, Any]:
    """The attributes of a group or dataset as words, numbers and short lists.

    Raises:
        ValueError: one that is neither, or no UTF-8.
    """
    return {name: _plain(name, item.attrs) for name in _names(item)}


def _names(item: Any) -> list[str]:
    """Of the attributes. h5py's own loop asks by a callback, and of Ctrl-C within that it makes a `SystemError`."""
    return [h5py.h5a.open(item.id, index=place).name.decode() for place in range(len(item.attrs))]


def array(dataset: Any) -> np.ndarray:
    """All of a dataset, strings as an array of objects.

    Raises:
        ValueError: something else than numbers, truth values and strings.
    """
    if not isinstance(dataset, h5py.Dataset):
        raise ValueError(f"{getattr(dataset, 'name', dataset)} is no dataset")
    if h5py.check_string_dtype(dataset.dtype) is None:
        if dataset.dtype.kind not in "biuf":
            raise ValueError(f"{dataset.name} holds {dataset.dtype}")
        return np.asarray(dataset[()])
    if len(dataset.shape) != 1:
        raise ValueError(f"{dataset.name} has the shape {dataset.shape}")
    return np.array([_text(each, dataset.name) for each in dataset[()]], dtype=object)


def _bytes(path: Path) -> bytes:
    """All of the file, to be looked at before HDF5 does."""
    if path.exists() and not (path.is_file() and path.stat().st_size <= _LARGEST):
        raise ValueError("no file, or larger than any of this suite")
    return path.read_bytes()


def _check(file: h5py.File, content: bytes) -> None:
    """Raise `ValueError` for what the module's docstring rules out."""
    seen, claimed, groups = {h5py.h5o.get_info(file.id).addr}, 0, [file["/"].id]
    told = 0
    _check_attributes(groups[0])
    while groups:
        group = groups.pop()
        for name in group:
            if group.links.get_info(name).type != h5py.h5l.TYPE_HARD:
                raise ValueError(f"{name.decode(errors='replace')} leads elsewhere")
            item = h5py.h5o.open(group, name)
            if (address := h5py.h5o.get_info(item).addr) in seen:
                raise ValueError(f"{name.decode(errors='replace')} is in two places")
            seen.add(address)
            if isinstance(item, h5py.h5g.GroupID):
                groups.append(item)
            elif isinstance(item, h5py.h5d.DatasetID):
                claimed += _claimed(item, name.decode(errors="replace"))
                if item.shape and item.get_type().get_class() == h5py.h5t.STRING and item.get_type().is_variable_str():
                    told += lengths(content, item.get_offset() or 0, math.prod(item.shape))
            else:
                raise ValueError(f"{name.decode(errors='replace')} is neither group nor dataset")
            _check_attributes(item)
    told += sum(lengths_of_attributes(content, address) for address in seen)
    if claimed > len(content) or told > len(content):
        raise ValueError(f"it claims {claimed} bytes of numbers and {told} of letters, and has {len(content)}")


def _claimed(dataset: Any, name: str) -> int:
    """Bytes of a dataset, all of which are there."""
    if dataset.get_space().get_simple_extent_type() == h5py.h5s.NULL:
        raise ValueError(f"{name} has no shape")
    made = dataset.get_create_plist()
    if made.get_layout() not in _IN_ONE_PIECE or made.get_nfilters() or made.get_external_count():
        raise ValueError(f"{name} is in pieces, compressed or elsewhere")
    _check_type(dataset.get_type(), name)
    claimed = math.prod(dataset.shape) * int(dataset.get_type().get_size())
    if claimed > dataset.get_storage_size():
        raise ValueError(f"{name} claims {claimed} bytes and holds {dataset.get_storage_size()}")
    return claimed


def _check_type(kind: Any, name: str) -> None:
    """Raise `ValueError` for what is neither number nor string, or a number of more bytes than there are."""
    if kind.get_class() not in _KINDS or kind.get_size() > (_WIDEST if kind.get_class() == h5py.h5t.STRING else 16):
        raise ValueError(f"{name} is of no type of ours")


def _check_attributes(item: Any) -> None:
    """Raise `ValueError` for an odd type, or many strings, each of which may be as long as the file."""
    for place in range(h5py.h5a.get_num_attrs(item)):
        about = h5py.h5a.open(item, index=place)
        name, kind = about.name.decode(errors="replace"), about.get_type().get_class()
        if name not in _APART:
            _check_type(about.get_type(), name)
        if about.shape and kind in (h5py.h5t.STRING, h5py.h5t.VLEN) and name not in _APART:
            raise ValueError(f"attribute {name} is a list of strings")


def _plain(name: str, attrs: Any) -> Any:
    about = attrs.get_id(name)
    if h5py.check_string_dtype(about.dtype) is not None:
        if about.shape != ():
            raise ValueError(f"attribute {name} is a list of strings")
        value = attrs[name]
        return _text(value, name).strip() if isinstance(value, bytes) else _text(value, name)  # filled up with blanks
    if about.dtype.kind not in "biuf" or about.shape is None:
        raise ValueError(f"attribute {name} is neither text nor number")
    value = attrs[name]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _text(value: Any, name: str) -> str:
    """Raise `ValueError` where it is no UTF-8, which h5py lets through."""
    text = value.decode() if isinstance(value, bytes) else str(value)
    if "\0" in text:
        raise ValueError(f"{name} holds a zero byte")
    text.encode()
    return text


def digest(file: h5py.File, leave_out: re.Pattern[str] | None = None) -> str:
    """SHA-256 over attributes and datasets by name, but for times, the environment, and datasets that match.

    Two files that were made of the same inputs have the same.
    """
    found = hashlib.sha256()

    def add(name: str, value: Any) -> None:
        values = np.asarray(value)
        content = (
            values.tobytes() if values.dtype.kind != "O" else repr([text.encode() for text in values.tolist()]).encode()
        )
        found.update(f"{name} {values.dtype} {values.shape} {len(content)} ".encode() + content)

    def visit(name: str, item: Any) -> None:
        for key in sorted(set(_names(item)) - _APART):
            add(f"{name}@{key}", item.attrs[key])
        if isinstance(item, h5py.Dataset) and not (leave_out and leave_out.fullmatch(name)):
            add(name, array(item))

    visit("", file)
    file.visititems(visit)
    return found.hexdigest()


def seal(file: h5py.File, leave_out: re.Pattern[str] | None = None) -> None:
    """Write down what the file holds, so that a change can be told: the digest, and one over it and the rest."""
    file.attrs[DIGEST] = digest(file, leave_out)
    file.attrs[SEAL] = _sealed(file, leave_out is None)


def check_seal(file: h5py.File, leave_out: re.Pattern[str] | None = None) -> None:
    """Raise `ValueError` where the file does not hold what it was sealed with."""
    if file.attrs.get(DIGEST) != digest(file, leave_out) or file.attrs.get(SEAL) != _sealed(file, leave_out is None):
        raise ValueError("its content is not what was written")


def _sealed(file: h5py.File, whole: bool) -> str:
    """Over the digest and what it leaves out; whether it is mixed may change as long as it is not whole."""
    rest = [repr(file.attrs.get(name)) for name in (DIGEST, *_WHEN_AND_WHERE, *(("mixed",) if whole else ()))]
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()
