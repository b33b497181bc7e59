"""The surface of a slice as a figure for a paper."""

from __future__ import annotations

import math
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.colours import ColourRange
from landscape.viewer.described.describe import Description
from landscape.viewer.described.labels import label_math
from landscape.viewer.described.points import QUANTIZED
from landscape.viewer.printed.parts import NOTE_LINE, WIDTH, note, write_note

_TALL = 2.9  # inches
_MOST = 81  # lines of the sheet along a side
_STEM = 0.16  # of the heights: as far above its point a label stands
_INK, _WALL = "#1f2933", (1.0, 1.0, 1.0, 0.0)
_LABEL = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}


def draw_surface(stored: StoredSlice, described: Description, colours: ColourRange) -> Figure:
    """The loss as height, cut off where the colours end; labels of named points stand on leaders."""
    notes = note(described, "heights end with the colours" if colours.cells_above else "")
    figure = Figure(figsize=(WIDTH, _TALL + NOTE_LINE * len(notes)))
    place = (-0.06, -0.015, 1.08, 1.1 * _TALL / figure.get_figheight())
    axes: Any = cast(Any, figure.add_axes(place, projection="3d", computed_zorder=False))
    rows, columns = (max(1, math.ceil(len(line) / _MOST)) for line in (stored.alpha, stored.beta))
    losses = np.minimum(described.finite, colours.high)[::rows, ::columns].T
    alpha, beta = np.meshgrid(stored.alpha[::rows], stored.beta[::columns])
    shades = matplotlib.colormaps["viridis"](Normalize(colours.low, colours.high)(losses))
    plain = {"rcount": _MOST, "ccount": _MOST, "linewidth": 0, "antialiased": False, "shade": False, "zorder": 1}
    axes.plot_surface(alpha, beta, losses, facecolors=shades, **plain).set_rasterized(True)
    span = colours.high - colours.low
    for point in described.points:
        if not (point.inside and math.isfinite(point.shown)):
            continue
        z = min(point.shown, colours.high)
        if not point.small:
            top = z + _STEM * span
            axes.plot([point.alpha] * 2, [point.beta] * 2, [z, top], color=_INK, linewidth=0.7, zorder=2)
            label = {"fontsize": 8.5, "ha": "center", "va": "bottom", "zorder": 4, "bbox": _LABEL}
            axes.text(point.alpha, point.beta, top, label_math(point.label), **label)
        fill = "#fb923c" if point.role == QUANTIZED else "white"
        size, sign = (8 if point.small else 18), "osDP"[point.sign]
        axes.scatter(
            point.alpha, point.beta, z, s=size, marker=sign, c=fill, edgecolor="black", linewidth=0.7, zorder=3
        )
    axes.set_zlim(colours.low - 0.1 * span, colours.high)
    axes.set_xlabel(r"$\alpha$", labelpad=-6)
    axes.set_ylabel(r"$\beta$", labelpad=-6)
    axes.set_zlabel("loss", labelpad=-4)
    axes.tick_params(pad=-2)
    axes.locator_params(nbins=5)
    for wall in (axes.xaxis, axes.yaxis, axes.zaxis):
        wall.set_pane_color(_WALL)
    known = np.where(np.isnan(described.finite), np.inf, described.finite)
    low = min(((i, j) for i in (0, -1) for j in (0, -1)), key=lambda corner: float(known[corner]))
    axes.view_init(elev=34, azim={(0, 0): 235, (-1, 0): 305, (-1, -1): 55, (0, -1): 125}[low])  # over the lowest corner
    a, b = float(np.ptp(stored.alpha)), float(np.ptp(stored.beta))
    axes.set_box_aspect((max(a / max(a, b), 0.6), max(b / max(a, b), 0.6), 0.6), zoom=0.93)
    write_note(figure, notes)
    return figure
