"""The contour of a slice as a figure for a paper."""

from __future__ import annotations

import math
import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.colours import ColourRange
from landscape.viewer.described.describe import Description, grey_area
from landscape.viewer.described.labels import text_math
from landscape.viewer.described.words import LOSS_UNIT
from landscape.viewer.printed.parts import NOTE_LINE, WIDTH, draw_points, note, write_note

_LEFT, _RIGHT, _BOTTOM, _TOP = 0.44, 0.82, 0.46, 0.1  # inches around the rectangle, for ticks and colour bar
_LINE, _LETTER = 0.14, 0.055  # inches that a line and a letter of a title take
_TALLEST = 3.4  # inches of the rectangle
_FILLS = 6  # shades between two contour lines
_PALE, _GREY = "#e3e7eb", "#7b8794"


def draw_plane(stored: StoredSlice, described: Description) -> Figure:
    """Colours, lines of equal loss and the named points, with a colour bar."""
    beta_title, width, height = _rectangle(described)
    alpha_title = textwrap.wrap(described.alpha_title, int(WIDTH / _LETTER))
    lines = beta_title.count("\n") + 1
    notes = note(described, "" if described.to_one_scale else "axes not to one scale")
    bottom, top = _BOTTOM + _LINE * (len(alpha_title) - 1), _TOP + NOTE_LINE * len(notes)
    figure = Figure(figsize=(WIDTH, height + bottom + top))
    left = _LEFT + _LINE * lines + (WIDTH - _LEFT - _LINE * lines - _RIGHT - width) / 2
    total = figure.get_figheight()
    axes = figure.add_axes((left / WIDTH, bottom / total, width / WIDTH, height / total))
    if described.colours:
        bar = figure.add_axes(((left + width + 0.1) / WIDTH, bottom / total, 0.1 / WIDTH, height / total))
        _fill(axes, bar, stored, described, described.colours)
    _grey_cells(axes, stored, described)
    axes.set_facecolor(_PALE)  # where no loss is known yet
    axes.set_xlim(*stored.alpha[[0, -1]])
    axes.set_ylim(*stored.beta[[0, -1]])
    _ways(axes, described)
    if not described.colours:
        places = np.concatenate(list(stored.nodes.values()))
        axes.scatter(places[:, 0], places[:, 1], 4, color=_GREY, linewidths=0)
    shown = [point for point in described.points if point.inside]
    draw_points(axes, shown, [point.beta for point in shown], (72 * width, 72 * height))
    axes.locator_params(axis="x", nbins=max(3, round(width / 0.42)))
    axes.locator_params(axis="y", nbins=max(3, round(height / 0.35)))
    title = axes.set_xlabel(text_math("\n".join(alpha_title), described.labels), labelpad=2)
    # Under a narrow rectangle a long title would leave the paper on one side: it is centred on the paper.
    title.set_x((WIDTH / 2 - left) / width if max(map(len, alpha_title)) * _LETTER > width else 0.5)
    axes.set_ylabel(text_math(beta_title, described.labels), labelpad=3)
    write_note(figure, notes)
    return figure


def _rectangle(described: Description) -> tuple[str, float, float]:
    """The title of β, in as few lines as fit beside the rectangle, and the rectangle's width and height in inches."""
    words = described.beta_title
    for lines in range(1, 5):
        width = min(WIDTH - _LEFT - _LINE * lines - _RIGHT, _TALLEST * described.shape)
        title = textwrap.fill(words, math.ceil(len(words) / lines) + 4 * (lines > 1))
        if _LETTER * max(map(len, title.splitlines())) <= width / described.shape + 0.4:
            break
    return title, width, width / described.shape


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


def _ways(axes: Axes, described: Description) -> None:
    """The way of the run, and the line that the profile shows."""
    if len(described.path[0]):
        axes.plot(*described.path, color="white", linewidth=0.7, alpha=0.8)
    if described.profile_line is not None:
        axes.plot(*described.profile_line, color="white", linewidth=0.8, linestyle=":")
