"""One HTML file with everything in it: it opens from disk, offline, and asks nothing of any network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np
import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from landscape.files import write_whole
from landscape.slices.stored import StoredSlice
from landscape.viewer.contour import contour
from landscape.viewer.describe import QUANTIZED, Description, describe
from landscape.viewer.labels import label_html, text_html
from landscape.viewer.profile import profile
from landscape.viewer.style import FONT
from landscape.viewer.surface import surface
from landscape.viewer.words import number, percent, shortened

_WIDTH, _MOST, _LEAST = 1200, 1450, 360  # pixels: the page the sizes are made for, where it ends to grow, lowest plot
_AROUND = (176, 78)  # pixels that axes, titles and the colour bar take beside and below the contour's rectangle
_CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}
_SYMBOLS = "●■◆✚"


def write_page(stored: StoredSlice, path: str | Path) -> None:
    """Write the page of `stored`, complete or not, to `path`; a page that stood there is replaced at once.

    Raises:
        StoreError: the place cannot be written.
    """
    write_whole(Path(path), page(stored).encode())


def page(stored: StoredSlice) -> str:
    """The page as text."""
    described = describe(stored)
    tall, rectangle = _sizes(described.shape)
    template = Template(resources.files("landscape.viewer").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(described.title),
        font=FONT,
        least_height=_LEAST,
        height=f"{100 * tall / _WIDTH:.2f}vw",
        most_height=round(tall * _MOST / _WIDTH),
        shape=f"{described.shape:.4f}",
        beside=_AROUND[0],
        below=_AROUND[1],
        plotly=get_plotlyjs(),
        caption=text_html(" ".join(described.caption), described.labels).replace(" %", "&nbsp;%"),
        facts="\n".join(_fact(name, value) for name, value in described.facts),
        notices=_notices(described),
        surface=_div(surface(stored, described), "surface"),
        contour_hint=_contour_hint(described),
        contour=_div(contour(stored, described, *rectangle, tall - _AROUND[1]), "contour"),
        profile_ends=f"{label_html(described.origin.label)} to {label_html(described.last.label)}",
        profile=_div(profile(stored, described), "profile-plot"),
        points=_points(described),
        points_note=_points_note(described),
        layers=_layers(stored.tables.get("layers", {})),
        footer=_footer(stored),
    )


def _div(figure: go.Figure, name: str) -> str:
    # plotly writes "<", ">" and "/" of its JSON as \u003c and so on: nothing in the data can end the script.
    return str(to_html(figure, config=_CONFIG, include_plotlyjs=False, full_html=False, div_id=name))


def _sizes(shape: float) -> tuple[float, tuple[float, float]]:
    """On a page `_WIDTH` wide: height of the two plots, lower for a wide contour, and the contour's rectangle."""
    tall = 0.4 * _WIDTH * (0.5 / shape) ** 0.25
    width = min(0.52 * _WIDTH - _AROUND[0], shape * (tall - _AROUND[1]))
    return tall, (width, width / shape)


def _fact(name: str, value: str) -> str:
    whole = f' title="{html.escape(value)}"' if shortened(value) != value else ""
    return f"<div><dt>{html.escape(name)}</dt><dd{whole}>{_breakable(value)}</dd></div>"


def _breakable(reference: str) -> str:
    return re.sub("[/@:._]", r"\g<0><wbr>", html.escape(shortened(reference)))


def _contour_hint(described: Description) -> str:
    scale = "axes to one scale" if described.to_one_scale else "axes not to one scale"
    return f"α and β are L2 distances between weights; {scale}."


def _notices(described: Description) -> str:
    items = "".join(f"<li>{text_html(notice, described.labels)}</li>" for notice in described.notices)
    return f'<ul class="notices" role="status">{items}</ul>' if items else ""


def _points(described: Description) -> str:
    origin, digits = label_html(described.origin.label), f".{described.decimals}f"
    head = ("Point", "What it is", "Loss", "Perplexity", f"ΔL = L − L({origin})", "ΔL / L", "α", "β", "Distance")
    rows = []
    for point in described.points:
        hat = " hat" if point.name == QUANTIZED else ""
        symbol = f'<span class="symbol{hat}">{_SYMBOLS[point.sign]}</span>'
        relative = percent(point.relative)
        cells = (
            number(point.loss, ".6f"),
            number(point.perplexity, "#.6g"),
            number(point.change, "+.6f"),
            f"ΔQ = {relative}" if point.name == QUANTIZED else relative,
            number(point.alpha, digits),
            number(point.beta, digits),
            number(point.distance, digits),
            number(point.residual, ".1e" if point.residual else ".0f"),
        )
        rows.append(
            f'<tr data-point="{html.escape(point.name)}"><td class="words label">{symbol}{label_html(point.label)}</td>'
            f'<td class="words">{_breakable(point.what)}</td>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        )
    return _table((*head, "Out of plane"), rows)


def _points_note(described: Description) -> str:
    origin = label_html(described.origin.label)
    return (
        f"Losses in nats per token, evaluated at the points themselves; perplexity = exp(loss); ΔL / L is relative to "
        f"{origin} and is the quantization error ΔQ for the quantized weights. Distances from {origin} in weight space "
        f"(L2), “out of plane” being the part that the plane does not show."
    )


def _layers(columns: dict[str, np.ndarray]) -> str:
    if not columns:
        return ""
    names = [name for name in _COLUMNS if name in columns] + [name for name in columns if name not in _COLUMNS]
    rows = []
    for values in zip(*(columns[name].tolist() for name in names), strict=True):
        rows.append(f"<tr>{''.join(map(_cell, values))}</tr>")
    head = [html.escape(_COLUMNS.get(name, name.replace("_", " "))) for name in names]
    count = f"{len(rows):,} layer" + ("" if len(rows) == 1 else "s")
    return (
        f"<details><summary>The quantizer's report, {count}</summary>"
        f'<div class="scroll">{_table(head, rows)}</div></details>'
    )


_LEFT = ' class="words"'
_COLUMNS = {
    "name": "Layer",
    "inputs": "Inputs",
    "bits": "Bits",
    "group_size": "Group size",
    "step_norm": "Step ‖δ‖",
    "weight_error": "Weight error",
    "output_error": "Output error",
    "rtn_output_error": "Output error, rounding to nearest",
    "damping": "Damping",
    "retries": "Retries",
    "dead_inputs": "Dead inputs",
    "fallback": "Fallback",
}


def _cell(value: object) -> str:
    if isinstance(value, str):
        return f"<td{_LEFT}>{_breakable(value)}</td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    return f"<td>{number(value, '.4g') if isinstance(value, float) else value}</td>"


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    cells = "".join(f"<th{_LEFT if name in ('Point', 'What it is', 'Layer') else ''}>{name}</th>" for name in head)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _footer(stored: StoredSlice) -> str:
    a = stored.attributes
    versions = a.get("versions") or {}
    made = [f"Evaluated on {a['device']}"] if a.get("device") else []
    made += [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
    config = json.dumps(a.get("config") or {}, ensure_ascii=False, indent=1)
    settings = f"<details><summary>Settings of the run</summary><pre>{html.escape(config)}</pre></details>"
    return html.escape(", ".join(made)) + (settings if a.get("config") else "")
