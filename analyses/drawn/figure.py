"""A figure as data: panels of lines, points and fields, said once and drawn on paper and on a page.

`printed` and `interactive` are the two ways to draw it, `page` what the latter stands on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray

COLUMN, PAGE = 3.4, 7.0  # inches: one column of a paper, and two
INK, GREY, COOLED = "#333333", "#777777", "#c1440e"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus")
Dash = Literal["solid", "dashed", "dotted", ""]
Scale = Literal["linear", "log"]


def colour(number: int) -> str:
    """Of the n-th of several series."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """Likewise; where colours begin again, markers have moved on."""
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


@dataclass(frozen=True)
class Series:
    """A line with an error band, or points with error bars where `dash` is empty.

    Attributes:
        label: in the legend, which has every label once; empty for none.
        low, high: ends of the interval of each y; empty where there are none.
        marker: one of `MARKERS`, or empty.
        edged: whether markers have a dark edge, to stand on a field.
        names: what each point is.
    """

    x: Sequence[float]
    y: Sequence[float]
    label: str = ""
    colour: str = INK
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dash: Dash = "solid"
    marker: str = "circle"
    names: Sequence[str] = ()
    edged: bool = False


@dataclass(frozen=True)
class Field:
    """Losses over a rectangle, (x, y); all fields of a figure share one scale of colours."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Colours:
    """What the colours of a figure's fields stretch over, and the levels at which lines are drawn."""

    low: float
    high: float
    lines: tuple[float, ...]
    title: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        marks: x of vertical lines.
        ticks: (x, word) where x counts things.
        identity: whether the line y = x is drawn.
    """

    series: tuple[Series, ...]
    x_title: str = ""
    y_title: str = ""
    title: str = ""
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    y_limits: tuple[float, float] | None = None
    marks: tuple[float, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()
    identity: bool = False
    field: Field | None = None

    def ends(self) -> tuple[float, float] | None:
        """Where the line y = x begins and ends: around all that is positive."""
        numbers = [number for each in self.series for number in (*each.x, *each.y) if number > 0]
        return (min(numbers) / 1.15, max(numbers) * 1.15) if numbers else None


@dataclass(frozen=True)
class Figure:
    """Panels in rows.

    Attributes:
        name: of its files.
        caption: what a reader must know to read it.
        row_height: inches.
        share_x, share_y: whether panels below each other share x, and panels of a row share y.
        legend_title: what the labels are.
        colours: of fields; panels with fields all share both axes.
    """

    name: str
    caption: str
    rows: tuple[tuple[Panel, ...], ...]
    width: float = PAGE
    row_height: float = 1.7
    share_x: bool = True
    share_y: bool = True
    legend_title: str = ""
    colours: Colours | None = None

    def labels(self) -> list[str]:
        """Of all series, each once."""
        return list(dict.fromkeys(s.label for row in self.rows for panel in row for s in panel.series if s.label))


def shades(count: int) -> list[str]:
    """Colours for what has an order: viridis, without its end that does not stand on white."""
    return [to_hex(colour) for colour in matplotlib.colormaps["viridis"](np.linspace(0, 0.8, max(count, 2)))][:count]


def around(series: Sequence[Series], scale: Scale) -> tuple[float, float] | None:
    """Limits of y with a little air, errors inside."""
    numbers = [number for each in series for number in (*each.y, *each.low, *each.high) if math.isfinite(number)]
    if scale == "log":
        numbers = [number for number in numbers if number > 0]
        return (min(numbers) / 1.15, max(numbers) * 1.15) if numbers else None
    air = 0.05 * (max(numbers) - min(numbers)) or 1e-3 if numbers else 0.0
    return (min(numbers) - air, max(numbers) + air) if numbers else None
