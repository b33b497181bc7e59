"""Whether files still hold what was written: SHA-256 within a JSON file, and of all the files in a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

DIGEST = "digest"
SUMS = "SHA256SUMS"  # as sha256sum writes it, and `sha256sum -c` reads it


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content`, which goes into a JSON file, and the digest of it."""
    rest = {name: value for name, value in content.items() if name != DIGEST}
    return {**rest, DIGEST: _of(rest)}


def check_digest(content: Any) -> None:
    """Raise `ValueError` where `content`, out of a JSON file, is not what its digest was made of."""
    if not isinstance(content, dict):
        raise ValueError("no mapping")
    if with_digest(content)[DIGEST] != content.get(DIGEST):
        raise ValueError("its content is not what was written")


def _of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def sums(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in `folder`, by name; those in folders within it are not looked at."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    return {path.name: of_file(path) for path in files}


def write_sums(folder: Path) -> None:
    """Write down what the files in `folder` hold."""
    lines = [f"{digest}  {name}\n" for name, digest in sums(folder).items()]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def read_sums(folder: Path) -> dict[str, str]:
    """What was written down of the files in `folder`; empty where nothing was.

    Raises:
        ValueError: it is damaged.
    """
    path = folder / SUMS
    rows = [line.partition("  ") for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    if any(len(digest) != 64 or not between or "/" in name for digest, between, name in rows):
        raise ValueError(f"{SUMS} is damaged")
    return {name: digest for digest, _, name in rows}


def broken(folder: Path, wanted: Mapping[str, str]) -> str | None:
    """The first file that is gone or not what `wanted` says, by name; None where all are."""
    return next((name for name, digest in wanted.items() if not _is(folder / name, digest)), None)


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and of_file(path) == digest


def of_file(path: Path) -> str:
    """SHA-256 of the file at `path`; read once as long as nobody writes to it."""
    about = path.stat()
    return _read(path.resolve(), about.st_size, about.st_mtime_ns, about.st_ino)


@lru_cache(maxsize=4096)
def _read(path: Path, size: int, time: int, inode: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
