"""The page of a folder of results: a card for each, by kind, to search and to sort."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from landscape.viewer.described.contents import COMPARISON, MEASUREMENT, SLICE, TRAJECTORY, Card
from landscape.viewer.described.words import listed, shortened
from landscape.viewer.pages import controls
from landscape.viewer.pages.frame import whole
from landscape.viewer.pages.tables import breakable
from landscape.viewer.pages.thumbnails import thumbnail

_NAMES = 2  # shown of many

_SORTS = (
    ("name", "name"),
    ("error", "quantization error, largest first"),
    ("least", "quantization error, smallest first"),
    ("date", "date, latest first"),
)

# (kind, heading, one, several, what it is)
_GROUPS = (
    (
        COMPARISON,
        "Side by side",
        "comparison",
        "comparisons",
        "Slices of one kind and one text, drawn with one colour scale, so that a place as bright is a loss as high.",
    ),
    (
        TRAJECTORY,
        "Training runs",
        "study of training runs",
        "studies of training runs",
        "Checkpoint by checkpoint: the loss of a model while it was trained, what rounding its weights to few bits "
        "costs (the quantization error ΔQ), and how sharply its loss is curved. The picture is ΔQ over tokens seen.",
    ),
    (
        SLICE,
        "Slices",
        "slice",
        "slices",
        "Every place on a slice is one setting of all weights of a model; its colour is the loss the model has with "
        "it: the darker, the better. Dots are the trained weights (dark), an earlier checkpoint (white) and the "
        "quantized weights (orange). ΔQ is by how much rounding raises the loss.",
    ),
    (
        MEASUREMENT,
        "Measurements",
        "measurement",
        "measurements",
        "Numbers of one checkpoint. λ_max says how strongly the loss bends upwards in the worst direction away from "
        "the weights, tr H is the sum over all directions; the picture is how many directions there are (up) of "
        "which curvature (across). ΔQ of an evaluation is by how much rounding raises the loss.",
    ),
)


def contents_page(
    name: str,
    cards: Sequence[Card],
    unreadable: Sequence[tuple[str, str]] = (),
    *,
    beside: bool = True,
    live: bool = False,
) -> str:
    """The page as text.

    Args:
        name: of the folder of results.
        cards: what is in it.
        unreadable: (place, reason) of files that could not be read.
        beside: whether the script is in a file beside the page, as the pages are that its cards lead to.
        live: whether the page looks for a newer one.
    """
    cards = sorted(cards, key=lambda card: (_in_order(card.title), card.place))
    groups = [(group, [card for card in cards if card.kind == group[0]]) for group in _GROUPS]
    groups = [(group, found) for group, found in groups if found]
    body = f"""<header>
<h1>{html.escape(name)}</h1>
<p class="caption">{html.escape(_sentence(groups, cards))}</p>
</header>
{_controls(groups) if len(cards) > 1 else controls.form([controls.theme()])}
<p class="count" id="count" role="status" aria-live="polite"></p>
{"".join(_group(group, found) for group, found in groups)}
{_unreadable(unreadable)}"""
    return whole(f"{name}: results", body, {"page": "contents"}, beside=beside, live=live)


Groups = Sequence[tuple[tuple[str, str, str, str, str], Sequence[Card]]]


def _sentence(groups: Groups, cards: Sequence[Card]) -> str:
    counts = [f"{len(found):,} {group[2] if len(found) == 1 else group[3]}" for group, found in groups]
    models = {model for card in cards if card.kind in (SLICE, MEASUREMENT) for model in card.models}
    quantizers = {quantizer for card in cards for quantizer in card.quantizers}
    about = [
        f"{len(names):,} {word}{'' if len(names) == 1 else 's'}"
        for names, word in ((models, "model"), (quantizers, "quantizer"))
        if names
    ]
    if not counts:
        return "There is no result here yet."
    of = f", with {listed(about)}" if about else ""
    return f"This folder holds {listed(counts)}{of}. A title that is a link leads to a page that can be explored."


def _controls(groups: Groups) -> str:
    label = "title, model, quantizer, text"
    search = f'<label>Find <input type="search" data-choice="find" autocomplete="off" placeholder="{label}"></label>'
    boxes = "".join(controls.box("kinds", html.escape(group[1]), value=group[0]) for group, _ in groups)
    kinds = f'<fieldset class="kinds"><legend>Show</legend>{boxes}</fieldset>' if len(groups) > 1 else ""
    return controls.form([search, kinds, controls.menu("sort", "Sort by", _SORTS), controls.theme()])


def _group(group: tuple[str, str, str, str, str], cards: Sequence[Card]) -> str:
    kind, heading, _, _, what = group
    return (
        f'<section class="group" data-kind="{kind}" aria-labelledby="{kind}-title"><h2 id="{kind}-title">{heading}</h2>'
        f'<p class="hint">{html.escape(what)}</p><ul class="cards">{"".join(map(_card, cards))}</ul></section>'
    )


def _card(card: Card) -> str:
    pictures = "".join(map(thumbnail, card.thumbnails))
    title = breakable(card.title)
    if card.address:
        title = f'<a href="{html.escape(card.address)}">{title}</a>'
    facts = [("Model", _some(card.models, card.title)), ("Quantizer", _some(card.quantizers, card.title)), *card.facts]
    facts += [("Made", card.day)]
    shown = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{breakable(shortened(value))}</dd></div>"
        for name, value in facts
        if value
    )
    place = html.escape(card.place)
    shown += f'<div><dt>From</dt><dd class="place" title="{place}">{place}</dd></div>'
    error = "" if card.error is None else f' data-error="{card.error!r}"'
    unfinished = " unfinished" if card.status.startswith("unfinished") else ""
    return (
        f'<li class="card" data-name="{html.escape(_in_order(card.title))}" data-made="{html.escape(card.made)}"'
        f'{error} data-words="{html.escape(card.searched)}"><div class="seen">{pictures}</div><div class="said">'
        f'<h3>{title}</h3><p class="status{unfinished}">{html.escape(card.status)}</p><dl>{shown}</dl></div></li>'
    )


def _some(names: Sequence[str], title: str) -> str:
    """The first names, without those that the title holds anyway."""
    left = [name for name in names if name not in title]
    return ", ".join(left[:_NAMES]) + (f" and {len(left) - _NAMES:,} more" if left[_NAMES:] else "")


def _in_order(title: str) -> str:
    """What orders titles as people do: small letters, and every number as wide as any other.

    >>> _in_order("Run@9") < _in_order("run@10"), _in_order("peak 0.0003") < _in_order("peak 0.001")
    (True, True)
    """
    return re.sub(r"\d+(\.\d+)?", lambda number: f"{number[0].partition('.')[0]:0>15}{number[1] or ''}", title.lower())


def _unreadable(unreadable: Sequence[tuple[str, str]]) -> str:
    if not unreadable:
        return ""
    items = "".join(
        f"<li><b>{html.escape(place)}</b>: {html.escape(reason)}</li>" for place, reason in sorted(unreadable)
    )
    count = f"{len(unreadable):,} file{'' if len(unreadable) == 1 else 's'} could not be shown"
    return f'<details class="unreadable"><summary>{count}</summary><ul>{items}</ul></details>'
