"""The controlled runs in a table, found by the names that `analyses.lab.experiments` gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analyses.read.tables import Row, Table

_NUMBER = r"\d[\d.]*(?:e[+-]?\d+)?"
_STABLE = re.compile(rf"stable-(?P<peak>{_NUMBER})-s(?P<seed>\d+)")
_COOLED = re.compile(rf"decay-(?P<peak>{_NUMBER})-s(?P<seed>\d+)-from(?P<start>\d+)")
_ENDED = 0.05  # of the run's highest rate: where its last checkpoint lies below, the cooldown was measured to its end


@dataclass(frozen=True)
class Cooldown:
    """A run decay-PEAK-sSEED-fromSTART that was measured to its end."""

    run: str
    peak: float
    seed: int
    start: int
    end: int

    @property
    def length(self) -> int:
        """Steps over which its rate falls."""
        return self.end - self.start

    @property
    def stable(self) -> str:
        """The run it comes from."""
        return f"stable-{self.peak:g}-s{self.seed}"


def cooldowns(table: Table) -> list[Cooldown]:
    """All in the table, by peak rate, seed and start."""
    found = []
    for run, named in matching(table, _COOLED):
        rows = [row for row in table.checkpoints if row["run"] == run and row["step"] is not None]
        last = max(rows, key=lambda row: row["step"])
        peak = float(named["peak"])
        if last["learning_rate"] is None or last["learning_rate"] < _ENDED * peak:
            found.append(Cooldown(run, peak, int(named["seed"]), int(named["start"]), last["step"]))
    return sorted(found, key=lambda each: (each.peak, each.seed, each.start))


def stables(table: Table) -> dict[tuple[float, int], str]:
    """Runs at a constant rate by (peak, seed)."""
    return {(float(m["peak"]), int(m["seed"])): run for run, m in matching(table, _STABLE)}


def matching(table: Table, pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Runs whose whole name fits."""
    for run in table.runs:
        if (named := pattern.fullmatch(run)) is not None:
            yield run, named


def seeds(cooled: Sequence[Cooldown]) -> list[int]:
    """In order."""
    return sorted({each.seed for each in cooled})


def before(table: Table, cooldown: Cooldown, quantizer: str) -> list[Row]:
    """The stable run as far as the start of the cooldown."""
    return [row for row in table.line(cooldown.stable, quantizer) if row["step"] <= cooldown.start]


def whole(table: Table, cooldown: Cooldown, quantizer: str) -> list[Row]:
    """The stable run as far as the start, then the cooldown."""
    return [*before(table, cooldown, quantizer), *table.line(cooldown.run, quantizer)]


def joined(table: Table, cooldown: Cooldown, quantizer: str) -> list[Row]:
    """The cooldown, begun at the last checkpoint of the stable run before it, where that is not too long before."""
    last = before(table, cooldown, quantizer)[-1:]
    near = [row for row in last if cooldown.start - row["step"] <= cooldown.length]
    return [*near, *table.line(cooldown.run, quantizer)]
