"""What a run on disk wrote down of itself: tokens and learning rate by step.

A run of this suite has `log.jsonl`, one of transformers' Trainer `trainer_state.json` in every checkpoint. What is
missing, damaged or of another kind is unknown, and no error: the checkpoints can be measured without it.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from landscape.errors import LandscapeError

STATE = "trainer_state.json"


@dataclass(frozen=True)
class Log:
    """What is known at some steps.

    Attributes:
        rates: (step, learning rate), in order.
        tokens: (step, tokens since the beginning), in order.
    """

    rates: tuple[tuple[int, float], ...] = ()
    tokens: tuple[tuple[int, float], ...] = ()

    def learning_rate(self, step: int) -> float | None:
        """That of the row of this step, or of the nearest one before; None before the first."""
        before = bisect_right(self.rates, step, key=lambda row: row[0])
        return self.rates[before - 1][1] if before else None

    def seen(self, step: int) -> float | None:
        """Tokens at this step: those of its row, or in proportion to the nearest row before, or else to the first."""
        if not self.tokens:
            return None
        before = bisect_right(self.tokens, step, key=lambda row: row[0])
        at, tokens = self.tokens[max(before - 1, 0)]
        return tokens * (step / at) if at else tokens


def of_run(folder: Path) -> Log:
    """The log of a run of this suite, empty where there is none."""
    from landscape.training.run import Run  # not above: it brings torch, which naming checkpoints does not need

    try:
        return _log(Run(folder).rows(), "tokens")
    except (OSError, LandscapeError):
        return Log()


def of_checkpoint(folder: Path) -> Log:
    """What transformers' Trainer left in a checkpoint of how it came there, empty where there is nothing."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        rows: list[Any] = [*state["log_history"], {**state, "step": state["global_step"]}]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return Log()
    # Where it was not asked to count tokens, the Trainer writes 0.
    return _log(rows, "num_input_tokens_seen", least=1)


def _log(rows: Iterable[Any], tokens: str, least: float = 0) -> Log:
    """A step that was logged twice, after a crash, has what was logged last."""
    found: dict[str, dict[int, float]] = {"learning_rate": {}, tokens: {}}
    for row in rows:
        if not isinstance(row, Mapping) or not _number(row.get("step")):
            continue
        for name, values in found.items():
            if _number(row.get(name)) and (name != tokens or row[name] >= least):
                values[int(row["step"])] = float(row[name])
    return Log(tuple(sorted(found["learning_rate"].items())), tuple(sorted(found[tokens].items())))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
