"""Small pictures as SVG that stands in a page."""

from __future__ import annotations

import base64
import html
import io

import matplotlib
import numpy as np
from matplotlib.image import imsave

from landscape.viewer.described.thumbnails import Field, Lines

_HIGH, _WIDE = 110.0, 132.0  # units of a picture at most; of the style sheet, pixels
_INSET = 4.0
_ODD, _UNKNOWN = (0.62, 0.66, 0.7, 1.0), (0.5, 0.5, 0.5, 0.0)


def thumbnail(picture: Field | Lines) -> str:
    """`picture` as an SVG element with its words; nothing where there is nothing to see."""
    if isinstance(picture, Field):
        return _field(picture)
    return _lines(picture) if picture.lines else ""


def _field(field: Field) -> str:
    width = min(_WIDE, _HIGH * field.shape)
    height = width / field.shape
    dots = "".join(
        f'<circle class="sign{sign}" cx="{across * width:.1f}" cy="{down * height:.1f}" r="3"/>'
        for across, down, sign in reversed(field.points)  # the origin on top
    )
    image = f'<image href="{_png(field)}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none"/>'
    edge = f'<rect class="floor" width="{width:.1f}" height="{height:.1f}"/>'  # seen where cells are still blank
    return _svg(width, height, field.seen, edge + image + dots)


def _lines(lines: Lines) -> str:
    high, wide = _HIGH - 2 * _INSET, _WIDE - 2 * _INSET
    drawn = "".join(
        '<polyline points="{}"/>'.format(
            " ".join(f"{_INSET + across * wide:.1f},{_INSET + (1 - up) * high:.1f}" for across, up in line.tolist())
        )
        for line in lines.lines
        if len(line) > 1
    )
    # one checkpoint is a dot
    dots = "".join(
        f'<circle class="alone" cx="{_INSET + line[0, 0] * wide:.1f}" cy="{_INSET + (1 - line[0, 1]) * high:.1f}" '
        'r="2"/>'
        for line in lines.lines
        if len(line) == 1
    )
    several = " many" if len(lines.lines) > 4 else ""
    floor = f'<path class="floor" d="M0 {_HIGH - 0.5}H{_WIDE}"/>'
    return _svg(_WIDE, _HIGH, lines.seen, f'{floor}<g class="lines{several}">{drawn}{dots}</g>')


def _svg(width: float, height: float, seen: str, content: str) -> str:
    return (
        f'<svg class="thumbnail" role="img" aria-label="{html.escape(seen)}" viewBox="0 0 {width:.1f} {height:.1f}" '
        f'width="{width:.0f}" height="{height:.0f}">{content}</svg>'
    )


def _png(field: Field) -> str:
    pixels = matplotlib.colormaps["viridis"](np.nan_to_num(field.heights))
    pixels[np.isnan(field.heights)] = _UNKNOWN
    pixels[field.odd] = _ODD
    memory = io.BytesIO()
    imsave(memory, pixels, format="png")
    return f"data:image/png;base64,{base64.b64encode(memory.getvalue()).decode()}"
