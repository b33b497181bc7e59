"""A figure as plotly has it."""

from __future__ import annotations

import html
import math
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analyses.drawn.figure import MARKERS, Colours, Figure, Panel, Series, around
from analyses.drawn.words import html_text
from landscape.viewer.pages.style import INK, axis, layout

_DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot"}
_SIGNS = dict(zip(MARKERS, ("circle", "square", "triangle-up", "diamond", "x", "cross"), strict=True))
_ROW, _SPACE = 260, 140  # pixels of a row of panels, and of what lies around all of them


def draw(figure: Figure) -> go.Figure:
    """All of it, its legend below."""
    columns = max(map(len, figure.rows))
    titles = [html_text(panel.title) for row in figure.rows for panel in [*row, *[Panel(())] * (columns - len(row))]]
    share_x = "all" if figure.colours else "columns" if figure.share_x else False
    share_y = "all" if figure.colours else "rows" if figure.share_y else False
    gap = (0.25 if figure.share_x else 0.45) / (1 + len(figure.rows))  # titles of x stand in it where each has its own
    made = make_subplots(
        len(figure.rows),
        columns,
        subplot_titles=titles,
        shared_xaxes=share_x,
        shared_yaxes=share_y,
        vertical_spacing=gap,
    )
    shown: set[str] = set()
    for row, panels in enumerate(figure.rows, start=1):
        for column, panel in enumerate(panels, start=1):
            place = {"row": row, "col": column}
            if panel.field is not None:
                field = panel.field
                levels = _levels(figure.colours) if figure.colours else {}
                shape: dict[str, Any] = {
                    "coloraxis": "coloraxis",
                    "contours": levels,
                    "line": {"width": 0.3},
                    "hoverinfo": "x+y+z",
                }
                made.add_trace(go.Contour(x=field.x, y=field.y, z=field.values.T, **shape), **place)
            for each in panel.series:
                if len(each.x):  # plotly takes the axis of a trace without points to be empty
                    _series(made, each, place, shown)
            for x in panel.marks:
                made.add_vline(x=x, line={"color": "#999999", "width": 1, "dash": "dot"}, **place)
            _axes(made, figure, panel, place)
    sizes = {"width": 1100 if columns > 1 else 700, "height": _SPACE + _ROW * len(figure.rows)}
    legend: dict[str, Any] = {
        "title": {"text": html_text(figure.legend_title)},
        "orientation": "h",
        "yanchor": "bottom",
    }
    legend |= {"yref": "container", "y": 0.0}
    margin = {"t": 40, "b": 100, "l": 70, "r": 20}
    made.update_layout(**layout() | {"showlegend": True} | sizes, legend=legend, margin=margin)
    if figure.colours:
        colours = figure.colours
        bar = {"title": {"text": html_text(colours.title)}}
        made.update_layout(
            coloraxis={"cmin": colours.low, "cmax": colours.high, "colorscale": "Viridis", "colorbar": bar}
        )
    return made


def _levels(colours: Colours) -> dict[str, float]:
    return {"start": colours.low, "end": colours.high, "size": (colours.high - colours.low) / 30}


def _series(made: go.Figure, each: Series, place: dict[str, int], shown: set[str]) -> None:
    label = html_text(each.label)
    in_legend = bool(label) and label not in shown
    shown.add(label)
    mode = "+".join(filter(None, ("lines" if each.dash else "", "markers" if each.marker else "")))
    bounds: dict[str, Any] = {}
    if len(each.low):
        above = [high - y for high, y in zip(each.high, each.y, strict=True)]
        below = [y - low for low, y in zip(each.low, each.y, strict=True)]
        bounds["error_y"] = {"array": above, "arrayminus": below, "symmetric": False, "thickness": 1, "width": 0}
    made.add_trace(
        go.Scatter(
            x=list(each.x),
            y=list(each.y),
            mode=mode,
            name=label,
            legendgroup=label,
            showlegend=in_legend,
            line={"color": each.colour, "dash": _DASHES.get(each.dash, "solid"), "width": 1.5},
            marker={
                "color": each.colour,
                "symbol": _SIGNS.get(each.marker, "circle"),
                "size": 9 if each.edged else 6,
                "line": {"color": INK, "width": 1.5 if each.edged else 0},
            },
            text=[html.escape(name) for name in each.names] or None,
            hoverinfo="x+y+text+name",
            **bounds,
        ),
        **place,
    )


def _axes(made: go.Figure, figure: Figure, panel: Panel, place: dict[str, int]) -> None:
    last = place["row"] == len(figure.rows) or not figure.share_x
    first = place["col"] == 1 or not figure.share_y
    x, y = axis(html_text(panel.x_title) if last else ""), axis(html_text(panel.y_title) if first else "")
    if panel.ticks:
        words = [html_text(word).replace("\n", "<br>") for _, word in panel.ticks]
        x |= {"tickvals": [at for at, _ in panel.ticks], "ticktext": words}
    # Where rows share an axis and points have errors, plotly's own choice of a range fails.
    beside = figure.rows[place["row"] - 1] if figure.share_y else (panel,)
    limits = panel.y_limits or around([each for other in beside for each in other.series], panel.y_scale)
    if limits and panel.field is None:
        y["range"] = [math.log10(end) for end in limits] if panel.y_scale == "log" else list(limits)
    made.update_xaxes(type=panel.x_scale, exponentformat="none", **x, **place)  # 0.0001, not 100μ
    made.update_yaxes(type=panel.y_scale, exponentformat="none", **y, **place)
    if panel.identity and (ends := panel.ends()):
        line = go.Scatter(x=ends, y=ends, mode="lines", line={"color": "#999999", "width": 1}, showlegend=False)
        made.add_trace(line, **place)
