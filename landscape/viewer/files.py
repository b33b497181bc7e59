"""Write a file whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from landscape.errors import StoreError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; becomes `path` if all went well, and goes away if not.

    Raises:
        StoreError: the system refuses to write there.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); name another place") from error
    finally:
        partial.unlink(missing_ok=True)
