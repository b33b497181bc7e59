"""What came out of a check: a number that is stored, the one computed again, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Item:
    """One number, or the one of several that is farthest off, against what the file says.

    Attributes:
        what: in words.
        stored, found: what the file says, and what came out here; words where it is not about a number.
        tolerance: how far apart they may be.
        why: where that comes from.
        at_most: `found` may be anything up to `stored`.
    """

    what: str
    stored: Any
    found: Any
    tolerance: float = 0.0
    why: str = ""
    at_most: bool = False

    @property
    def difference(self) -> float:
        """|stored − found|; 0 where both are the same word or the same non-finite number, else infinite."""
        if not _is_number(self.stored) or not _is_number(self.found):
            return 0.0 if self.stored == self.found else math.inf
        stored, found = float(self.stored), float(self.found)
        if not math.isfinite(stored) or not math.isfinite(found):
            return 0.0 if stored == found or (math.isnan(stored) and math.isnan(found)) else math.inf
        return abs(stored - found)

    @property
    def excess(self) -> float:
        """What of the difference is beyond the tolerance; at most 0 where they agree."""
        if self.at_most and _is_number(self.stored) and _is_number(self.found) and self.found <= self.stored:
            return -math.inf
        return self.difference - self.tolerance if self.difference else -math.inf

    @property
    def holds(self) -> bool:
        """Whether the file tells the truth here."""
        return not self.excess > 0


@dataclass
class Verdict:
    """All that was checked of a file.

    Attributes:
        kind: slice, curvature, evaluation or study.
        seed: of the choice of what was computed again.
        items: what was.
        skipped: what was not, and why.
    """

    path: Path
    kind: str
    seed: int
    items: list[Item] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def lies(self) -> list[Item]:
        """What is not as the file says."""
        return [item for item in self.items if not item.holds]

    @property
    def holds(self) -> bool:
        """Whether all that was checked is as the file says."""
        return not self.lies

    def add(self, what: str, stored: Any, found: Any, tolerance: float = 0.0, why: str = "", **more: bool) -> None:
        """One more number, or word."""
        self.items.append(Item(what, stored, found, tolerance, why, **more))

    def add_worst(self, what: str, items: Iterable[Item]) -> None:
        """Several as one: the one that is farthest beyond its tolerance, or else farthest off, stands for all."""
        found = list(items)
        if not found:
            return
        worst = max(found, key=lambda item: (item.excess, item.difference, _is_number(item.stored)))
        what = f"{what}, {len(found)} numbers" if len(found) > 1 else what
        name = f"{what}: {worst.what}" if worst.difference or len(found) == 1 else what
        self.items.append(replace(worst, what=name))


def pairs(stored: Mapping[str, Any], found: Mapping[str, Any], relative: float = 0.0, why: str = "") -> list[Item]:
    """An item for each name that `found` has; the tolerance is a share of the larger one."""
    return [
        Item(name, stored.get(name), value, _share(relative, stored.get(name), value), why)
        for name, value in found.items()
    ]


def _share(relative: float, *values: Any) -> float:
    sizes = [abs(float(value)) for value in values if _is_number(value) and math.isfinite(value)]
    return relative * max(sizes, default=0.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
