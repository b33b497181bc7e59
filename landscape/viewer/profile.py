"""The profile of a slice: the losses on the straight line from the first named point to the last."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from landscape.slices.stored import StoredSlice
from landscape.viewer import style
from landscape.viewer.describe import Description
from landscape.viewer.labels import label_html


def profile(stored: StoredSlice, described: Description) -> go.Figure:
    """Loss over t, the share of the way, with the two points at t = 0 and t = 1."""
    t, loss = profile_losses(stored)
    first, last = described.origin, described.last
    length = math.hypot(last.alpha - first.alpha, last.beta - first.beta)
    figure = go.Figure()
    figure.add_traces(style.band(t, loss, described.trust.error))
    figure.add_trace(
        go.Scatter(
            x=t,
            y=np.where(np.isfinite(loss), loss, np.nan),
            customdata=np.stack([t * length, loss - first.loss], axis=-1),
            mode="lines" if stored.surface else "lines+markers",
            line={"color": style.CURVE, "width": 2, "simplify": False},
            marker={"size": 5},
            hovertemplate=f"t = %{{x:.4g}}, distance %{{customdata[0]:.{described.decimals}f}}<br>"
            + style.curve_hover(described, "customdata[1]"),
        )
    )
    for end, point in ((0.0, first), (1.0, last)):
        if math.isfinite(point.loss):
            figure.add_trace(style.marker(point, described, (end, point.loss)))
            figure.add_annotation(x=end, y=point.loss, **style.label_style(point, (0.0, 27.0)))
    style.add_level(figure, first)
    ends = f"from {label_html(first.label)} (t = 0) to {label_html(last.label)} (t = 1)"
    figure.update_layout(
        **style.layout(),
        margin={"l": 58, "r": 8, "t": 26, "b": 50},
        xaxis={**style.axis(f"t: share of the way {ends}"), "dtick": 0.25},
        yaxis={**style.axis(style.LOSS_TITLE), "nticks": 6},
    )
    return figure


def profile_losses(stored: StoredSlice) -> tuple[np.ndarray, np.ndarray]:
    """The way t and the loss; of a reconstruction, as far as the rectangle reaches."""
    t, loss = stored.profile
    if stored.surface is None:
        return t, loss
    first, last = stored.points[0], stored.points[-1]
    alpha, beta = first.alpha + t * (last.alpha - first.alpha), first.beta + t * (last.beta - first.beta)
    inside = (alpha >= stored.alpha[0]) & (alpha <= stored.alpha[-1])
    inside &= (beta >= stored.beta[0]) & (beta <= stored.beta[-1])
    return t[inside], loss[inside]
