"""A point of a training run, and what the name of its revision tells: step, order, run."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_STEP = re.compile(r"((?:step|iter|checkpoint|ckpt)[-_]?)(\d+)")
_TOKENS = re.compile(r"(tokens?[-_]?)(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """One point of a training run.

    Attributes:
        name: Hub id, or the directory's name; never a path.
        revision: branch, tag, commit or folder name; None for a lone local model.
        identity: `commit:<sha1>` or `sha256:<content hash>`.
        folder: where to load it from on this machine (not stored in any result).
        run: the Hub id or the run's directory, for finding neighbours.
    """

    name: str
    revision: str | None
    identity: str
    folder: Path
    run: str | Path

    def __str__(self) -> str:
        """`name@revision`."""
        return f"{self.name}@{self.revision}" if self.revision else self.name

    @property
    def step(self) -> int | None:
        """The training step, where the revision's name tells it."""
        return step_of(self.revision or "")


def step_of(revision: str) -> int | None:
    """The training step in a revision's name.

    >>> [step_of(name) for name in ("step143000", "stage1-step40000-tokens84B", "stage1-step-40000", "iter_0058000")]
    [143000, 40000, 40000, 58000]
    >>> step_of("checkpoint-500"), step_of("ckpt_010"), step_of("main")
    (500, 10, None)
    """
    found = _STEP.search(revision)
    if found:
        return int(found[2])
    return int(revision) if revision.isdecimal() else None


def order_of(name: str) -> int:
    """The step in a revision's name; −1 where it has none."""
    step = step_of(name)
    return -1 if step is None else step


def family_of(name: str) -> str:
    """`name` without its step and its count of tokens: what the checkpoints of one run have in common."""
    if name.isdecimal():
        return "#"
    return _TOKENS.sub(r"\1#", _STEP.sub(r"\1#", name))


def nearest(revision: str, names: Iterable[str]) -> str:
    """The names a person may have meant: by step where there is one, else by spelling."""
    names = list(names)
    steps = [name for name in names if step_of(name) is not None]
    numbers = [int(number) for number in re.findall(r"\d+", revision)]
    if steps and numbers:
        step = step_of(revision)
        wanted = max(numbers) if step is None else step
        near = sorted(steps, key=lambda name: abs(order_of(name) - wanted))[:4]
    else:
        near = difflib.get_close_matches(revision, names, n=4, cutoff=0.0)
    return f"nearest: {', '.join(near)}" if near else "it has no others"
