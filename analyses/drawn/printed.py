"""A figure on paper: PDF and PNG, in the style of the slices' figures."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Paper
from matplotlib.ticker import LogLocator, NullFormatter

from analyses.drawn.figure import MARKERS, Colours, Field, Figure, Panel, Series
from analyses.drawn.legend import draw_legend, legend_rows
from analyses.drawn.words import math_text
from landscape.storage.files import write_whole
from landscape.viewer.printed.write import STYLE

_DASHES = {"solid": "-", "dashed": "--", "dotted": ":", "": ""}
_SIGNS = dict(zip(MARKERS, "os^DXP", strict=True)) | {"": ""}
_SHADES = 60


def write(figure: Figure, folder: Path) -> list[Path]:
    """NAME.pdf and NAME.png in `folder`; the same figure gives the same bytes."""
    paths = []
    with matplotlib.rc_context(STYLE):
        paper = draw(figure)
        for kind, metadata in (("pdf", {"CreationDate": None}), ("png", {})):
            memory = io.BytesIO()
            paper.savefig(memory, format=kind, dpi=220, metadata=metadata)
            paths.append(folder / f"{figure.name}.{kind}")
            write_whole(paths[-1], memory.getvalue())
    return paths


def draw(figure: Figure) -> Paper:
    """As matplotlib has it; to be called within the style."""
    columns = max(map(len, figure.rows))
    height = figure.row_height * len(figure.rows) + 0.15 + 0.14 * legend_rows(figure)
    paper = Paper(figsize=(figure.width, height), layout="constrained")
    grid = paper.subplots(
        len(figure.rows),
        columns,
        squeeze=False,
        sharex="all" if figure.colours else "col" if figure.share_x else "none",
        sharey="all" if figure.colours else "row" if figure.share_y else "none",
    )
    for axes, row in zip(grid, figure.rows, strict=True):
        for axis, panel in zip(axes, [*row, *[None] * (columns - len(row))], strict=True):
            if panel is None:
                axis.set_axis_off()
                continue
            _panel(axis, panel, figure.colours)
    for place, axes in enumerate(grid):
        for axis in axes:
            if figure.share_x and place + 1 < len(figure.rows):
                axis.set_xlabel("")
            if figure.share_y and axis is not axes[0]:
                axis.set_ylabel("")
    if figure.colours:
        bar = ScalarMappable(Normalize(figure.colours.low, figure.colours.high), "viridis")
        paper.colorbar(
            bar, ax=list(grid.ravel()), label=math_text(figure.colours.title), pad=0.02, aspect=25, extend="max"
        )
    draw_legend(paper, grid.ravel().tolist(), figure)
    return paper


def _panel(axis: Axes, panel: Panel, colours: Colours | None) -> None:
    axis.set_xscale(panel.x_scale)
    axis.set_yscale(panel.y_scale)
    if panel.field is not None and colours is not None:
        _field(axis, panel.field, colours)
    for each in panel.series:
        if len(each.x):
            _series(axis, each)
    for x in panel.marks:
        axis.axvline(x, color="#999999", linewidth=0.6, linestyle=":", zorder=0.5)
    if panel.identity and (ends := panel.ends()):
        axis.plot(ends, ends, color="#999999", linewidth=0.6, zorder=0.5)
        axis.set_xlim(ends)
        axis.set_ylim(ends)
    if panel.ticks:
        axis.set_xticks([x for x, _ in panel.ticks], [math_text(word) for _, word in panel.ticks])
        axis.set_xlim(panel.ticks[0][0] - 0.6, panel.ticks[-1][0] + 0.6)
    if panel.y_limits:
        axis.set_ylim(panel.y_limits)
    for line, scale in ((axis.xaxis, panel.x_scale), (axis.yaxis, panel.y_scale)):
        if scale == "log":
            _log_ticks(line)
    axis.set_xlabel(math_text(panel.x_title))
    axis.set_ylabel(math_text(panel.y_title))
    axis.set_title(math_text(panel.title), fontsize=8.5)
    if panel.field is None:
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)


def _log_ticks(line: Axis) -> None:
    """As many numbers as the range has room for, written out."""
    low, high = line.get_view_interval()
    decades = math.log10(high / low) if 0 < low < high else 1.0
    each = (1.0,) if decades > 2.5 else (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    line.set_major_locator(LogLocator(subs=each))
    line.set_major_formatter("{x:g}")
    line.set_minor_formatter(NullFormatter())


def _series(axis: Axes, each: Series) -> None:
    style: dict[str, Any] = {
        "color": each.colour,
        "marker": _SIGNS[each.marker],
        "markersize": 4.5 if each.edged else 2.8,
        "markeredgecolor": "black" if each.edged else each.colour,
        "markeredgewidth": 0.7 if each.edged else 0,
        "label": each.label or None,
    }
    bounds = (each.low, each.high) if len(each.low) and np.isfinite([*each.low, *each.high]).any() else None
    if each.dash:
        axis.plot(each.x, each.y, _DASHES[each.dash], linewidth=0.9, **style)
        if bounds:
            axis.fill_between(each.x, *bounds, color=each.colour, alpha=0.15, linewidth=0)
    else:
        reach = np.abs(np.array(bounds) - each.y) if bounds else None
        axis.errorbar(each.x, each.y, reach, fmt="", linestyle="", elinewidth=0.6, **style)


def _field(axis: Axes, field: Field, colours: Colours) -> None:
    axis.set_facecolor("#e3e7eb")  # where no loss is known
    losses, levels = np.ma.masked_invalid(field.values.T), np.linspace(colours.low, colours.high, _SHADES)
    shades = axis.contourf(field.x, field.y, losses, levels, cmap="viridis", extend="max")
    shades.set_rasterized(True)  # as vectors, hairlines show between the shades
    lines = [line for line in colours.lines if losses.min() < line < losses.max()]
    if lines:
        axis.contour(field.x, field.y, losses, lines, colors="white", linewidths=0.4, alpha=0.6)
