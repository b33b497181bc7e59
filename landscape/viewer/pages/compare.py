"""The page of several slices: small multiples to one scale, their quantization steps in one plot, and a verdict."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.comparison import Comparison, Entry, compare, step_words
from landscape.viewer.described.labels import text_html
from landscape.viewer.described.words import LOSS_UNIT, number, percent
from landscape.viewer.pages import controls, label_places
from landscape.viewer.pages.frame import whole
from landscape.viewer.pages.parts import figure, notices
from landscape.viewer.pages.slice_data import plane_data

_FEW = 12  # panels shown at first
_PANEL = (230.0, 330.0)  # pixels of a panel's rectangle: as wide, and as high at most
_LETTERS = 12.0
_LENGTHS = [("distance", "L2 distance"), ("relative", "% of the own ‖Θ_K‖"), ("step", "own quantization steps")]


def compare_page(
    title: str,
    entries: Sequence[tuple[str, StoredSlice, str]],
    *,
    beside: bool = False,
    live: bool = False,
    up: str = "",
) -> str:
    """The page as text.

    Args:
        title: of the page, plain text.
        entries: (name, slice, address of its page or empty) of planes; lines have no place here.
        beside: whether the script is in a file beside the page.
        live: whether the page looks for a newer one.
        up: HTML of links to the pages that this one belongs to.
    """
    shown = compare(title, entries)
    labels = shown.labels
    panels = "".join(_panel(place, entry) for place, entry in enumerate(shown.entries))
    body = f"""<header>
{up}<h1>{html.escape(title)}</h1>
<div class="verdict">{_sentences(shown.verdict, labels)}</div>
<p class="caption">{text_html(" ".join(shown.caption), labels)}</p>
{notices(shown.notices, labels)}
</header>
{_controls(shown)}
<div class="bar" id="bar" aria-hidden="true"><span class="ends"></span><div class="shades"></div></div>
<div class="panels" style="--tall: {_size(shown)[1] + 62:.0f}px">{panels}</div>
{_profiles(shown)}
{_table(shown)}
<footer>{len(shown.entries)} slices. Losses are in {LOSS_UNIT}.</footer>"""
    return whole(title, body, _data(shown), beside=beside, live=live)


def _data(shown: Comparison) -> dict[str, Any]:
    width, height = _size(shown)
    few = min(_FEW, len(shown.entries))
    return {
        "page": "compare",
        "bounds": shown.bounds,
        "shown": [str(place) for place in range(few)],
        "quantized": bool(shown.verdict),
        "pictures": [_picture(shown, entry, width, height) for entry in shown.entries],
    }


def _picture(shown: Comparison, entry: Entry, width: float, height: float) -> dict[str, Any]:
    described, origin = entry.described, entry.described.origin
    data = plane_data(entry.stored, described)
    steps = [unit | {"key": "step"} for unit in data["units"] if unit["key"].startswith("step-")]
    data["units"] = [unit for unit in data["units"] if not unit["key"].startswith("step-")] + steps[-1:]
    data["offsets"] = {"contour": label_places.on_contour(described, width, height, _LETTERS)}
    if described.colours:
        data["colours"] = {"low": described.colours.low, "high": origin.loss * (1 + shown.high)}
    return data | {"name": entry.name, "quantized": entry.quantized.name if entry.quantized else None}


def _size(shown: Comparison) -> tuple[float, float]:
    """Pixels of a panel's rectangle."""
    a, b, c, d = shown.bounds
    shape = (b - a) / (d - c) if _to_one_scale(shown) else 1.0
    width = min(_PANEL[0], _PANEL[1] * shape)
    return width, width / shape


def _to_one_scale(shown: Comparison) -> bool:
    """Whether α and β are drawn to one scale: in all panels, or in none."""
    return all(entry.described.to_one_scale for entry in shown.entries)


def _controls(shown: Comparison) -> str:
    origin = shown.entries[0].described.origin.label
    quantized = any(entry.quantized for entry in shown.entries)
    parts = [*controls.losses(origin), controls.menu("units", "Distances in", _LENGTHS[: 3 if quantized else 2])]
    boxes = "".join(
        controls.box("shown", html.escape(entry.name), value=str(place)) for place, entry in enumerate(shown.entries)
    )
    panels = f"<fieldset><legend>Panels</legend>{boxes}</fieldset>" if len(shown.entries) > 1 else ""
    places = controls.box("places", "places evaluated")
    return controls.form([*parts, places, controls.theme(), panels])


def _panel(place: int, entry: Entry) -> str:
    name, described = html.escape(entry.name), entry.described
    title = f'<a href="{html.escape(entry.address)}">{name}</a>' if entry.address else name
    cost = f" <b>ΔQ {percent(entry.error)}</b>" if entry.error is not None else ""
    seen = f"Contour of the loss of {described.title} on the axes of all panels."
    if entry.quantized:
        seen += f" Quantization moves the weights by {step_words(entry)} and costs {percent(entry.error)}."
    return (
        f'<figure class="panel" data-panel="{place}"><h2 title="{html.escape(described.title)}">{title}{cost}</h2>'
        f'<div class="plot" id="panel-{place}" role="img" tabindex="0" aria-label="{html.escape(seen)}"></div>'
        f'<p class="readout" id="readout-{place}"></p>{controls.saving()}</figure>'
    )


def _profiles(shown: Comparison) -> str:
    if not any(entry.described.profile_line for entry in shown.entries):
        return ""
    hint = (
        "The loss on the straight way from each model to its quantized weights: how far the diamond lies to the right "
        "is how far rounding moves the weights, how steeply the line bends is the curvature, how high the diamond lies "
        "is the cost. Dashed: the quadratic model of each, slope and curvature at its start."
    )
    return figure(
        "profiles", "Along the step of quantization", hint, f"Profiles of all slices. {' '.join(shown.verdict)}"
    )


def _table(shown: Comparison) -> str:
    entries = [entry for entry in shown.entries if entry.quantized]
    if not entries:
        return ""
    head = (
        "<th class='words'>Model</th><th class='words'>Quantizer</th><th>Loss</th><th>Loss, quantized</th><th>ΔQ</th>"
        "<th>Step ‖δ‖ (of ‖Θ‖)</th><th>Curvature along δ, nats per distance²</th><th>Predicted g·δ + ½ δᵀHδ, nats</th>"
        "<th>Evaluated ΔL, nats</th>"
    )
    rows = "".join(_row(entry) for entry in entries)
    return (
        f'<section><h2>In numbers</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _row(entry: Entry) -> str:
    point = entry.quantized
    assert point is not None
    cells = [
        number(entry.described.origin.loss, ".4f"),
        number(point.loss, ".4f"),
        f"<b>{percent(entry.error)}</b>",
        step_words(entry),
        number(entry.curvature, ".3g"),
        number(entry.predicted, ".4f"),
        number(point.change, ".4f"),
    ]
    words = f"<td class='words label'>{html.escape(entry.name)}</td><td class='words'>{html.escape(point.what)}</td>"
    return f"<tr>{words}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _sentences(sentences: Sequence[str], labels: Sequence[str]) -> str:
    """A verdict stands out; its reasons follow."""
    kinds = ["" if each.startswith("The safest") else ' class="more"' for each in sentences]
    return "".join(f"<p{kind}>{text_html(each, labels)}</p>" for kind, each in zip(kinds, sentences, strict=True))
