"""What the interactive plots share: fonts, hover texts, markers, labels. Words from the file go in escaped."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from landscape.viewer.describe import QUANTIZED, Description, PointRow
from landscape.viewer.labels import label_html
from landscape.viewer.words import LOSS_UNIT, number

COLOURS = "Viridis"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, GREY, PALE, LIGHT, CURVE = "#1f2933", "#7b8794", "#d3d9df", "#e8ebef", "#31688e"
LOSS_TITLE = f"loss ({LOSS_UNIT})"
LABEL_SIZE = (46.0, 28.0)  # pixels that a label takes, with air


def layout() -> dict[str, Any]:
    """Fonts, colours and hover boxes of a plot."""
    return {
        "template": "none",
        "font": {"family": FONT, "size": 12.5, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hoverlabel": {"bgcolor": "white", "bordercolor": GREY, "font": {"color": INK, "size": 13}, "align": "left"},
        "hovermode": "closest",
        "showlegend": False,
    }


def axis(title: str) -> dict[str, Any]:
    """A plain axis with outside ticks."""
    return {
        "title": {"text": title, "font": {"size": 13}, "standoff": 8},
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": GREY,
        "tickangle": 0,
        "showline": True,
        "linecolor": GREY,
        "gridcolor": LIGHT,
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
    }


def marker_style(point: PointRow) -> dict[str, Any]:
    """The sign of a point; the quantized one in orange."""
    fill = "#fb923c" if point.name == QUANTIZED else "white"
    return {
        "symbol": ("circle", "square", "diamond", "cross")[point.sign],
        "color": fill,
        "line": {"color": INK, "width": 1.8},
    }


def marker(point: PointRow, described: Description, at: tuple[float, float]) -> go.Scatter:
    """`point` as a marker at the place `at` of a flat plot."""
    return go.Scatter(
        x=[at[0]],
        y=[at[1]],
        mode="markers",
        marker={"size": 9 + 2 * point.sign, **marker_style(point)},  # one under another still shows
        name=label_html(point.label),
        showlegend=False,
        hovertemplate=point_hover(point, described),
    )


def label_style(point: PointRow, offset: tuple[float, float]) -> dict[str, Any]:
    """An annotation with the point's label, `offset` pixels from it with y upwards."""
    return {
        "text": label_html(point.label),
        "ax": offset[0],
        "ay": -offset[1],
        "font": {"size": 14, "color": INK},
        "bgcolor": "rgba(255,255,255,0.88)",
        "borderpad": 2,
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": INK,
        "standoff": 7,
        "captureevents": False,
    }


def hover(described: Description, loss: str, change: str | None = None) -> str:
    """A hover text for a place (α, β); `loss` and `change` are placeholders with their formats."""
    digits = described.decimals
    against = f"<br>{change} against {_literal(described.origin.label)}" if change else ""
    place = f"α = %{{x:.{digits}f}}, β = %{{y:.{digits}f}}"
    return f"{place}<br><b>loss {loss}</b> {LOSS_UNIT}{against}<extra></extra>"


def profile_hover(described: Description) -> str:
    """A hover text for a place on the profile, with (distance, change) as custom data."""
    return (
        f"t = %{{x:.4g}}, distance %{{customdata[0]:.{described.decimals}f}}<br><b>loss %{{y:.7g}}</b> {LOSS_UNIT}"
        f"<br>%{{customdata[1]:+.4g}} against {_literal(described.origin.label)}<extra></extra>"
    )


def point_hover(point: PointRow, described: Description) -> str:
    """A hover text for a named point, written out: where heights are clipped, the plot's own z is not the loss."""
    digits = f".{described.decimals}f"
    change = (
        "" if point.change is None else f"<br>{number(point.change, '+.4g')} against {_literal(described.origin.label)}"
    )
    return (
        f"<b>{_literal(point.label)}</b>, α = {number(point.alpha, digits)}, β = {number(point.beta, digits)}"
        f"<br><b>loss {number(point.loss, '#.7g')}</b> {LOSS_UNIT}{change}<extra></extra>"
    )


def _literal(label: str) -> str:
    return label_html(label).replace("%", "&#37;")  # "%{" would start a placeholder


def non_finite_cells(alpha: np.ndarray, beta: np.ndarray, losses: np.ndarray, described: Description) -> dict[str, Any]:
    """Places and words of the non-finite cells, for a scatter trace."""
    rows, columns = np.nonzero(described.non_finite)
    words = [number(float(loss), "") for loss in losses[rows, columns]]
    return {
        "x": alpha[rows],
        "y": beta[columns],
        "text": words,
        "mode": "markers",
        "hovertemplate": hover(described, "%{text}"),
    }
