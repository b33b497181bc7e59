"""The contour of a slice: colours and lines of equal loss over (α, β), with the named points."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from landscape.slices.stored import StoredSlice
from landscape.viewer import style
from landscape.viewer.colours import ColourRange
from landscape.viewer.describe import Description, grey_area
from landscape.viewer.evaluations import evaluations
from landscape.viewer.labels import text_html
from landscape.viewer.placing import place


def contour(stored: StoredSlice, described: Description, width: float, height: float, paper: float) -> go.Figure:
    """The loss over α and β.

    Args:
        stored: the slice.
        described: what it shows.
        width: about how many pixels the rectangle will have.
        height: likewise.
        paper: height of the plot without its margins.
    """
    figure = go.Figure()
    if described.non_finite.any():
        figure.add_trace(_grey_cells(stored, described))
    if described.colours:
        figure.add_trace(_filled(stored, described, described.colours, height / paper))
    figure.add_traces(_lines(described))
    if described.non_finite.any():
        spacing = min(width / len(stored.alpha), height / len(stored.beta))
        figure.add_trace(
            go.Scatter(
                **style.non_finite_cells(stored.alpha, stored.beta, stored.loss, described),
                marker={
                    "symbol": "x-thin",
                    "size": min(6.0, max(1.5, 0.5 * spacing)),
                    "line": {"width": min(1.2, 0.2 * spacing), "color": style.GREY},
                },
                name="non-finite loss",
                showlegend=True,
            )
        )
    figure.add_traces(evaluations(stored, described, visible=not stored.complete))
    for point in sorted(described.points, key=lambda point: (not point.small, -point.sign)):
        figure.add_trace(style.marker(point, described, (point.alpha, point.beta)))
    shown = [point for point in described.points if point.inside]
    offsets = place(
        [(point.share[0] * width, point.share[1] * height) for point in shown],
        (width, height),
        [style.label_size(point) for point in shown],
        [point.small for point in shown],
    )
    for point, offset in zip(shown, offsets, strict=True):
        if offset:
            figure.add_annotation(x=point.alpha, y=point.beta, **style.label_style(point, offset))
    figure.update_layout(
        **{**style.layout(), "showlegend": True, "plot_bgcolor": style.LIGHT},
        margin={"l": 58, "r": 8 if described.colours else 110, "t": 26, "b": 52},
        hoverdistance=12,  # pixels; a marker answers only when the pointer is on it, else the cell does
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.0,
            "yanchor": "bottom",
            "itemsizing": "constant",
            "itemclick": False,
        },
        xaxis={
            **style.axis(text_html(described.alpha_title, described.labels)),
            "range": stored.alpha[[0, -1]].tolist(),
            "nticks": max(3, min(8, round(width / 55))),
        },
        yaxis={
            **style.axis(text_html(described.beta_title, described.labels)),
            "range": stored.beta[[0, -1]].tolist(),
            "nticks": 8,
        },
    )
    if described.to_one_scale:
        figure.update_xaxes(constrain="domain", constraintoward="right")
        figure.update_yaxes(scaleanchor="x", scaleratio=1, constrain="domain", constraintoward="middle")
    return figure


def _filled(stored: StoredSlice, described: Description, colours: ColourRange, length: float) -> go.Contour:
    lines = colours.lines
    hover, words = style.cell_hover(stored, described, "z", "customdata")
    return go.Contour(
        x=stored.alpha,
        y=stored.beta,
        z=described.finite.T,
        customdata=(described.finite - described.origin.loss).T,
        zmin=colours.low,
        zmax=colours.high,
        colorscale=style.COLOURS,
        contours={"coloring": "heatmap", "start": lines[0], "end": lines[-1], "size": colours.step},
        line={"width": 0.8, "color": "rgba(255,255,255,0.55)", "smoothing": 0.6},
        colorbar={
            "title": {"text": style.LOSS_TITLE, "side": "right", "font": {"size": 13}},
            "thickness": 14,
            "ypad": 0,
            "len": length,
            "xpad": 12,
            "outlinewidth": 0,
            "tickvals": colours.ticks,
            "tickformat": f".{colours.tick_digits}f",
        },
        hoverongaps=False,
        text=None if words is None else words.T,
        hovertemplate=hover,
    )


def _grey_cells(stored: StoredSlice, described: Description) -> go.Heatmap:
    return go.Heatmap(
        x=stored.alpha,
        y=stored.beta,
        z=np.where(grey_area(described), 1.0, np.nan).T,
        colorscale=[[0, style.PALE], [1, style.PALE]],
        showscale=False,
        hoverinfo="skip",
    )


def _lines(described: Description) -> list[go.Scatter]:
    """The way of the run, and the line that the profile shows."""
    lines = []
    if len(described.path[0]):
        lines.append((described.path, {"color": "rgba(255,255,255,0.75)", "width": 1.5}))
    if described.profile_line is not None:
        colour = "white" if described.colours else style.GREY
        lines.append((described.profile_line, {"color": colour, "width": 1.5, "dash": "dot"}))
    return [
        go.Scatter(x=line[0], y=line[1], mode="lines", line=style_of, hoverinfo="skip", showlegend=False)
        for line, style_of in lines
    ]
