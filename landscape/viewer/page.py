"""One HTML file with everything in it: it opens from disk, offline, and asks nothing of any network."""

from __future__ import annotations

import html
import json
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
from landscape.viewer.curve import curve
from landscape.viewer.describe import Description, describe
from landscape.viewer.evaluations import CHECK, META, NODE, node_places
from landscape.viewer.labels import label_html, text_html
from landscape.viewer.profile import profile
from landscape.viewer.style import FONT
from landscape.viewer.surface import surface
from landscape.viewer.tables import breakable, findings_tables, layers_table, points_note, points_table
from landscape.viewer.trust import EVALUATED
from landscape.viewer.words import shortened

_WIDTH, _MOST, _LEAST = 1200, 1450, 360  # pixels: the page the sizes are made for, where it ends to grow, lowest plot
_AROUND = (176, 78)  # pixels that axes, titles and the colour bar take beside and below the contour's rectangle
_CURVE = 480  # pixels, the height of a curve
_CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}


def write_page(stored: StoredSlice, path: str | Path) -> None:
    """Write the page of `stored`, complete or not, to `path`; a page that stood there is replaced at once.

    Raises:
        StoreError: the place cannot be written.
    """
    write_whole(Path(path), page(stored).encode())


def page(stored: StoredSlice) -> str:
    """The page as text."""
    described = describe(stored)
    tall, _ = _sizes(described.shape)
    template = Template(resources.files("landscape.viewer").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(described.title),
        font=FONT,
        least_height=_LEAST,
        height=f"{100 * tall / _WIDTH:.2f}vw",
        most_height=round(tall * _MOST / _WIDTH),
        curve_height=_CURVE,
        shape=f"{described.shape:.4f}",
        beside=_AROUND[0],
        below=_AROUND[1],
        plotly=get_plotlyjs(),
        trust=_trust(described),
        caption=text_html(" ".join(described.caption), described.labels).replace(" %", "&nbsp;%"),
        facts="\n".join(_fact(name, value) for name, value in described.facts),
        notices=_notices(described),
        plots=_curve(stored, described) if stored.is_line else _plane(stored, described),
        profile=_profile(stored, described),
        findings=_findings(described),
        points=points_table(described),
        points_note=points_note(described),
        meta=META,
        layers=layers_table(stored.tables.get("layers", {})),
        footer=_footer(stored),
    )


def _plane(stored: StoredSlice, described: Description) -> str:
    tall, rectangle = _sizes(described.shape)
    hint = f"Height is the loss in nats per token, {described.trust.short}. Drag to turn, scroll to zoom."
    if described.colours:
        solid = _figure("Surface", hint, surface(stored, described, described.colours), "surface")
    else:
        solid = ""
    flat = contour(stored, described, *rectangle, tall - _AROUND[1])
    both = solid + _figure("Contour", _contour_hint(stored, described), flat, "contour")
    return f'<div class="plots{"" if solid else " flat"}">{both}</div>'


def _curve(stored: StoredSlice, described: Description) -> str:
    hint = f"The loss in nats per token, {described.trust.short}; α is the L2 distance from the weights at 0."
    drawn = curve(stored, described, _WIDTH - 130.0, _CURVE - 78.0)
    return f'<div class="curve">{_figure("Curve", hint, drawn, "curve")}</div>'


def _profile(stored: StoredSlice, described: Description) -> str:
    known = np.isfinite(stored.profile[1]).any() or stored.surface is not None
    if described.profile_line is None or not known:
        return ""
    ends = f"{label_html(described.origin.label)} to {label_html(described.last.label)}"
    where = "on the straight line between the two points, dotted in the contour."
    if stored.surface is None:
        hint = f"Every dot is evaluated {where}"
    else:
        how = described.trust.short + (", and interpolated" if described.trust.kind == EVALUATED else "")
        hint = f"Read off the picture {where} The two points are evaluated themselves; the picture is {how}."
    return f'<div class="profile">{_figure(f"Profile from {ends}", hint, profile(stored, described), "profile")}</div>'


def _figure(title: str, hint: str, figure: go.Figure, name: str) -> str:
    # plotly writes "<", ">" and "/" of its JSON as \u003c and so on: nothing in the data can end the script.
    drawn = to_html(figure, config=_CONFIG, include_plotlyjs=False, full_html=False, div_id=name)
    return f'<figure><h2>{title}</h2><p class="hint">{hint}</p><div class="plot">{drawn}</div></figure>'


def _sizes(shape: float) -> tuple[float, tuple[float, float]]:
    """On a page `_WIDTH` wide: height of the two plots, lower for a wide contour, and the contour's rectangle."""
    tall = 0.4 * _WIDTH * (0.5 / shape) ** 0.25
    width = min(0.52 * _WIDTH - _AROUND[0], shape * (tall - _AROUND[1]))
    return tall, (width, width / shape)


def _trust(described: Description) -> str:
    trust = described.trust
    kind = trust.words.split()[0].rstrip(":")
    noise = f"{trust.noise[:1].upper()}{trust.noise[1:]}." if trust.noise else ""
    more = " ".join(filter(None, (noise, trust.checked)))
    rest = html.escape(trust.words.removeprefix(kind).removeprefix(":")).replace(" %", "&nbsp;%")
    after = f' <span class="more">{html.escape(more)}</span>' if more else ""
    return f"<b>{kind[:1].upper()}{kind[1:]}</b>{rest}.{after}"


def _fact(name: str, value: str) -> str:
    whole = f' title="{html.escape(value)}"' if shortened(value) != value else ""
    return f"<div><dt>{html.escape(name)}</dt><dd{whole}>{breakable(value)}</dd></div>"


def _contour_hint(stored: StoredSlice, described: Description) -> str:
    scale = "axes to one scale" if described.to_one_scale else "axes not to one scale"
    losses = described.trust.short
    return (
        f"α and β are L2 distances between weights; {scale}. {losses[:1].upper()}{losses[1:]}.{_box(stored, 'contour')}"
    )


def _box(stored: StoredSlice, plot: str) -> str:
    """A box to tick that shows the places evaluated."""
    kinds = (
        (NODE, "●", len(node_places(stored)), "place evaluated", "places evaluated"),
        (CHECK, "◆", len(stored.checks), "checked", "checked"),
    )
    words = [
        f'<span class="mark" style="color:{colour}">{sign}</span> {count:,} {what if count > 1 else one}'
        for colour, sign, count, one, what in kinds
        if count
    ]
    ticked = "" if stored.complete else " checked"
    box = f'<input type="checkbox" autocomplete="off" data-marks="{plot}"{ticked}>'
    return f'<label class="marks">{box} show {", ".join(words)}</label>' if words else ""


def _findings(described: Description) -> str:
    if not described.findings.rows and not described.findings.others:
        return ""
    hint = (
        "Read off the picture; ± is the largest error expected. Distances go along a direction (+) or against it (−). "
        "The quadratic model is good until it misses a tenth of the change of the loss."
    )
    return f'<section><h2>What the slice says</h2><p class="hint">{hint}</p>{findings_tables(described)}</section>'


def _notices(described: Description) -> str:
    items = "".join(f"<li>{text_html(notice, described.labels)}</li>" for notice in described.notices)
    return f'<ul class="notices" role="status">{items}</ul>' if items else ""


def _footer(stored: StoredSlice) -> str:
    a = stored.attributes
    versions = a.get("versions") or {}
    made = [f"Evaluated on {a['device']}"] if a.get("device") else []
    made += [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
    config = json.dumps(a.get("config") or {}, ensure_ascii=False, indent=1)
    settings = f"<details><summary>Settings of the run</summary><pre>{html.escape(config)}</pre></details>"
    return html.escape(", ".join(made)) + (settings if a.get("config") else "")
