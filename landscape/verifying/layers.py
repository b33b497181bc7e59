"""Rows of a quantizer's report, some of them held to the report of the same quantizer run again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from landscape.config import VerifyConfig
from landscape.errors import StoreError
from landscape.verifying.verdict import Item, Verdict, pairs
from landscape.verifying.yardstick import Yardstick

# What other rounding moves by a share of itself. All else counts weights, or is near to nothing.
_SMOOTH = ("name", "quantizer", "inputs", "parameters", "bits", "group_size", "weight_error", "step_norm")
_ROUNDING = 1e-4
_SAME_LEVELS = 1e-5  # share of ‖δ‖: one weight at another level moves it by more


def require_same_levels(
    asked: VerifyConfig, stored: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], measure: Yardstick
) -> None:
    """Raise `StoreError` where a quantizer rounds weights to other levels here than it did when the file was made.

    It weighs activations, whose last digits decide now and then which level is nearer. What the file says of Θ̂ can then
    be told neither true nor false.
    """
    if measure.exact or len(stored) != len(found):
        return
    for told, here in zip(stored, found, strict=True):
        if not math.isclose(float(told["step_norm"]), here["step_norm"], rel_tol=_SAME_LEVELS):
            raise StoreError(
                f"{asked.file}: cannot be checked here: {here['quantizer']} rounds weights of {here['name']} to other "
                f"levels than when the file was made, which differs in {'; '.join(measure.reasons)}; check it there"
            )


def check(
    verdict: Verdict,
    stored: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    measure: Yardstick,
    rng: np.random.Generator,
    count: int,
) -> None:
    """Check `count` of the layers, each by its name and all its numbers."""
    verdict.add("layers quantized", len(stored), len(found))
    if len(stored) != len(found):
        return
    items: list[Item] = []
    share = measure.share(_ROUNDING)
    why = measure.why if measure.exact else f"{share:.0e} of it, for other rounding"
    for index in some(rng, len(found), count):
        names = [name for name in found[index] if name in stored[index] and (measure.exact or name in _SMOOTH)]
        here = {f"{name} of {found[index]['name']}": found[index][name] for name in names}
        told = {f"{name} of {found[index]['name']}": stored[index][name] for name in names}
        items += pairs(told, here, share, why)
    verdict.add_worst("layers", items)


def some(rng: np.random.Generator, total: int, count: int) -> list[int]:
    """`count` of `total` indices by chance, in order, or all."""
    return sorted(rng.choice(total, size=min(total, count), replace=False).tolist()) if total else []
