"""What HDF5 2.0 believes of a file and should not: lengths of strings, and of the heaps that hold them.

A string of any length is stored as a length, the place of a collection, and a number in it. HDF5 makes room for the
length before it looks into the collection, and never gets past an object of a collection that has no length. Both are
read here from the bytes, as the "HDF5 File Format Specification" lays them out, before HDF5 does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_COLLECTION = b"GCOL\x01"
_ATTRIBUTE, _CONTINUATION, _DATATYPE = 0x0C, 0x10, 0x03
_VARIABLE = 9  # the class of what has any length
_STRING = 16  # bytes of a length, a place and a number


def check_collections(content: bytes) -> None:
    """Raise `ValueError` where a collection of strings is larger than the file, or has no end.

    A collection is its signature, its size, and objects: number, references, size, and content filled up to eight
    bytes; number 0 is what is free, and its size counts these sixteen bytes too.
    """
    steps, at = len(content), content.find(_COLLECTION)
    while 0 <= at <= len(content) - 16:
        (size,) = struct.unpack_from("<Q", content, at + 8)
        here, end = at + 16, at + size
        if end > len(content):
            raise ValueError("a heap larger than the file")
        while end - here >= 16:
            number, length = struct.unpack_from("<H6xQ", content, here)
            needed = 16 + (length + 7) // 8 * 8 if number else length
            steps -= 1
            if needed < 16 or here + needed > end or not steps:
                raise ValueError("a heap that has no end")
            here += needed
        at = content.find(_COLLECTION, at + 1)  # within this one, too: what it holds may be one to another part


def lengths_of_attributes(content: bytes, at: int) -> int:
    """Bytes that the strings in the attributes of the object at `at` claim.

    Raises:
        ValueError: no object header of the first version, as HDF5 writes it for us; or a damaged one.
    """
    found = 0
    for kind, start, length in _messages(content, at):
        if kind == _DATATYPE:
            _check_base(content, start)
        if kind == _ATTRIBUTE:
            version, flags, name, datatype, dataspace = struct.unpack_from("<BBHHH", content, start)
            if version not in (1, 2, 3) or (flags and version > 1):
                raise ValueError("an attribute of another version")
            fill = 8 if version == 1 else 1  # to which the first one fills up its parts
            place = start + (9 if version == 3 else 8) + _up(name, fill)
            values = place + _up(datatype, fill) + _up(dataspace, fill)
            if place < start + length and _check_base(content, place):
                found += lengths(content, values, (start + length - values) // _STRING)
    return found


def lengths(content: bytes, at: int, count: int) -> int:
    """Bytes that `count` strings, described from `at` on, claim."""
    if not 0 <= at <= len(content) - _STRING * count:
        raise ValueError("strings beyond the end")
    return sum(length for length, _, _ in struct.iter_unpack("<IQI", content[at : at + _STRING * count]))


def _messages(content: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """(kind, start, length) of the parts of an object header and of what continues it elsewhere."""
    version, size = struct.unpack_from("<B7xI", content, at)
    if version != 1:
        raise ValueError("an object header of another version")
    blocks, left = [(at + 16, size)], len(content)
    while blocks:
        here, size = blocks.pop()
        end = here + size
        while end - here >= 8:
            kind, length = struct.unpack_from("<HH", content, here)
            start, left = here + 8, left - 8
            if start + length > min(end, len(content)) or left < 0:
                raise ValueError("an object header that has no end")
            if kind == _CONTINUATION:
                blocks.append(struct.unpack_from("<QQ", content, start))
            yield kind, start, length
            here = start + length


def _check_base(content: bytes, at: int) -> bool:
    """Whether the datatype at `at` is one of any length; then it must be one of single bytes."""
    is_variable = content[at] & 0x0F == _VARIABLE
    if is_variable and content[at + 1] & 0x0F == 1 and struct.unpack_from("<I", content, at + 12)[0] != 1:
        raise ValueError("a string of letters of several bytes")
    return is_variable


def _up(size: int, fill: int) -> int:
    return -(-size // fill) * fill
