"""What every job tells: how it goes on, and with which packages it was done."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Protocol


class Reporter(Protocol):
    """Hears how the job goes on."""

    def stage(self, name: str) -> Callable[[int, int], None]:
        """A new stage begins; the function returned takes (done, total)."""
        ...

    def say(self, text: str) -> None:
        """How the stage stands, in a few words, in the place of its name."""
        ...

    def note(self, text: str) -> None:
        """Something the user should know of this result."""
        ...


class Silent:
    """A reporter that says nothing."""

    def stage(self, name: str) -> Callable[[int, int], None]:
        """Ignore the stage and its progress."""
        return lambda done, total: None

    def say(self, text: str) -> None:
        """Ignore the words."""

    def note(self, text: str) -> None:
        """Ignore the note."""


def versions() -> dict[str, str]:
    """The packages that a number may depend on."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    packages = ("landscape", "torch", "transformers", "numpy", "h5py")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
