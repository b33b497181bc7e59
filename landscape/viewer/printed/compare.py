"""Several slices as a figure for a paper: panels with one pair of axes and one scale of colours, and their profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.comparison import Comparison, Entry, compare
from landscape.viewer.described.curves import profile_losses
from landscape.viewer.described.labels import label_math
from landscape.viewer.described.points import QUANTIZED
from landscape.viewer.described.words import percent
from landscape.viewer.printed.write import SERIES, write_drawn

_WIDTH = 3.5  # inches, one column
_BAR, _PROFILE, _TITLE = 0.42, 1.55, 0.24  # inches of the colour bar, of the profiles, of a panel's title
_DASHES = ("-", ":", "-.", "--")
_MARKS: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.7, "zorder": 4}
_NARROW = 0.75  # width over height of panels of which four stand in a row
_BEYOND = 1.12  # of the step: as far as a profile is drawn


def write_comparison(title: str, entries: Sequence[tuple[str, StoredSlice, str]], path: str | Path) -> None:
    """Write the comparison of `entries`, as `compare_page` takes them, to `path`, a .pdf or .png.

    Raises:
        OptionError: another suffix.
        StoreError: the place cannot be written.
    """
    write_drawn(path, lambda: draw_comparison(compare(title, entries)))


def draw_comparison(shown: Comparison) -> Figure:
    """Colours say by how many percent the loss is above that of the panel's own origin."""
    entries = shown.entries
    a, b, c, d = shown.bounds
    narrow = (b - a) / (d - c) < _NARROW
    columns = min(len(entries), 4 if narrow else 2 if len(entries) == 4 else 3)
    rows = -(-len(entries) // columns)
    low, high = 100 * _lowest(entries), 100 * shown.high
    wide = (_WIDTH - 0.75) / columns
    tall = min(wide * (d - c) / (b - a), 1.9) if all(entry.described.to_one_scale for entry in entries) else wide
    profiled = [entry for entry in entries if entry.described.profile_line is not None]
    heights = [*[tall + _TITLE] * rows, _BAR, *([_PROFILE] if profiled else [])]
    figure = Figure(figsize=(_WIDTH, sum(heights) + 0.3), layout="constrained")
    grid = GridSpec(len(heights), columns, figure=figure, height_ratios=heights)
    shades = ScalarMappable(Normalize(low, high), "viridis")
    for place, entry in enumerate(entries):
        row, column = divmod(place, columns)
        axes = figure.add_subplot(grid[row, column])
        _panel(axes, entry, shown, np.linspace(low, high, 60), columns)
        axes.tick_params(labelleft=column == 0, labelbottom=place + columns >= len(entries))
        if column == 0:
            axes.set_ylabel(r"$\beta$", labelpad=1)
        if place + columns >= len(entries):
            axes.set_xlabel(r"$\alpha$", labelpad=1)
    bar = figure.colorbar(shades, cax=figure.add_subplot(grid[rows, :]), orientation="horizontal", extend="max")
    bar.set_label(f"loss above that of the own {label_math(entries[0].described.origin.label)} (%)", labelpad=2)
    bar.ax.set_box_aspect(0.03)
    if profiled:
        _profiles(figure.add_subplot(grid[rows + 1, :]), entries, profiled)
    return figure


def _lowest(entries: Sequence[Entry]) -> float:
    lows = [
        np.nanmin(entry.described.finite) / entry.described.origin.loss - 1 for entry in entries if _is_known(entry)
    ]
    return float(min([0.0, *lows]))


def _is_known(entry: Entry) -> bool:
    return bool(np.isfinite(entry.described.finite).any()) and math.isfinite(entry.described.origin.loss)


def _panel(axes: Axes, entry: Entry, shown: Comparison, levels: np.ndarray, columns: int) -> None:
    stored, described = entry.stored, entry.described
    a, b, c, d = shown.bounds
    axes.set_facecolor("#e3e7eb")
    if _is_known(entry):
        above = 100 * (np.ma.masked_invalid(described.finite.T) / described.origin.loss - 1)
        filled = axes.contourf(stored.alpha, stored.beta, above, levels, cmap="viridis", extend="max")
        filled.set_rasterized(True)  # as vectors, hairlines show between the shades
        axes.contour(stored.alpha, stored.beta, above, levels[5::5], colors="white", linewidths=0.35, alpha=0.6)
    if described.profile_line is not None:
        first, last = described.origin, described.last
        axes.plot([first.alpha, last.alpha], [first.beta, last.beta], color="white", linewidth=0.8, linestyle=":")
    for point in described.points:
        fill = "#fb923c" if point.role == QUANTIZED else "white"
        axes.scatter(
            point.alpha, point.beta, 8 if point.small else 16, marker="osDP"[point.sign], facecolor=fill, **_MARKS
        )
    axes.set_xlim(a, b)
    axes.set_ylim(c, d)
    if all(each.described.to_one_scale for each in shown.entries):
        axes.set_aspect("equal")
    cost = "" if entry.error is None else f"\n$\\Delta_Q$ = {percent(entry.error)}"
    axes.set_title(_plain(entry.name) + cost, fontsize=7.5 if columns < 4 else 6.8, pad=3, linespacing=1.1)
    axes.locator_params(nbins=4 if columns < 4 else 3)


def _profiles(axes: Axes, entries: Sequence[Entry], profiled: Sequence[Entry]) -> None:
    top = 0.0
    for entry in profiled:
        place = entries.index(entry)
        colour, dash = SERIES[place % len(SERIES)], _DASHES[place // len(SERIES) % len(_DASHES)]
        origin, last = entry.described.origin, entry.quantized or entry.described.last
        length = math.hypot(last.alpha - origin.alpha, last.beta - origin.beta)
        t, loss = profile_losses(entry.stored)
        kept = (t >= -1e-9) & (t <= _BEYOND) & np.isfinite(loss)
        axes.plot(t[kept] * length, 100 * (loss[kept] / origin.loss - 1), color=colour, linestyle=dash, linewidth=1.1)
        axes.plot([], [], color=colour, linestyle=dash, linewidth=1.1, label=_plain(entry.name))
        if entry.slope is not None and entry.curvature is not None:
            way = np.linspace(0, _BEYOND * length, 60)
            model = entry.slope * way + entry.curvature * way**2 / 2
            axes.plot(way, 100 * model / origin.loss, color=colour, linewidth=0.6, linestyle=(0, (4, 2)))
        if math.isfinite(last.loss):
            end = 100 * (last.loss / origin.loss - 1)
            axes.scatter(length, end, 16, marker="D", facecolor="#fb923c", **_MARKS)
            top = max(top, end)
    axes.set_ylim(-0.06 * top or None, 1.35 * top or None)
    axes.set_xlabel(r"distance along $\delta = \hat{\Theta} - \Theta$", labelpad=2)
    axes.set_ylabel("loss above (%)", labelpad=2)
    axes.legend(fontsize=6.5, frameon=False, handlelength=1.6, borderpad=0.1, labelspacing=0.2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _plain(name: str) -> str:
    return name.replace("$", r"\$")
