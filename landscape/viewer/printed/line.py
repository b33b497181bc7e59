"""A slice that is a line as a figure for a paper: the loss as a curve."""

from __future__ import annotations

import math
import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.curves import curve_losses, loss_limits
from landscape.viewer.described.describe import Description
from landscape.viewer.described.labels import text_math
from landscape.viewer.described.placing import Place
from landscape.viewer.described.words import LOSS_UNIT
from landscape.viewer.printed.parts import NOTE_LINE, WIDTH, draw_points, note, write_note

_SIZE = (2.86, 1.9)  # inches of the axes
_LEFT, _BOTTOM, _TOP = 0.54, 0.44, 0.1
_CURVE, _GREY = "#31688e", "#7b8794"


def draw_line(stored: StoredSlice, described: Description) -> Figure:
    """The curve with its error band, the places evaluated, and the named points."""
    notes = note(described)
    title = textwrap.wrap(described.alpha_title, 56)
    bottom = _BOTTOM + 0.14 * (len(title) - 1)
    total = _SIZE[1] + bottom + _TOP + NOTE_LINE * len(notes)
    figure = Figure(figsize=(WIDTH, total))
    axes = figure.add_axes((_LEFT / WIDTH, bottom / total, _SIZE[0] / WIDTH, _SIZE[1] / total))
    alpha, loss = curve_losses(stored)
    if 0 < described.trust.error < math.inf:
        error = described.trust.error
        axes.fill_between(alpha, loss - error, loss + error, color=_CURVE, alpha=0.25, linewidth=0)
    axes.plot(alpha, np.where(np.isfinite(loss), loss, np.nan), color=_CURVE, linewidth=1.1)
    places = np.concatenate(list(stored.nodes.values()))
    axes.scatter(places[:, 0], places[:, 2], 5, facecolor="white", edgecolor=_CURVE, linewidths=0.5, zorder=3)
    if math.isfinite(described.origin.loss):
        axes.axhline(described.origin.loss, color=_GREY, linewidth=0.6, linestyle=":", zorder=0.5)
    axes.set_xlim(*stored.alpha[[0, -1]])
    axes.set_ylim(*loss_limits(stored, described))
    shown = [point for point in described.points if point.inside and math.isfinite(point.loss)]
    size = 72 * _SIZE[0], 72 * _SIZE[1]
    draw_points(axes, shown, [point.loss for point in shown], size, _on_paper(axes, alpha, loss, size))
    axes.set_xlabel(text_math("\n".join(title), described.labels), labelpad=2)
    axes.set_ylabel(f"loss ({LOSS_UNIT})", labelpad=3)
    write_note(figure, notes)
    return figure


def _on_paper(axes: Axes, alpha: np.ndarray, loss: np.ndarray, size: Place) -> list[Place]:
    """Places along the curve, from the lower left of the axes, in points of the printer."""
    along = np.linspace(alpha[0], alpha[-1], 300)
    places = np.stack([along, np.interp(along, alpha, loss)], axis=1)
    low, high = (np.array(ends) for ends in zip(axes.get_xlim(), axes.get_ylim(), strict=True))
    return [(x, y) for x, y in ((places - low) / (high - low) * size).tolist() if math.isfinite(y)]
