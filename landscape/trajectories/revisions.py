"""What the name of a revision says: stage, step, tokens.

The families name their checkpoints in a dozen ways: `step143000`, `stage1-step40000-tokens84B`, `iter_0058000`,
`lc-4k-to-32k-step-4000`, `ckpt_010`, `it-SFT`. What is left of a name without its step and its tokens is the stage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from landscape.models.checkpoint import step_of

_STEP = re.compile(r"[-_]?(?:global[-_]?)?(?:step|iter|checkpoint|ckpt)[-_]?\d+")
_TOKENS = re.compile(r"[-_]?tokens?[-_]?(\d+(?:\.\d+)?)([KMBT]?)(?![a-z\d])", re.IGNORECASE)
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Revision:
    """A revision by its name.

    Attributes:
        name: as the Hub or the disk has it.
        stage: the name without step and tokens; empty where nothing is left, all of it where it has neither.
        step: the number in the name, whatever it counts.
        tokens: what the name says, rounded as it is there; some families count them from the beginning of a stage.
    """

    name: str
    stage: str
    step: int | None
    tokens: float | None


def parse(name: str) -> Revision:
    """The parts of a revision's name.

    >>> parse("stage1-step40000-tokens84B")
    Revision(name='stage1-step40000-tokens84B', stage='stage1', step=40000, tokens=84000000000.0)
    >>> parse("lc-4k-to-32k-step-4000")
    Revision(name='lc-4k-to-32k-step-4000', stage='lc-4k-to-32k', step=4000, tokens=None)
    >>> parse("main")
    Revision(name='main', stage='main', step=None, tokens=None)
    """
    found = _TOKENS.search(name)
    tokens = float(found[1]) * _UNITS[found[2].upper()] if found else None
    stage = "" if name.isdecimal() else _TOKENS.sub("", _STEP.sub("", name, count=1), count=1).strip("-_")
    return Revision(name, stage, step_of(name), tokens)
