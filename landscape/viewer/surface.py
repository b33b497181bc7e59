"""The surface of a slice: the loss as height over the plane, in the colours of the contour."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

from landscape.slices.stored import StoredSlice
from landscape.viewer import style
from landscape.viewer.colours import ColourRange
from landscape.viewer.describe import Description
from landscape.viewer.labels import label_html
from landscape.viewer.placing import Place, place
from landscape.viewer.points import PointRow

_PICTURE = (560.0, 480.0)  # pixels for which labels are placed
_SCALE = 250.0  # pixels that a length of 1 in the scene takes there, about


def surface(stored: StoredSlice, described: Description, colours: ColourRange) -> go.Figure:
    """The surface, seen from over its lowest corner, with the named points at their own loss, or where they project."""
    height = colours.high - colours.low
    floor, top = colours.low - 0.25 * height, colours.high + 0.05 * height
    figure = go.Figure()
    figure.add_trace(_sheet(stored, described, colours))
    if described.non_finite.any():
        cells = style.non_finite_cells(stored.alpha, stored.beta, stored.loss, described)
        up = np.full(len(cells["text"]), top)
        figure.add_trace(go.Scatter3d(**cells, z=up, marker={"size": 2.5, "color": style.GREY}))
    shown = [point for point in described.points if point.inside and math.isfinite(point.shown)]
    # A marker sits just above its loss, or the surface would swallow half of it.
    heights = [min(point.shown, colours.high) + (0.015 if point.small else 0.03) * height for point in shown]
    if len(described.path[0]):
        figure.add_trace(_path(stored, described, colours, 0.015 * height))
    for point, z in zip(shown, heights, strict=True):
        if not point.small:
            figure.add_trace(_leader(point, floor, z))
        figure.add_trace(
            go.Scatter3d(
                x=[point.alpha],
                y=[point.beta],
                z=[z],
                mode="markers",
                marker={"size": 3.5 if point.small else 5, **style.marker_style(point)},
                name=label_html(point.label),
                hovertemplate=style.point_hover(point, described),
            )
        )
    camera = _camera(described)
    pixels = [
        _projected(stored, camera, point, (z - floor) / (top - floor)) for point, z in zip(shown, heights, strict=True)
    ]
    sizes, optional = [style.label_size(point) for point in shown], [point.small for point in shown]
    offsets = place(pixels, _PICTURE, sizes, optional)
    figure.update_layout(
        **style.layout(),
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        scene={
            "xaxis": {"range": stored.alpha[[0, -1]].tolist(), **_plain("α")},
            "yaxis": {"range": stored.beta[[0, -1]].tolist(), **_plain("β")},
            "zaxis": {
                "range": [floor, top],
                "tickvals": colours.ticks[::2],
                "tickformat": f".{colours.tick_digits}f",
                **_plain("loss"),
            },
            "aspectmode": "manual",
            "aspectratio": _xyz(_aspect(stored)),
            "camera": {"eye": _xyz(camera), "center": {"x": 0, "y": 0, "z": -0.16}},
            "dragmode": "turntable",
            "annotations": [
                {"x": point.alpha, "y": point.beta, "z": z, **style.label_style(point, offset)}
                for point, z, offset in zip(shown, heights, offsets, strict=True)
                if offset
            ],
        },
    )
    return figure


def _sheet(stored: StoredSlice, described: Description, colours: ColourRange) -> go.Surface:
    lines = {"show": True, "start": colours.lines[0], "end": colours.lines[-1], "size": colours.step}
    hover, words = style.cell_hover(stored, described, "customdata[0]", "customdata[1]")
    return go.Surface(
        x=stored.alpha,
        y=stored.beta,
        z=np.minimum(described.finite, colours.high).T,
        # Not transposed as z is: plotly looks up a surface's custom data and texts by (x, y).
        customdata=np.stack([described.finite, described.finite - described.origin.loss], axis=-1),
        cmin=colours.low,
        cmax=colours.high,
        colorscale=style.COLOURS,
        showscale=False,
        contours={
            "z": {**lines, "color": "rgba(255,255,255,0.5)", "width": 1, "highlight": False},
            "x": {"highlight": False},
            "y": {"highlight": False},
        },
        lighting={"ambient": 0.85, "diffuse": 0.35, "specular": 0.04, "roughness": 0.9},
        text=words,
        hovertemplate=hover,
    )


def _leader(point: PointRow, floor: float, z: float) -> go.Scatter3d:
    leader = {"x": [point.alpha] * 2, "y": [point.beta] * 2, "z": [floor, z]}
    return go.Scatter3d(**leader, mode="lines", line={"color": style.INK, "width": 3}, hoverinfo="skip")


def _path(stored: StoredSlice, described: Description, colours: ColourRange, lift: float) -> go.Scatter3d:
    """The way of the run, lying on the surface."""
    corners = np.arange(len(described.path[0]))
    along = np.linspace(0, len(corners) - 1, 12 * len(corners))
    alpha, beta = (np.interp(along, corners, line) for line in described.path)
    losses = [min(stored.at(a, b), colours.high) + lift for a, b in zip(alpha.tolist(), beta.tolist(), strict=True)]
    line = {"color": "white", "width": 3}
    return go.Scatter3d(x=alpha, y=beta, z=losses, mode="lines", line=line, hoverinfo="skip")


def _plain(title: str) -> dict[str, Any]:
    walls = {"backgroundcolor": "white", "gridcolor": style.PALE, "zerolinecolor": style.PALE, "showspikes": False}
    return {"title": {"text": title}, "nticks": 7, **walls}


def _xyz(values: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip("xyz", values, strict=True))


def _aspect(stored: StoredSlice) -> tuple[float, float, float]:
    a, b = float(np.ptp(stored.alpha)), float(np.ptp(stored.beta))
    longer = max(a, b)
    return 1.3 * max(a / longer, 0.6), 1.3 * max(b / longer, 0.6), 0.8


def _camera(described: Description) -> tuple[float, float, float]:
    """An eye over the corner with the lowest loss, so that no wall stands before the basin."""
    known = np.where(np.isnan(described.finite), np.inf, described.finite)
    away = 1.22 if described.shape > 0.75 else 1.0  # beside a wide contour the surface has less room
    x, y = min(((x, y) for x in (0, -1) for y in (0, -1)), key=lambda corner: float(known[corner]))
    return away * (1.2 if x else -1.2), away * (1.4 if y else -1.4), away


def _projected(stored: StoredSlice, camera: tuple[float, float, float], point: PointRow, up: float) -> Place:
    """About where in the picture a point of the surface appears, `up` being its share of the height."""
    position = (np.array([*point.share, up]) - 0.5) * _aspect(stored)
    ahead = -np.asarray(camera) / np.linalg.norm(camera)
    right = np.cross(ahead, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    above = np.cross(right, ahead)
    return (
        _PICTURE[0] / 2 + _SCALE * float(position @ right),
        _PICTURE[1] / 2 + _SCALE * float(position @ above),
    )
