"""The legend of a printed figure: every label once, below the panels, where it covers nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Paper

from analyses.drawn.figure import Figure
from analyses.drawn.words import math_text

_LETTER, _SIGN = 0.058, 0.45  # inches of a letter, and of what stands before the first


def legend_rows(figure: Figure) -> int:
    """Lines of letters that it takes."""
    labels = figure.labels()
    columns = _columns(figure, labels)
    return (math.ceil(len(labels) / columns) if labels else 0) + bool(figure.legend_title and labels)


def _columns(figure: Figure, labels: Sequence[str]) -> int:
    return max(1, int(figure.width / (_SIGN + _LETTER * max(map(len, labels), default=1))))


def draw_legend(paper: Paper, axes: Sequence[Axes], figure: Figure) -> None:
    """Below the panels, where it covers nothing."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    labels = [label for label in figure.labels() if label in handles]
    if labels:
        paper.legend(
            [handles[label] for label in labels],
            [math_text(label) for label in labels],
            title=math_text(figure.legend_title) or None,
            loc="outside lower center",
            ncols=min(len(labels), _columns(figure, labels)),
            frameon=False,
            fontsize=7,
            title_fontsize=7,
        )
