"""Runs that share what they can: a plan adds runs by name, a cooldown as a fork of the stable run it comes from.

All lengths are shares of the base recipe's steps, so that one plan serves every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from landscape.training.recipe import Recipe


@dataclass(frozen=True)
class Lawa:
    """The mean of `window` checkpoints, `every` steps apart, the last one at `end`."""

    end: int
    every: int
    window: int

    @property
    def steps(self) -> tuple[int, ...]:
        """Whose checkpoints these are."""
        return tuple(self.end - back * self.every for back in range(self.window))[::-1]

    def __str__(self) -> str:
        """As its directory is called."""
        return f"lawa-{self.window}x{self.every}"


@dataclass(frozen=True)
class Planned:
    """A run, and what to measure on it.

    Attributes:
        changes: of fields of the base recipe, dotted.
        fork: (name of the run, step) it goes on from.
        measured: steps whose checkpoints are evaluated.
        lawas: averages made from it and evaluated.
    """

    name: str
    changes: Mapping[str, Any]
    steps: int
    fork: tuple[str, int] | None = None
    measured: frozenset[int] = frozenset()
    states: frozenset[int] = frozenset()
    lawas: frozenset[Lawa] = frozenset()

    @property
    def begun(self) -> int:
        """The step it begins at."""
        return self.fork[1] if self.fork else 0

    def recipe(self, base: Recipe) -> Recipe:
        """What is trained."""
        kept = self.measured.union(*(lawa.steps for lawa in self.lawas))
        lists = {"keep": sorted(kept - self.states), "keep_state": sorted(self.states), "every": 0}
        changes = {"steps": self.steps, **self.changes, **lists}
        return base.changed([f"{name}={_yaml(value)}" for name, value in changes.items()])


@dataclass
class Plan:
    """The runs of some experiments, each once."""

    base: Recipe
    seeds: tuple[int, ...]
    peaks_until: float = 1.0  # where the runs of B end
    runs: dict[str, Planned] = field(default_factory=dict)

    def at(self, share: float) -> int:
        """A share of the base recipe's steps, in steps."""
        return round(share * self.base.steps)

    def add(self, run: Planned) -> Planned:
        """Put `run` in, or what it asks for into the run of this name."""
        old = self.runs.get(run.name)
        if old is not None:
            run = Planned(
                run.name,
                old.changes,
                max(old.steps, run.steps),
                old.fork,
                old.measured | run.measured,
                old.states | run.states,
                old.lawas | run.lawas,
            )
        self.runs[run.name] = run
        return run

    def warmup(self) -> int:
        """Updates, the same whatever the length of a run."""
        return max(1, self.at(0.01))

    def stable(
        self, peak: float, seed: int, until: float, points: int = 10, also: tuple[int, ...] = (), **more: Any
    ) -> Planned:
        """A run at a constant rate, measured at `points` places of the whole length and at the steps in `also`."""
        changes = {"seed": seed, "schedule.kind": "constant", "schedule.warmup": self.warmup(), "optimizer.peak": peak}
        measured = frozenset(self.at(share / points) for share in range(1, round(until * points) + 1))
        measured |= frozenset(also)
        return self.add(Planned(f"stable-{peak:g}-s{seed}", changes, self.at(until), None, measured, **more))

    def whole(self, name: str, seed: int, peak: float, cooldown: float = 0.2, steps: int = 0, **more: Any) -> Planned:
        """A run from scratch with WSD, or with what `more` changes, measured at ten places and along the cooldown."""
        steps = steps or self.base.steps
        states = more.pop("states", frozenset())
        wsd = {"schedule.kind": "wsd", "schedule.cooldown": round(cooldown * steps)}
        own = {"seed": seed, "optimizer.peak": peak, "schedule.warmup": max(1, round(0.01 * steps))}
        changes = (more if "schedule.kind" in more else wsd | more) | own
        places = [each / 10 for each in range(1, 11)] + [1 - cooldown * each / 4 for each in (1, 2, 3)]
        measured = frozenset(round(steps * share) for share in places)
        return self.add(Planned(name, changes, steps, None, measured, states))

    def cooled(self, peak: float, seed: int, start: float, length: float, points: int) -> Planned:
        """A linear cooldown to zero from a stable run, measured at `points` places."""
        begin, over = max(self.at(start), self.warmup()), self.at(length)
        stable = self.stable(peak, seed, start, states=frozenset({begin}), also=(begin,))
        changes = {
            "seed": seed,
            "schedule.kind": "wsd",
            "schedule.warmup": self.warmup(),
            "schedule.cooldown": over,
            "optimizer.peak": peak,
        }
        measured = frozenset(begin + round(over * each / points) for each in range(1, points + 1))
        name = f"decay-{peak:g}-s{seed}-from{begin}"
        return self.add(Planned(name, changes, begin + over, (stable.name, begin), measured))


def _yaml(value: Any) -> str:
    return str(list(value)) if isinstance(value, list | tuple) else str(value)
