"""The contour of a slice as a figure for a paper: one column wide, PDF or PNG."""

from __future__ import annotations

import io
import math
import textwrap
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from landscape.errors import OptionError
from landscape.files import write_whole
from landscape.slices.stored import StoredSlice
from landscape.viewer.describe import QUANTIZED, ColourRange, Description, describe, grey_area
from landscape.viewer.labels import label_math, place, text_math
from landscape.viewer.words import LOSS_UNIT

_WIDTH = 3.5  # inches, one column
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.44, 0.82, 0.46, 0.1  # inches around the rectangle, for ticks and colour bar
_LINE, _LETTER = 0.14, 0.055  # inches that a line and a letter of a title take
_TALLEST = 3.4  # inches of the rectangle
_LABEL = (27.0, 16.0)  # points that a label takes, with air
_FILLS = 6  # shades between two contour lines
_PALE, _GREY = "#e3e7eb", "#7b8794"
_OUTLINE: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.8}
STYLE = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,  # TrueType: many journals refuse matplotlib's own Type 3
}


def write_figure(stored: StoredSlice, path: str | Path) -> None:
    """Write the contour of `stored` to `path`; its suffix, .pdf or .png, says as what.

    Raises:
        OptionError: another suffix.
        StoreError: the place cannot be written.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("pdf", "png"):
        raise OptionError(f"figure {path.name}: expected a name that ends in .pdf or .png")
    memory = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        metadata = {"CreationDate": None} if kind == "pdf" else None  # the same slice gives the same bytes
        draw(stored).savefig(memory, format=kind, dpi=300, metadata=metadata)
    write_whole(path, memory.getvalue())


def draw(stored: StoredSlice) -> Figure:
    """The contour of `stored` as a matplotlib figure."""
    with matplotlib.rc_context(STYLE):
        return _draw(stored, describe(stored))


def _draw(stored: StoredSlice, described: Description) -> Figure:
    beta_title, width, height = _rectangle(described)
    lines = beta_title.count("\n") + 1
    notes = _notes(described)
    top = _TOP + 0.16 * bool(notes)
    figure = Figure(figsize=(_WIDTH, height + _BOTTOM + top))
    left = _LEFT + _LINE * lines + (_WIDTH - _LEFT - _LINE * lines - _RIGHT - width) / 2
    total = figure.get_figheight()
    axes = figure.add_axes((left / _WIDTH, _BOTTOM / total, width / _WIDTH, height / total))
    if described.colours:
        bar = figure.add_axes(((left + width + 0.1) / _WIDTH, _BOTTOM / total, 0.1 / _WIDTH, height / total))
        _fill(axes, bar, stored, described, described.colours)
    _grey_cells(axes, stored, described)
    _points(axes, described, (72 * width, 72 * height))
    axes.set_facecolor(_PALE)  # where no cell is evaluated yet
    axes.set_xlim(*stored.alpha[[0, -1]])
    axes.set_ylim(*stored.beta[[0, -1]])
    axes.locator_params(axis="x", nbins=max(3, round(width / 0.42)))
    axes.locator_params(axis="y", nbins=max(3, round(height / 0.35)))
    axes.set_xlabel(text_math(described.alpha_title, described.labels), labelpad=2)
    axes.set_ylabel(beta_title, labelpad=3)
    if notes:
        figure.text(left / _WIDTH, 1 - 0.05 / total, notes, va="top", fontsize=7.5)
    return figure


def _rectangle(described: Description) -> tuple[str, float, float]:
    """The title of β, in as few lines as fit beside the rectangle, and the rectangle's width and height in inches."""
    words = described.beta_title
    for lines in range(1, 5):
        width = min(_WIDTH - _LEFT - _LINE * lines - _RIGHT, _TALLEST * described.shape)
        title = textwrap.fill(words, math.ceil(len(words) / lines) + 4 * (lines > 1))
        if _LETTER * max(map(len, title.splitlines())) <= width / described.shape + 0.4:
            break
    return title, width, width / described.shape


def _notes(described: Description) -> str:
    notes = []
    if described.evaluated < described.finite.size:
        notes.append(f"{described.evaluated:,} of {described.finite.size:,} cells evaluated")
    if described.non_finite.any():
        notes.append(f"hatched: loss not finite ({int(described.non_finite.sum()):,} cells)")
    if not described.to_one_scale:
        notes.append("axes not to one scale")
    return "; ".join(notes)


def _fill(axes: Axes, bar: Axes, stored: StoredSlice, described: Description, colours: ColourRange) -> None:
    losses = np.ma.masked_invalid(described.finite.T)
    count = _FILLS * max(1, len(colours.lines))
    clipped = "max" if colours.cells_above else "neither"
    shades = axes.contourf(
        stored.alpha, stored.beta, losses, np.linspace(colours.low, colours.high, count), cmap="viridis", extend=clipped
    )
    shades.set_rasterized(True)  # as vectors, hairlines show between the shades
    lines = [line for line in colours.lines if losses.min() < line < losses.max()]
    if lines:
        axes.contour(stored.alpha, stored.beta, losses, lines, colors="white", linewidths=0.45, alpha=0.6)
    axes.figure.colorbar(shades, cax=bar, ticks=colours.ticks, extendfrac=0.04)
    bar.set_ylabel(f"loss ({LOSS_UNIT})")
    bar.yaxis.set_major_formatter(f"{{x:.{colours.tick_digits}f}}")


def _grey_cells(axes: Axes, stored: StoredSlice, described: Description) -> None:
    if described.non_finite.any():
        cells = np.ma.masked_equal(grey_area(described).T.astype(float), 0.0)
        grey = axes.pcolor(stored.alpha, stored.beta, cells, cmap="Greys", vmin=0, vmax=8, hatch="/////", zorder=0.5)
        grey.set_edgecolor(_GREY)
        grey.set_linewidth(0)


def _points(axes: Axes, described: Description, size: tuple[float, float]) -> None:
    axes.plot(*described.profile_line, color="white", linewidth=0.8, linestyle=":")
    shown = [point for point in described.points if point.inside]
    places = [(point.share[0] * size[0], point.share[1] * size[1]) for point in shown]
    for point, offset in zip(shown, place(places, size, _LABEL), strict=True):
        sign: dict[str, Any] = {
            "marker": "osDP"[point.sign],
            "facecolor": "#fb923c" if point.name == QUANTIZED else "white",
        }
        # Larger ones lie below: of points in one place, all can be seen.
        axes.scatter(point.alpha, point.beta, 16 + 10 * point.sign, zorder=4 - 0.1 * point.sign, **_OUTLINE, **sign)
        axes.annotate(
            label_math(point.label),
            (point.alpha, point.beta),
            offset,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9,
            zorder=5,
            bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.88},
            arrowprops={"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3},
        )
