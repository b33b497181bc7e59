"""The profile of a slice: the losses evaluated on the straight line from Θ_K to Θ̂_K."""

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
    t, loss = stored.profile
    first, last = described.origin, described.last
    length = math.hypot(last.alpha - first.alpha, last.beta - first.beta)
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(
            x=t,
            y=np.where(np.isfinite(loss), loss, np.nan),
            customdata=np.stack([t * length, loss - first.loss], axis=-1),
            mode="lines+markers",
            line={"color": style.CURVE, "width": 2},
            marker={"size": 5},
            hovertemplate=style.profile_hover(described),
        )
    )
    for end, point in ((0.0, first), (1.0, last)):
        if math.isfinite(point.loss):
            figure.add_trace(style.marker(point, described, (end, point.loss)))
            figure.add_annotation(x=end, y=point.loss, **style.label_style(point, (0.0, 27.0)))
    if math.isfinite(first.loss):
        figure.add_hline(y=first.loss, line={"color": style.GREY, "width": 1, "dash": "dot"}, layer="below")
    ends = f"from {label_html(first.label)} (t = 0) to {label_html(last.label)} (t = 1)"
    figure.update_layout(
        **style.layout(),
        margin={"l": 58, "r": 8, "t": 26, "b": 50},
        xaxis={**style.axis(f"t: share of the way {ends}"), "dtick": 0.25},
        yaxis={**style.axis(style.LOSS_TITLE), "nticks": 6},
    )
    return figure
