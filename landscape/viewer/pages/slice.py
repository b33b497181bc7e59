"""The page of one slice: what it shows in words, its plots, what it says in numbers."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.storage.files import write_whole
from landscape.viewer.described.describe import Description, describe
from landscape.viewer.described.evaluations import node_places
from landscape.viewer.described.labels import label_html, text_html
from landscape.viewer.described.points import PointRow
from landscape.viewer.described.trust import EVALUATED
from landscape.viewer.described.words import number, percent
from landscape.viewer.pages import controls, label_places
from landscape.viewer.pages.frame import whole
from landscape.viewer.pages.parts import fact, figure, notices, trusted
from landscape.viewer.pages.slice_data import line_data, plane_data
from landscape.viewer.pages.tables import findings_tables, layers_table, points_note, points_table
from landscape.viewer.pages.units import units

_WIDTH, _MOST = 1200, 1450  # pixels: the page the sizes are made for, and where it ends to grow
_AROUND = (176, 78)  # pixels that axes, titles and the colour bar take beside and below the contour's rectangle
_EMPTY = '<p class="readout"></p>'  # keeps the surface as high up as the contour, below which there is one
_CURVE = (_WIDTH - 130.0, 402.0)  # pixels of a curve's axes


def write_page(stored: StoredSlice, path: str | Path) -> None:
    """Write the page of `stored`, complete or not, to `path`; a page that stood there is replaced at once.

    Raises:
        StoreError: the place cannot be written.
    """
    write_whole(Path(path), slice_page(stored).encode())


def slice_page(stored: StoredSlice, *, beside: bool = False, live: bool = False, up: str = "") -> str:
    """The page as text.

    Args:
        stored: the slice.
        beside: whether the script is in a file beside the page.
        live: whether the page looks for a newer one.
        up: HTML of links to the pages that this one belongs to.
    """
    described = describe(stored)
    body = f"""<header>
{up}<h1>{html.escape(described.title)}</h1>
<p class="trust">{trusted(described.trust)}</p>
<div class="about">
<p class="caption">{text_html(" ".join(described.caption), described.labels).replace(" %", "&nbsp;%")}</p>
<dl class="facts">{"".join(fact(name, value) for name, value in described.facts)}</dl>
</div>
{notices(described.notices, described.labels)}
</header>
{_controls(stored, described)}
{_curve(stored, described) if stored.is_line else _plane(stored, described)}
{_profile(stored, described)}
{_findings(described)}
<section>
<h2>Named points</h2>
<div class="scroll">{points_table(described)}</div>
<p class="hint note">{points_note(described)}</p>
</section>
{layers_table(stored.tables.get("layers", {}))}
<footer>{_footer(stored)}</footer>"""
    return whole(described.title, body, _data(stored, described), beside=beside, live=live)


def _data(stored: StoredSlice, described: Description) -> dict[str, Any]:
    shown = {"page": "slice", "placesShown": stored.is_line or not stored.complete}
    if stored.is_line:
        return (
            line_data(stored, described)
            | shown
            | {"offsets": {"curve": label_places.on_curve(stored, described, *_CURVE)}}
        )
    tall, (width, height) = _sizes(described.shape)
    eye, aspect = label_places.camera(described), label_places.aspect(stored)
    offsets = {"contour": label_places.on_contour(described, width, height)}
    if described.colours:
        offsets["surface"] = label_places.on_surface(stored, described, described.colours, eye)
    return (
        plane_data(stored, described)
        | shown
        | {
            "offsets": offsets,
            "camera": eye,
            "aspect": dict(zip("xyz", aspect, strict=True)),
            "barLength": height / (tall - _AROUND[1]),
            "ticks": max(3, min(8, round(width / 55))),
        }
    )


def _controls(stored: StoredSlice, described: Description) -> str:
    parts = [
        controls.menu("units", "Distances in", [(unit.key, unit.choice) for unit in units(stored, described.points)])
    ]
    if described.colours:
        origin = described.origin.label
        parts += controls.losses(origin, sliders=not stored.is_line, logarithm=not stored.is_line)
    return controls.form([*parts, controls.theme()])


def _plane(stored: StoredSlice, described: Description) -> str:
    hint = f"Height is the loss in nats per token, {described.trust.short}. Drag to turn, scroll to zoom."
    solid = (
        figure("surface", "Surface", hint, _seen(stored, described, "Surface"), below=_EMPTY)
        if described.colours
        else ""
    )
    losses = described.trust.short
    scale = "to one scale" if described.to_one_scale else "not to one scale"
    drag = " Drag to draw the line of the profile; arrow keys move a cross." if described.colours else ""
    run = " The larger the square of a checkpoint, the farther it lies off the plane." if len(described.path[0]) else ""
    unit = "<span data-unit>L2 distance</span> between weights"
    hint = f"Axes: {unit}; {scale}. {losses[:1].upper()}{losses[1:]}.{run}{drag} {_places(stored)}"
    readout = '<p class="readout" id="readout"></p>'
    both = solid + figure("contour", "Contour", hint, _seen(stored, described, "Contour"), below=readout)
    tall, _ = _sizes(described.shape)
    sizes = (
        f"--tall: {100 * tall / _WIDTH:.2f}vw; --tallest: {tall * _MOST / _WIDTH:.0f}px; "
        f"--shape: {described.shape:.4f}; --beside: {_AROUND[0]}px; --below: {_AROUND[1]}px"
    )
    return f'<div class="plots{"" if solid else " flat"}" style="{sizes}">{both}</div>'


def _curve(stored: StoredSlice, described: Description) -> str:
    hint = f"The loss in nats per token, {described.trust.short}; α is the distance from the weights at 0. "
    hint += _places(stored)
    return f'<div class="curve">{figure("curve", "Curve", hint, _seen(stored, described, "Curve"))}</div>'


def _profile(stored: StoredSlice, described: Description) -> str:
    known = np.isfinite(stored.profile[1]).any() or stored.surface is not None
    if described.profile_line is None or not known:
        return ""
    ends = f"{label_html(described.origin.label)} to {label_html(described.last.label)}"
    if stored.surface is None:
        hint = "On the dotted line of the contour. From the first point to the last every dot is evaluated."
    else:
        how = described.trust.short + (", and interpolated" if described.trust.kind == EVALUATED else "")
        hint = (
            f"Read off the picture on the dotted line of the contour; the picture is {how}. Named points are evaluated."
        )
    named = [(point.name, point.label) for point in described.points]
    menus = "".join(
        controls.plain_menu(f"line-{end.lower()}", end, [("", "a place drawn"), *named]) for end in ("From", "To")
    )
    line = f'<form class="controls">{menus}<button type="button" id="line-reset">Back to the first line</button></form>'
    said = '<p class="readout" id="profile-model"></p>'
    seen = (
        f"Profile of the loss along a straight line, at first from {described.origin.label} to {described.last.label}."
    )
    return f'<div class="profile">{figure("profile", f"Profile from {ends}", hint, seen, above=line, below=said)}</div>'


def _seen(stored: StoredSlice, described: Description, what: str) -> str:
    """A plot in words, for those who cannot see it."""
    losses = described.finite[np.isfinite(described.finite)]
    if not losses.size:
        return f"{what}: no loss is known yet."
    i, j = np.unravel_index(int(np.nanargmin(described.finite)), described.finite.shape)
    low, high = (number(float(end), ".4f") for end in (losses.min(), losses.max()))
    at = f"α = {number(float(stored.alpha[i]), '.3g')}"
    at += "" if stored.is_line else f", β = {number(float(stored.beta[j]), '.3g')}"
    points = "; ".join(map(_point_words, described.points))
    return f"{what} of the loss, from {low} at {at} to {high} nats per token. Named points: {points}."


def _point_words(point: PointRow) -> str:
    change = "" if point.relative is None else f" ({percent(point.relative)})"
    return f"{point.label} {number(point.loss, '.4f')}{change}"


def _sizes(shape: float) -> tuple[float, tuple[float, float]]:
    """On a page `_WIDTH` wide: height of the two plots, lower for a wide contour, and the contour's rectangle."""
    tall = 0.4 * _WIDTH * (0.5 / shape) ** 0.25
    width = min(0.52 * _WIDTH - _AROUND[0], shape * (tall - _AROUND[1]))
    return tall, (width, width / shape)


def _places(stored: StoredSlice) -> str:
    """A box to tick that shows the places evaluated."""
    kinds = (
        ("#f8fafc", "●", len(node_places(stored)), "place evaluated", "places evaluated"),
        ("#f472b6", "◆", len(stored.checks), "checked", "checked, the darker the farther off the picture"),
    )
    words = [
        f'<span class="mark" style="color:{colour}">{sign}</span> {count:,} {what if count > 1 else one}'
        for colour, sign, count, one, what in kinds
        if count
    ]
    return controls.box("places", f"show {', '.join(words)}", "marks") if words else ""


def _findings(described: Description) -> str:
    if not described.findings.rows and not described.findings.others:
        return ""
    hint = (
        "Read off the picture; ± is the largest error expected. Distances go along a direction (+) or against it (−). "
        "The quadratic model is good until it misses a tenth of the change of the loss."
    )
    return f'<section><h2>What the slice says</h2><p class="hint">{hint}</p>{findings_tables(described)}</section>'


def _footer(stored: StoredSlice) -> str:
    a = stored.attributes
    versions = a.get("versions") or {}
    made = [f"Evaluated on {a['device']}"] if a.get("device") else []
    made += [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
    config = json.dumps(a.get("config") or {}, ensure_ascii=False, indent=1)
    settings = f"<details><summary>Settings of the run</summary><pre>{html.escape(config)}</pre></details>"
    return html.escape(", ".join(made)) + (settings if a.get("config") else "")
