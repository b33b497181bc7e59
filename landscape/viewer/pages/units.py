"""Units of distance in weight space that a page offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.labels import label_html
from landscape.viewer.described.points import QUANTIZED, PointRow
from landscape.viewer.described.words import finite


@dataclass(frozen=True)
class Unit:
    """A length in weight space that distances are divided by.

    Attributes:
        key: in the page's address.
        choice: as one chooses it, plain text.
        title: what follows the name of an axis, HTML; empty for the distance itself.
        length: in L2 distance.
    """

    key: str
    choice: str
    title: str
    length: float


def units(stored: StoredSlice, points: Sequence[PointRow]) -> tuple[Unit, ...]:
    """Distance itself, percent of ‖Θ‖ where the file knows it, and the step of every quantizer on the picture."""
    found = [Unit("distance", "L2 distance", "", 1.0)]
    norm, origin = finite(stored.attributes.get("weight_norm")), points[0].label
    if norm:
        found.append(Unit("relative", f"% of ‖{origin}‖", f", in % of ‖{label_html(origin)}‖", norm / 100))
    for point in points:
        if point.role == QUANTIZED and point.distance > 0:
            step = f", in steps ‖{label_html(point.label)} − {label_html(origin)}‖"
            found.append(Unit(f"step-{point.name}", f"quantization steps to {point.label}", step, point.distance))
    return tuple(found)
