"""Files that are whole or not there: locks, writing under a temporary name, and what a disk may refuse."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

from landscape.errors import StoreError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_TAKEN = (errno.EISDIR, errno.EEXIST)  # a directory where the file goes, a file where a directory goes


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` at `path`, all or nothing; directories on the way are made.

    Raises:
        StoreError: the disk is full, or the place cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            partial.replace(path)
        finally:  # within: where nothing can be written, nothing can be removed either
            partial.unlink(missing_ok=True)


@contextmanager
def lock(path: Path, option: str = "--out") -> Iterator[None]:
    """Hold the right to write `path`, which `option` named; readers need none. Folders made for it go if left empty.

    Raises:
        StoreError: another process holds it, or the directory cannot be written.
    """
    own = path.with_name(f".{path.name}.lock")
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        with disk_errors(path, option):
            path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(own, timeout=0):
            try:
                yield
            finally:  # contenders look whether the file they locked still has a name
                own.unlink(missing_ok=True)
    except filelock.Timeout as error:
        if not own.exists():  # no file can be made there, which looks the same from within
            raise StoreError(f"{path}: cannot be written; name another place with {option}") from error
        raise StoreError(
            f"{path}: being written by another process; wait for it, or name another place with {option}"
        ) from error
    finally:
        with suppress(OSError):  # what was written, here or by another, stays
            for folder in made:
                folder.rmdir()


@contextmanager
def disk_errors(path: Path, option: str = "--out") -> Iterator[None]:
    """Turn the system's refusals to write into one line about `path`."""
    try:
        yield
    except OSError as error:
        text = str(error)
        if error.errno in _FULL or any(f"errno = {code}," in text for code in _FULL):
            raise StoreError(f"{path}: the disk is full; free some space and run the same command again") from error
        if error.errno in (*_REFUSED, *_TAKEN):
            raise StoreError(
                f"{path}: cannot be written ({error.strerror}); name another place with {option}"
            ) from error
        raise
