"""Files that are whole or not there: locks, writing under a temporary name, what a disk may refuse, what is damaged."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import filelock

from landscape.errors import LandscapeError, StoreError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_TAKEN = (errno.EISDIR, errno.EEXIST)  # a directory where the file goes, a file where a directory goes


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` at `path`, all or nothing; directories on the way are made.

    Raises:
        StoreError: the disk is full, or the place cannot be written.
    """
    with writing_whole(path) as file:
        file.write(content)


@contextmanager
def writing_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that is at `path` as soon as all went well; directories on the way are made.

    Raises:
        StoreError: the disk is full, or the place cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                yield file
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
            held = filelock.FileLock(own, timeout=0).acquire()
        with held:
            try:
                yield
            finally:  # contenders look whether the file they locked still has a name
                with suppress(OSError):  # the disk may have become one that cannot be written
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
def turn(path: Path) -> Iterator[None]:
    """Wait until nobody else has the turn at `path`, however long that takes.

    Raises:
        StoreError: the directory cannot be written.
    """
    own = path.with_name(f".{path.name}.turn")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(own):
            yield


def on_disk(name: str) -> Path | None:
    """The path that `name` says, `~` understood; None where nothing lies there, or it is no path."""
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, nobody's home, a zero byte
        return None


@contextmanager
def reading(path: Path, todo: str) -> Iterator[None]:
    """Turn whatever a library raises of a damaged file into one line about `path`; `todo` says what to do about it.

    Raises:
        StoreError: not there, damaged, or larger than the memory.
    """
    try:
        yield
    except LandscapeError:
        raise
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file") from error
    except PermissionError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); ask its owner") from error
    except MemoryError as error:
        raise StoreError(f"{path}: too large for the memory there is") from error
    except Exception as error:  # each library has its own kinds, and each means that this file is not what it was
        said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise StoreError(f"{path}: damaged ({said}); {todo}") from error


@contextmanager
def disk_errors(path: Path, option: str = "--out") -> Iterator[None]:
    """Turn the system's refusals to write into one line about `path`."""
    try:
        yield
    except LandscapeError:
        raise
    except Exception as error:  # HDF5, safetensors and tokenizers tell the system's number in words
        text = str(error)
        told = re.search(r"errno = (\d+),|\(os error (\d+)\)", text)
        code = error.errno if isinstance(error, OSError) and error.errno else int(told[1] or told[2]) if told else 0
        if code in _FULL:
            raise StoreError(f"{path}: the disk is full; free some space and run the same command again") from error
        if code in (*_REFUSED, *_TAKEN):
            raise StoreError(
                f"{path}: cannot be written ({os.strerror(code)}); name another place with {option}"
            ) from error
        raise
