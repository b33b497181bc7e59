"""What the printed figures share: the signs and labels of points, and the note of where the losses come from."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from landscape.viewer.described.describe import Description
from landscape.viewer.described.labels import label_math, width_in_ems
from landscape.viewer.described.placing import Place, place
from landscape.viewer.described.points import QUANTIZED, PointRow

WIDTH = 3.5  # inches, one column
NOTE_LINE = 0.13  # inches that a line of the note takes
_NOTE_LETTERS = 66  # in a line of the note
_LABEL = 9.0  # points, the size of a label's letters
_OUTLINE: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.8}


def note(described: Description, *others: str) -> list[str]:
    """Lines that say where the losses come from, and whatever else must be known."""
    parts = [described.trust.words.partition(" (")[0] if described.trust.error else described.trust.short]
    if described.non_finite.any():
        count = f"{int(described.non_finite.sum()):,}"
        parts.append(
            f"loss not finite at {count} places" if described.is_line else f"hatched: not finite ({count} cells)"
        )
    lines = textwrap.wrap("; ".join([*parts, *filter(None, others)]), _NOTE_LETTERS)
    return [re.sub("·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", _power, line) for line in lines]


def _power(found: re.Match[str]) -> str:
    """A power of ten as a formula: the font has no raised digits."""
    return f"$\\cdot10^{{{unicodedata.normalize('NFKC', found[1])}}}$"


def write_note(figure: Figure, lines: Sequence[str]) -> None:
    """Put the note at the top of the paper."""
    top = 1 - 0.04 / figure.get_figheight()
    figure.text(0.06 / WIDTH, top, "\n".join(lines), va="top", fontsize=7.0, color="#52606d", linespacing=1.15)


def draw_points(
    axes: Axes, points: Sequence[PointRow], heights: Sequence[float], size: Place, avoid: Sequence[Place] = ()
) -> None:
    """Signs and labels of `points`.

    Args:
        axes: with its limits set.
        points: those on the picture.
        heights: the coordinate of each along the axis that goes up.
        size: of the axes, in points of the printer.
        avoid: places in the same units, from the lower left, that labels should not cover.
    """
    low, high = axes.get_ylim()
    places = [
        (point.share[0] * size[0], (y - low) / (high - low) * size[1]) for point, y in zip(points, heights, strict=True)
    ]
    sizes = [((width_in_ems(point.label) + 0.8) * _letters(point), 1.75 * _letters(point)) for point in points]
    offsets = place(places, size, sizes, [point.small for point in points], avoid)
    for point, y, offset in zip(points, heights, offsets, strict=True):
        fill = "#fb923c" if point.role == QUANTIZED else "white"
        area = 9 if point.small else 16 + 10 * point.sign
        # Larger ones lie below: of points in one place, all can be seen.
        order = 3.5 if point.small else 4 - 0.1 * point.sign
        axes.scatter(point.alpha, y, area, marker="osDP"[point.sign], facecolor=fill, zorder=order, **_OUTLINE)
        if offset is None:
            continue
        axes.annotate(
            label_math(point.label),
            (point.alpha, y),
            offset,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=_letters(point),
            zorder=5,
            bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.88},
            arrowprops={"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3},
        )


def _letters(point: PointRow) -> float:
    return _LABEL - 2 * point.small
