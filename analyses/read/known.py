"""Numbers of a table that know their error, and what windows of text have in common between two of them.

Where losses by window lie beside the table (`windows`), the share of every window in the error of a number is known to
first order (its influence), and what two checkpoints have in common on the same windows drops out of their difference.
Without them standard errors are added as if they were independent, which makes the interval of a difference too wide
rather than too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyses.lab.measured import Interval
from analyses.read import windows
from analyses.read.tables import Row, Table

_REACH = 1.959964  # standard errors in half of a 95 % interval
_Floats = NDArray[np.float64]
_INFLUENCE: dict[str, Callable[[_Floats, _Floats, _Floats], _Floats]] = {  # of (sums, sums of Θ̂, tokens) by window
    "loss": lambda s, hat, n: (s - s.sum() / n.sum() * n) / n.sum(),
    "loss_hat": lambda s, hat, n: (hat - hat.sum() / n.sum() * n) / n.sum(),
    "delta_q": lambda s, hat, n: (hat - hat.sum() / s.sum() * s) / s.sum(),
    "perplexity_ratio": lambda s, hat, n: (
        math.exp((hat - s).sum() / n.sum()) * (hat - s - (hat - s).sum() / n.sum() * n) / n.sum()
    ),
}


@dataclass(frozen=True)
class Known:
    """A number, its standard error, and what each window of its text adds to that, where it is known."""

    value: float
    error: float
    parts: _Floats | None = None
    text: str = ""

    @classmethod
    def of(cls, table: Table, row: Row, column: str) -> Known:
        """A cell with its error: of an eigenvalue its residual, as other windows would move all checkpoints."""
        error = row.get(f"{column}_residual", row.get(f"{column}_se"))
        parts = None
        if column in _INFLUENCE and row["evaluation_key"] is not None:
            losses = windows.read(table.folder, row["evaluation_key"])
            parts = None if losses is None else _INFLUENCE[column](*losses)
        value = math.nan if row[column] is None else float(row[column])
        return cls(value, math.nan if error is None else float(error), parts, row["tokens_fingerprint"] or "")

    def scaled(self, factor: float) -> Known:
        """So many times the number."""
        parts = None if self.parts is None else factor * self.parts
        return Known(factor * self.value, abs(factor) * self.error, parts, self.text)

    def plus(self, number: float) -> Known:
        """The number with an exact one added."""
        return Known(self.value + number, self.error, self.parts, self.text)

    def widened(self, error: float) -> Known:
        """The number with another error of its own, which no window knows of."""
        return Known(self.value, math.hypot(self.error, error))

    def __sub__(self, other: Known) -> Known:
        """The difference; of numbers on the same windows, paired."""
        value = self.value - other.value
        if self.parts is None or other.parts is None or self.text != other.text:
            return Known(value, math.hypot(self.error, other.error))
        parts = self.parts - other.parts
        return Known(value, float(np.linalg.norm(parts)), parts, self.text)

    def over(self, other: Known) -> Known:
        """The ratio, to first order in the errors."""
        ratio = self.value / other.value
        error = (self - other.scaled(ratio)).scaled(1 / other.value)
        return Known(ratio, error.error, error.parts, error.text)

    @property
    def interval(self) -> Interval:
        """Of 95 %."""
        reach = _REACH * self.error
        return Interval(self.value, self.value - reach, self.value + reach)


def mean(numbers: Sequence[Known]) -> Known:
    """Of several checkpoints, of which others could have been taken: their scatter is part of the error."""
    n = len(numbers)
    values = np.array([each.value for each in numbers])
    own = math.sqrt(sum(each.error**2 for each in numbers)) / n
    return Known(float(values.mean()), math.hypot(own, values.std(ddof=1) / math.sqrt(n) if n > 1 else 0.0))
