"""Families of models whose training is published: what a revision's step means, and its learning rate.

`families.yaml` says what is known, and from where. A figure that is not known is None here, and so is what would follow
from it: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any

import yaml

from landscape.trajectories.rates import Rate
from landscape.trajectories.revisions import Revision


@dataclass(frozen=True)
class Stage:
    """A part of a family's training.

    Attributes:
        pattern: which stages of revisions belong to it.
        rate: its learning rate; None where that is not known.
        unit: what the rate's places are, since the beginning of the stage: `steps` or `tokens`.
        after: updates of training before those that the names of this stage count.
    """

    pattern: str
    rate: Rate | None
    unit: str
    after: int


@dataclass(frozen=True)
class Family:
    """How one repository came to be.

    Attributes:
        name: of the family.
        batches: (after so many updates, tokens of an update from there on), in order; empty where it is not known.
        updates_per_step: updates for each number that the names count.
        counted_from: the number in the name of the checkpoint after the first so many updates, mostly 1.
        stages: in the order of training.
        main: the revision that `main` is.
        final: the model that training led to, where it is in another repository.
        tokenizer: model reference, where the repository has no tokenizer.
        source: where the figures are from.
    """

    name: str
    batches: tuple[tuple[int, float], ...]
    updates_per_step: int
    counted_from: int
    stages: tuple[Stage, ...]
    main: str | None
    final: str | None
    tokenizer: str | None
    source: Mapping[str, str]

    def order(self, revision: Revision) -> int:
        """The place of a revision's stage in training; after all that are known, where it is not one of them."""
        known = (place for place, stage in enumerate(self.stages) if fnmatchcase(revision.stage, stage.pattern))
        return next(known, len(self.stages))

    def knows(self, revision: Revision) -> bool:
        """Whether a revision belongs to a stage that is known."""
        return self.order(revision) < len(self.stages)

    def tokens(self, revision: Revision) -> float | None:
        """Tokens since the beginning of training; as the name has them where they cannot be counted."""
        stage, updates = self._stage(revision), self._updates(revision)
        if not self.batches or stage is None or updates is None:
            return revision.tokens
        return self._tokens(stage.after) + self._tokens(updates)

    def learning_rate(self, revision: Revision) -> float | None:
        """The published rate after the last update before this revision; None where it is not known."""
        stage, updates = self._stage(revision), self._updates(revision)
        if stage is None or stage.rate is None or updates is None:
            return None
        return stage.rate.at(updates if stage.unit == "steps" else self._tokens(updates))

    def _stage(self, revision: Revision) -> Stage | None:
        return self.stages[self.order(revision)] if self.knows(revision) else None

    def _updates(self, revision: Revision) -> int | None:
        """Updates since the beginning of the stage, or of training where the names count on."""
        return None if revision.step is None else (revision.step + 1 - self.counted_from) * self.updates_per_step

    def _tokens(self, updates: int) -> float:
        ends = [*(begin for begin, _ in self.batches), updates]
        lengths = [max(0, min(end, updates) - begin) for begin, end in pairwise(ends)]
        return float(sum(length * size for length, (_, size) in zip(lengths, self.batches, strict=True)))


def family(repository: str) -> Family | None:
    """The family of a repository on the Hub; None where nothing is known of it.

    >>> family("EleutherAI/pythia-160m-seed3").name
    'pythia'
    """
    for name, content in _content().items():
        for pattern, own in content["models"].items():
            if re.fullmatch(pattern, repository):
                return _family(name, content | own)
    return None


@cache
def _content() -> dict[str, Any]:
    file = resources.files("landscape.trajectories") / "families.yaml"
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


def _family(name: str, content: Mapping[str, Any]) -> Family:
    batches = content.get("tokens_per_step", {})
    batches = batches if isinstance(batches, Mapping) else {0: batches}
    return Family(
        name,
        tuple(sorted(batches.items())),
        content.get("updates_per_step", 1),
        content.get("counted_from", 1),
        tuple(_stage(stage, content.get("peak")) for stage in content["stages"]),
        content.get("main"),
        content.get("final"),
        content.get("tokenizer"),
        content["source"],
    )


def _stage(content: Mapping[str, Any], peak: float | None) -> Stage:
    """A stage of the file; without `after` it begins at the beginning, or counts on from the stage before it."""
    rate = dict(content.get("rate", {}))
    unit = rate.pop("unit", "steps")
    if rate:
        rate.setdefault("peak", peak)
    return Stage(content["stage"], Rate(**rate) if rate else None, unit, content.get("after", 0))
