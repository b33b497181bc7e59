"""Send the log to a tracker; trackio has the interface of W&B."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from landscape.errors import MissingExtraError


@contextmanager
def tracking(name: str | None, run: str, recipe: Mapping[str, Any]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that takes rows of the log, while the tracker's run is open.

    Raises:
        MissingExtraError: the tracker is not installed.
    """
    if name is None:
        yield lambda row: None
        return
    try:
        tracker = import_module(name)
    except ImportError as error:
        raise MissingExtraError(name, "track", f"--tracker {name}") from error
    tracker.init(project="landscape", name=run, config=dict(recipe))
    try:
        yield lambda row: tracker.log(row, step=row["step"])
    finally:
        tracker.finish()
