"""The places that were evaluated off the grid, as marks on a plot: nodes, and check points with their differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from landscape.slices.stored import StoredSlice
from landscape.viewer import style
from landscape.viewer.describe import Description
from landscape.viewer.words import LOSS_UNIT

NODE, CHECK = "#f8fafc", "#f472b6"
META = "evaluation"  # what traces that belong here are called, for the page to find them


def evaluations(stored: StoredSlice, described: Description, visible: bool) -> list[go.Scatter]:
    """Marks for the nodes and for the check points; the page has a box to tick that shows and hides them.

    Args:
        stored: the slice.
        described: what it shows.
        visible: whether they are seen at first.
    """
    both: dict[str, Any] = {"mode": "markers", "visible": visible, "meta": META, "showlegend": stored.is_line}
    both["cliponaxis"] = False  # many lie on the edges
    loss = f"<b>loss %{{customdata[0]:.7g}}</b> {LOSS_UNIT}"
    traces = []
    nodes = node_places(stored)
    if len(nodes):
        traces.append(
            go.Scatter(
                x=nodes[:, 0],
                y=nodes[:, 2] if stored.is_line else nodes[:, 1],
                customdata=nodes[:, 2:],
                **both,
                marker={"symbol": "circle", "size": 5, "color": NODE, "line": {"color": style.INK, "width": 0.8}},
                name=f"{len(nodes):,} evaluated places",
                hovertemplate=f"{style.place_hover(described, 'evaluated')}{loss}<extra></extra>",
            )
        )
    if len(stored.checks):
        difference = stored.checks[:, 3] - stored.checks[:, 2]
        traces.append(
            go.Scatter(
                x=stored.checks[:, 0],
                y=stored.checks[:, 2] if stored.is_line else stored.checks[:, 1],
                customdata=np.stack([stored.checks[:, 2], difference], axis=-1),
                **both,
                marker={"symbol": "diamond", "size": 6, "color": CHECK, "line": {"color": style.INK, "width": 0.8}},
                name=f"{len(stored.checks):,} check points",
                hovertemplate=f"{style.place_hover(described, 'check point')}{loss}, evaluated<br>"
                "the picture differs by %{customdata[1]:+.2g}<extra></extra>",
            )
        )
    return traces


def node_places(stored: StoredSlice) -> np.ndarray:
    """(n, 3) α, β, loss: all evaluations off the grid but the check points, of which some became nodes later."""
    checked = {(alpha, beta) for alpha, beta, *_ in stored.checks.tolist()}
    rows = np.concatenate(list(stored.nodes.values()))
    # Where the scan is less precise than float32, a check point has an evaluation of either kind.
    return rows[[(alpha, beta) not in checked for alpha, beta, _ in rows.tolist()]]
