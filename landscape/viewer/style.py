"""What the interactive plots share: fonts, hover texts, markers, labels. Words from the file go in escaped."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from landscape.slices.stored import StoredSlice
from landscape.viewer.describe import Description
from landscape.viewer.labels import label_html, width_in_ems
from landscape.viewer.placing import Place
from landscape.viewer.points import QUANTIZED, PointRow
from landscape.viewer.trust import EVALUATED, RECONSTRUCTED, evaluated_cells
from landscape.viewer.words import LOSS_UNIT, bound, digits_within, number

COLOURS = "Viridis"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, GREY, PALE, LIGHT, CURVE = "#1f2933", "#7b8794", "#d3d9df", "#e8ebef", "#31688e"
LOSS_TITLE = f"loss ({LOSS_UNIT})"
_BAND = "rgba(49,104,142,0.25)"
_LABEL = 14  # pixels, the size of a label's letters


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
    """The sign of a point; the quantized ones in orange."""
    fill = "#fb923c" if point.role == QUANTIZED else "white"
    return {
        "symbol": ("circle", "square", "diamond", "cross")[point.sign],
        "color": fill,
        "line": {"color": INK, "width": 1.2 if point.small else 1.8},
    }


def marker(point: PointRow, described: Description, at: tuple[float, float]) -> go.Scatter:
    """`point` as a marker at the place `at` of a flat plot."""
    size = 7 if point.small else 9 + 2 * point.sign  # one under another still shows
    return go.Scatter(
        x=[at[0]],
        y=[at[1]],
        mode="markers",
        marker={"size": size, **marker_style(point)},
        name=label_html(point.label),
        showlegend=False,
        hovertemplate=point_hover(point, described),
    )


def label_size(point: PointRow) -> Place:
    """Pixels that a point's label takes, with air."""
    return (width_in_ems(point.label) + 1.1) * _LABEL, 2.0 * _LABEL


def label_style(point: PointRow, offset: Place) -> dict[str, Any]:
    """An annotation with the point's label, `offset` pixels from it with y upwards."""
    return {
        "text": label_html(point.label),
        "ax": offset[0],
        "ay": -offset[1],
        "font": {"size": _LABEL - 2 if point.small else _LABEL, "color": INK},
        "bgcolor": "rgba(255,255,255,0.88)",
        "borderpad": 2,
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": INK,
        "standoff": 7,
        "captureevents": False,
    }


def place_hover(described: Description, kind: str = "") -> str:
    """A hover text for a place (α, β) that begins with what `kind` of place it is; its loss is to follow."""
    digits = described.decimals
    beta = "" if described.is_line else f", β = %{{y:.{digits}f}}"
    return f"{kind}{', ' if kind else ''}α = %{{x:.{digits}f}}{beta}<br>"


def cell_hover(stored: StoredSlice, described: Description, loss: str, change: str) -> tuple[str, Any]:
    """A hover text for the cells, and the words that go into it cell by cell, if they differ.

    Args:
        stored: the slice.
        described: what it shows.
        loss: what the plot calls the loss of a cell.
        change: what it calls its difference from the loss of the origin.
    """
    error = described.trust.error
    reconstructed = f"{RECONSTRUCTED}, error ≤ {bound(error)}"
    words = None
    evaluated = evaluated_cells(stored)
    if not evaluated.any() and stored.certificate is not None:
        kind, form, signed = reconstructed, f".{digits_within(error)}f", f"+.{digits_within(error)}f"
    else:
        kind, form, signed = EVALUATED, ".7g", "+.4g"
        if not evaluated[stored.done].all():
            kind, words = "%{text}", np.where(evaluated, EVALUATED, reconstructed)
    return (
        f"{place_hover(described)}<b>loss %{{{loss}:{form}}}</b> {LOSS_UNIT}<br>{kind}<br>"
        f"%{{{change}:{signed}}} against {_literal(described.origin.label)}<extra></extra>"
    ), words


def curve_hover(described: Description, change: str) -> str:
    """What a hover text says of the loss on a curve; `change` is what the plot calls its difference from the origin."""
    error = described.trust.error
    kind, form, signed = described.trust.kind, ".7g", "+.4g"
    if kind != EVALUATED and error > 0:
        digits = digits_within(error)
        kind, form, signed = f"{kind}, error ≤ {bound(error)}", f".{digits}f", f"+.{digits}f"
    return (
        f"<b>loss %{{y:{form}}}</b> {LOSS_UNIT}<br>{kind}<br>"
        f"%{{{change}:{signed}}} against {_literal(described.origin.label)}<extra></extra>"
    )


def band(x: np.ndarray, loss: np.ndarray, error: float) -> list[go.Scatter]:
    """The losses within `error` of a curve, as two traces with what lies between them filled."""
    if not (0 < error < np.inf and np.isfinite(loss).all()):  # plotly fills across gaps
        return []
    plain = {"x": x, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    return [
        go.Scatter(**plain, y=loss - error, showlegend=False),
        go.Scatter(
            **plain, y=loss + error, fill="tonexty", fillcolor=_BAND, name=f"± {bound(error)} nats", showlegend=True
        ),
    ]


def add_level(figure: go.Figure, origin: PointRow) -> None:
    """A dotted line at the loss of the origin."""
    if np.isfinite(origin.loss):
        figure.add_hline(y=origin.loss, line={"color": GREY, "width": 1, "dash": "dot"}, layer="below")


def point_hover(point: PointRow, described: Description) -> str:
    """A hover text for a named point, written out: where heights are clipped, the plot's own z is not the loss."""
    digits = f".{described.decimals}f"
    origin = _literal(described.origin.label)
    beta = "" if described.is_line else f", β = {number(point.beta, digits)}"
    change = "" if point.change is None else f"<br>{number(point.change, '+.4g')} against {origin}"
    off = f"<br>{number(point.residual, '.4g')} off the plane" if point.below is not None else ""
    if point.below is not None and described.colours:
        off += f", where the loss is {number(point.below, '#.5g')}"
    return (
        f"<b>{_literal(point.label)}</b>, α = {number(point.alpha, digits)}{beta}"
        f"<br><b>loss {number(point.loss, '#.7g')}</b> {LOSS_UNIT}, {EVALUATED}{change}{off}<extra></extra>"
    )


def non_finite_cells(alpha: np.ndarray, beta: np.ndarray, losses: np.ndarray, described: Description) -> dict[str, Any]:
    """Places and words of the non-finite cells, for a scatter trace."""
    rows, columns = np.nonzero(described.non_finite)
    words = [number(float(loss), "") for loss in losses[rows, columns]]
    return {
        "x": alpha[rows],
        "y": beta[columns],
        "text": words,
        "mode": "markers",
        "hovertemplate": f"{place_hover(described)}<b>loss %{{text}}</b> {LOSS_UNIT}<extra></extra>",
    }


def _literal(label: str) -> str:
    return label_html(label).replace("%", "&#37;")  # "%{" would start a placeholder
