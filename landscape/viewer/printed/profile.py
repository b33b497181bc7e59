"""The profile of a slice as a figure for a paper: the loss from the first named point to the last, and its model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.curves import profile_losses
from landscape.viewer.described.describe import Description
from landscape.viewer.described.labels import label_math
from landscape.viewer.described.words import LOSS_UNIT, finite
from landscape.viewer.printed.parts import NOTE_LINE, WIDTH, draw_points, note, write_note

_SIZE = (2.86, 1.7)  # inches of the axes
_LEFT, _BOTTOM, _TOP = 0.54, 0.44, 0.1
_CURVE, _MODEL, _GREY = "#31688e", "#c2410c", "#7b8794"


def has_profile(described: Description, stored: StoredSlice) -> bool:
    """Whether there is a way between two named points, with losses on it."""
    return described.profile_line is not None and bool(np.isfinite(profile_losses(stored)[1]).any())


def draw_profile(stored: StoredSlice, described: Description) -> Figure:
    """Loss over distance, with an error band, and L + gᵀd + ½ dᵀHd where the slice has a reading of its origin."""
    notes = note(described)
    total = _SIZE[1] + _BOTTOM + _TOP + NOTE_LINE * len(notes)
    figure = Figure(figsize=(WIDTH, total))
    axes = figure.add_axes((_LEFT / WIDTH, _BOTTOM / total, _SIZE[0] / WIDTH, _SIZE[1] / total))
    first, last = described.origin, described.last
    length = math.hypot(last.alpha - first.alpha, last.beta - first.beta)
    t, loss = profile_losses(stored)
    way, known = t * length, np.isfinite(loss)
    if 0 < described.trust.error < math.inf:
        error = described.trust.error
        axes.fill_between(way, loss - error, loss + error, where=known, color=_CURVE, alpha=0.25, linewidth=0)
    style: dict[str, Any] = {} if stored.surface is not None else {"marker": "o", "markersize": 2}
    axes.plot(way, np.where(known, loss, np.nan), color=_CURVE, linewidth=1.1, label="loss", **style)
    slope, bend = (finite(stored.reading.get(name)) for name in ("gradient_delta", "hessian_delta_delta"))
    if slope is not None and bend is not None:
        label = r"$L + g^\top d + \frac{1}{2}\, d^\top H d$"
        model = first.loss + slope * way + bend * way**2 / 2
        axes.plot(way, model, color=_MODEL, linewidth=0.8, linestyle=(0, (4, 2)), label=label)
    heights = [*loss[known].tolist(), first.loss, last.loss]
    low, high = min(heights), max(heights)
    room = 0.12 * (high - low) or 0.5
    axes.set_ylim(low - room, high + room)
    axes.set_xlim(way[0], way[-1])
    axes.axhline(first.loss, color=_GREY, linewidth=0.6, linestyle=":", zorder=0.5)
    size = 72 * _SIZE[0], 72 * _SIZE[1]
    shown = [
        replace(point, alpha=at, share=(float((at - way[0]) / (way[-1] - way[0])), 0.0))
        for at, point in ((0.0, first), (length, last))
        if math.isfinite(point.loss)
    ]
    curve = [
        ((at - way[0]) / (way[-1] - way[0]) * size[0], (each - low + room) / (high - low + 2 * room) * size[1])
        for at, each in zip(way[known].tolist(), loss[known].tolist(), strict=True)
    ]
    draw_points(axes, shown, [point.loss for point in shown], size, curve)
    axes.set_xlabel(f"distance from {label_math(first.label)} towards {label_math(last.label)}", labelpad=2)
    axes.set_ylabel(f"loss ({LOSS_UNIT})", labelpad=3)
    axes.legend(fontsize=7, frameon=False, loc="upper center")
    write_note(figure, notes)
    return figure
