"""Send the log to a tracker; trackio has the interface of W&B."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from landscape.errors import MissingExtraError


def require(name: str | None) -> None:
    """Raise `MissingExtraError` where the tracker is not installed: before the work, not after it."""
    if name is not None and find_spec(name) is None:
        raise MissingExtraError(name, "track", f"--tracker {name}")


@contextmanager
def tracking(name: str | None, run: str, recipe: Mapping[str, Any]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that takes rows of the log, while the tracker's run is open."""
    if name is None:
        yield lambda row: None
        return
    tracker = import_module(name)
    tracker.init(project="landscape", name=run, config=dict(recipe))
    try:
        yield lambda row: tracker.log(row, step=row["step"])
    finally:
        tracker.finish()
