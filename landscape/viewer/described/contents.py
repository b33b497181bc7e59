"""What a folder of results holds, as cards: who it is, what it says in a number or two, and a small picture.

Losses are in nats per token; ΔQ = L(Θ̂)/L(Θ) − 1 is the quantization error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from landscape.curvature.store import StoredSharpness
from landscape.slices.stored import StoredSlice
from landscape.viewer.described.describe import Description, describe
from landscape.viewer.described.thumbnails import Field, Lines, density_lines, error_lines, slice_thumbnail
from landscape.viewer.described.words import finite, listed, measured, number, percent, text

COMPARISON, TRAJECTORY, SLICE, MEASUREMENT = "comparison", "trajectory", "slice", "measurement"


@dataclass(frozen=True)
class Card:
    """One result.

    Attributes:
        kind: "comparison", "trajectory", "slice" or "measurement".
        address: of its page, from the page with the cards; empty where it has none.
        place: the file or folder behind it.
        status: how far it is and where its numbers come from, in a few words.
        models, quantizers: what it is about.
        facts: (name, value) shown.
        error: ΔQ, the largest of several; None where there is none.
        words: by which it can be found, too.
        made: when, as the file says it in ISO 8601; empty where it does not.
    """

    kind: str
    title: str
    address: str
    place: str
    status: str
    models: tuple[str, ...] = ()
    quantizers: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    error: float | None = None
    made: str = ""
    thumbnails: tuple[Field | Lines, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def day(self) -> str:
        """The date and time it was made, for people."""
        try:
            return f"{datetime.fromisoformat(self.made):%Y-%m-%d %H:%M}"
        except ValueError:
            return ""

    @property
    def searched(self) -> str:
        """All words that it can be found by."""
        words = (self.title, *self.models, *self.quantizers, *self.words, self.place, self.status)
        return " ".join(filter(None, words)).lower()


def slice_card(stored: StoredSlice, address: str, place: str) -> Card:
    """The card of one slice."""
    described, a = describe(stored), stored.attributes
    errors = _errors(described)
    quantizers = _names(a.get("quantizer"))
    return Card(
        SLICE,
        described.title,
        address,
        place,
        _status(stored, described),
        models=_names(a.get("model"), apart=False),
        quantizers=quantizers,
        facts=_facts(("ΔQ", listed([percent(error) for error in errors])), ("Text", text(a.get("text"), ""))),
        error=max(errors, default=None),
        made=_made(a),
        thumbnails=(slice_thumbnail(stored, described),),
        words=_names(a.get("text"), apart=False),
    )


def comparison_card(title: str, cards: Sequence[Card], address: str, place: str) -> Card:
    """The card of several slices side by side; `cards` are theirs."""
    errors = [card.error for card in cards if card.error is not None]
    whole = sum(not card.status.startswith("unfinished") for card in cards)
    return Card(
        COMPARISON,
        title,
        address,
        place,
        f"{len(cards)} slices" + (f", {len(cards) - whole} unfinished" if whole < len(cards) else ""),
        models=tuple(dict.fromkeys(name for card in cards for name in card.models)),
        quantizers=tuple(dict.fromkeys(name for card in cards for name in card.quantizers)),
        facts=_facts(("ΔQ", _span(errors))),
        error=max(errors, default=None),
        made=max(card.made for card in cards),
        thumbnails=tuple(card.thumbnails[0] for card in cards[:4]),
        words=tuple(dict.fromkeys(word for card in cards for word in (card.title, *card.words))),
    )


def plane_words(stored: StoredSlice) -> str:
    """What kind of plane a slice shows."""
    return dict(describe(stored).facts)["Plane"]


def study_card(name: str, rows: Sequence[Mapping[str, Any]], address: str, place: str, made: str) -> Card:
    """The card of a study; `rows` are those of its table, `made` is when that was written."""
    runs, quantizers = _different(rows, "run"), _different(rows, "quantizer")
    checkpoints = {(row["run"], row["checkpoint"]) for row in rows}
    worst, lines = error_lines(rows)
    errors = [error for row in rows if (error := finite(row.get("delta_q"))) is not None]
    count = f"{len(checkpoints):,} {'checkpoint' if len(checkpoints) == 1 else 'checkpoints'}"
    return Card(
        TRAJECTORY,
        name,
        address,
        place,
        count + (f" of {len(runs)} runs" if len(runs) > 1 else f" of {runs[0]}" if runs else ""),
        models=runs,
        quantizers=quantizers,
        facts=_facts(("ΔQ", _span(errors)), ("Drawn", f"ΔQ of {worst} over tokens" if worst else "")),
        error=max(errors, default=None),
        made=made,
        thumbnails=(lines,),
        words=_different(rows, "text"),
    )


def sharpness_card(stored: StoredSharpness, place: str) -> Card:
    """The card of a measurement of curvature."""
    a, sections = stored.attributes, stored.sections
    model, quantizer = text(a.get("model")), text(a.get("quantizer"), "")
    extremes = [
        (label, _eigenvalue(sections.get(f"eigenvalues/{which}")))
        for which, label in (("top", "λ_max"), ("bottom", "λ_min"))
    ]
    trace = sections.get("trace", {})
    traced = measured(float(trace["value"]), float(trace["standard_error"])) if "value" in trace else ""
    return Card(
        MEASUREMENT,
        f"Curvature of {model}",
        "",
        place,
        "curvature" if stored.complete else "unfinished: some parts are still being measured",
        models=(model,),
        quantizers=_names(quantizer),
        facts=_facts(*extremes, ("tr H", traced), ("Text", text(a.get("text"), ""))),
        made=_made(a),
        thumbnails=(density_lines(sections.get("density")),),
        words=_names(a.get("text"), apart=False),
    )


def evaluation_card(content: Mapping[str, Any], place: str) -> Card:
    """The card of an evaluation, from what its file holds."""
    quantizer, model = text(content.get("quantizer"), ""), text(content.get("model"))
    found = content["comparison"]
    alone = quantizer in ("", "none")
    error = None if alone else finite(found["relative"]["value"])
    interval = f"{percent(found['relative']['low'])} to {percent(found['relative']['high'])}" if not alone else ""
    return Card(
        MEASUREMENT,
        f"Loss of {model}" if alone else f"{model}, {quantizer}",
        "",
        place,
        "evaluation",
        models=(model,),
        quantizers=() if alone else (quantizer,),
        facts=_facts(
            ("Loss", measured(found["loss"]["value"], found["loss"]["standard_error"])),
            ("ΔQ", f"{percent(error)} (95 %: {interval})" if error is not None else ""),
            ("Text", text(content.get("text"), "")),
        ),
        error=error,
        made=_made(content),
        words=_names(content.get("text"), apart=False),
    )


def _errors(described: Description) -> list[float]:
    return [
        point.relative
        for point in described.points
        if point.role == "quantized" and point.relative is not None and math.isfinite(point.relative)
    ]


def _span(errors: Sequence[float]) -> str:
    """From the least to the largest; one number where they are the same."""
    return " to ".join(dict.fromkeys(map(percent, (min(errors), max(errors))))) if errors else ""


def _status(stored: StoredSlice, described: Description) -> str:
    if described.trust.kind != "unfinished":
        return described.trust.kind
    done = float(stored.done.mean())
    made = sum(map(len, stored.nodes.values()))  # of a reconstruction nobody knows how many there will be
    return f"unfinished: {made:,} evaluations" if made else f"unfinished: {math.floor(100 * done)} %"


def _eigenvalue(section: Mapping[str, Any] | None) -> str:
    return "" if section is None or not len(section["values"]) else number(float(section["values"][0]), ".4g")


def _names(value: Any, apart: bool = True) -> tuple[str, ...]:
    """Some names in one word, with commas."""
    words = text(value, "").split(",") if apart else [text(value, "")]
    return tuple(filter(None, (word.strip() for word in words)))


def _different(rows: Sequence[Mapping[str, Any]], column: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(row[column]) for row in rows if row.get(column)))


def _facts(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in pairs if value)


def _made(attributes: Mapping[str, Any]) -> str:
    return (text(attributes.get("finished"), "").strip() or text(attributes.get("created"), "")).strip()
