"""A slice that is a line: the loss over α as one curve, with the named points and the places evaluated."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from landscape.slices.stored import StoredSlice
from landscape.viewer import style
from landscape.viewer.describe import Description
from landscape.viewer.evaluations import evaluations
from landscape.viewer.labels import text_html
from landscape.viewer.placing import Place, place
from landscape.viewer.trust import evaluated_cells

_FINE = 601  # places at which a reconstruction is read off


def curve(stored: StoredSlice, described: Description, width: float, height: float) -> go.Figure:
    """The loss over α.

    Args:
        stored: the slice.
        described: what it shows.
        width: about how many pixels the axes span.
        height: likewise.
    """
    alpha, loss = curve_losses(stored)
    figure = go.Figure()
    figure.add_traces(style.band(alpha, loss, described.trust.error))
    figure.add_trace(
        go.Scatter(
            x=alpha,
            y=np.where(np.isfinite(loss), loss, np.nan),
            customdata=loss - described.origin.loss,
            mode="lines" if _is_smooth(stored) else "lines+markers",
            line={"color": style.CURVE, "width": 2.2, "simplify": False},
            marker={"size": 5},
            name="loss",
            showlegend=bool(np.isfinite(loss).any()),
            hovertemplate=style.place_hover(described) + style.curve_hover(described, "customdata"),
        )
    )
    style.add_level(figure, described.origin)
    figure.add_traces(evaluations(stored, described, visible=True))
    low, high = loss_limits(stored, described)
    shown = [point for point in described.points if point.inside and math.isfinite(point.loss)]
    for point in sorted(shown, key=lambda point: (not point.small, -point.sign)):
        figure.add_trace(style.marker(point, described, (point.alpha, point.loss)))

    def pixels(a: float, value: float) -> Place:
        share = (a - stored.alpha[0]) / (stored.alpha[-1] - stored.alpha[0]), (value - low) / (high - low)
        return share[0] * width, share[1] * height

    along = np.linspace(alpha[0], alpha[-1], 300)
    offsets = place(
        [pixels(point.alpha, point.loss) for point in shown],
        (width, height),
        [style.label_size(point) for point in shown],
        [point.small for point in shown],
        [
            pixels(a, value)
            for a, value in zip(along, np.interp(along, alpha, loss), strict=True)
            if math.isfinite(value)
        ],
    )
    for point, offset in zip(shown, offsets, strict=True):
        if offset:
            figure.add_annotation(x=point.alpha, y=point.loss, **style.label_style(point, offset))
    figure.update_layout(
        **{**style.layout(), "showlegend": True},
        margin={"l": 58, "r": 8, "t": 26, "b": 52},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        xaxis={
            **style.axis(text_html(described.alpha_title, described.labels)),
            "range": stored.alpha[[0, -1]].tolist(),
            "nticks": 12,
        },
        yaxis={**style.axis(style.LOSS_TITLE), "range": [low, high], "nticks": 8},
    )
    return figure


def curve_losses(stored: StoredSlice) -> tuple[np.ndarray, np.ndarray]:
    """α and loss: those of the grid, or read off the reconstruction more finely."""
    if not _is_smooth(stored) or stored.surface is None:
        return stored.alpha, np.where(stored.done[:, 0], stored.loss[:, 0], np.nan)
    alpha = np.union1d(np.linspace(stored.alpha[0], stored.alpha[-1], _FINE), stored.alpha)
    return alpha, stored.surface(alpha, np.full(len(alpha), stored.beta[0]))


def loss_limits(stored: StoredSlice, described: Description) -> tuple[float, float]:
    """The losses between which the axis runs: the colours' range and the named points, with room at both ends."""
    losses = [point.loss for point in described.points if point.inside and math.isfinite(point.loss)]
    if described.colours:
        losses += [described.colours.low, described.colours.high]
    known = np.concatenate([*stored.nodes.values()])[:, 2]
    if not described.colours and np.isfinite(known).any():
        losses += [float(known[np.isfinite(known)].min()), float(known[np.isfinite(known)].max())]
    low, high = (min(losses), max(losses)) if losses else (0.0, 1.0)
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room


def _is_smooth(stored: StoredSlice) -> bool:
    """Whether the curve is known between the grid's places, too."""
    return stored.surface is not None and not evaluated_cells(stored).any()
