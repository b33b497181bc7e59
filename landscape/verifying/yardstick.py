"""How near a number computed again must come to the stored one, and why.

The same packages on the same machine, with as many threads and the same batches, give the same bits. Where one of these
differs, sums are taken in another order: a mean loss moves by a few units of its last digit. Measured on one model
(docs/reliability.md): 6e-8 of a window's loss in float32 between kinds of CPU instructions, 9e-4 between bfloat16 and
float32. The bounds below are the unit roundoff of the shorter types, and of float32 a hundred times what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from landscape.machine.environment import differences

LOSS = {"float32": 1e-5, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # share of a loss
FLOAT64 = 1e-9  # share of what follows from stored numbers alone
PRODUCT = 1e-3  # share of the largest eigenvalue, of products and of differences of losses in float32
_MOVED = 1e-3  # share of a change along directions, or to weights, that differ in their last digits


@dataclass(frozen=True)
class Yardstick:
    """Tolerances between a file and this machine.

    Attributes:
        reasons: what differs, in words; nothing where bits are expected.
        dtype: of the losses.
        moved: share of a change of the loss, or of a distance, by which other weights may be off; 0 for the same ones.
    """

    reasons: tuple[str, ...]
    dtype: str = "float32"
    moved: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether the same bits are expected."""
        return not self.reasons

    @property
    def why(self) -> str:
        """What the tolerance of a loss rests on."""
        if self.exact:
            return "bit for bit: the same versions, machine, threads and batches"
        words = f"{LOSS[self.dtype]:.0e} of the loss for rounding, as it differs in {'; '.join(self.reasons)}"
        return words + (f"; {self.moved:.0e} of its change, as the weights differ too" if self.moved else "")

    def loss(self, value: float, change: float = 0.0, dtype: str | None = None) -> float:
        """Tolerance of a loss that is `change` away from that of Θ."""
        return 0.0 if self.exact else LOSS[dtype or self.dtype] * abs(value) + self.moved * abs(change)

    def share(self, rounding: float) -> float:
        """Tolerance of another number as a share of it: `rounding`, or what moved weights do to it."""
        return 0.0 if self.exact else max(rounding, self.moved)

    def after(self, same_weights: bool) -> Yardstick:
        """The same for weights that were made again."""
        return self if same_weights or self.exact else Yardstick(self.reasons, self.dtype, _MOVED)


def yardstick(
    facts: Mapping[str, Any], environment: Mapping[str, Any], versions: Mapping[str, Any], batch_sizes: tuple[int, int]
) -> Yardstick:
    """Between a file that says `facts` of itself, and this process with its `environment` and `versions`.

    `batch_sizes` are those the file was made with and that of here.
    """
    reasons = []
    stored = facts.get("versions", {})
    for name, here in versions.items():
        if stored.get(name) != here:
            reasons.append(f"{name} {stored.get(name, 'unknown')} and {here}")
    if facts.get("environment"):
        reasons += differences(facts["environment"], environment)
    else:
        reasons.append("a machine that the file does not name")
    if facts.get("mixed"):
        reasons.append("having been filled in more than one environment")
    if batch_sizes[0] != batch_sizes[1]:
        reasons.append(f"batches of {batch_sizes[0]} and {batch_sizes[1]} windows")
    return Yardstick(tuple(reasons), str(facts.get("dtype", "float32")))
