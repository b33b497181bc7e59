"""Parts that pages share: figures with their buttons, facts, notices, where losses come from."""

from __future__ import annotations

import html
from collections.abc import Sequence

from landscape.viewer.described.labels import text_html
from landscape.viewer.described.trust import Trust
from landscape.viewer.described.words import shortened
from landscape.viewer.pages import controls
from landscape.viewer.pages.tables import breakable


def figure(name: str, title: str, hint: str, seen: str, *, above: str = "", below: str = "") -> str:
    """A plot that the script draws, with what belongs around it.

    Args:
        name: id of the plot.
        title: HTML.
        hint: how to read it, HTML.
        seen: plain text, what the plot shows to those who cannot see it.
        above: HTML between the hint and the plot.
        below: HTML after the plot.
    """
    return (
        f'<figure><h2 id="{name}-title">{title}</h2><p class="hint">{hint}</p>{above}'
        f'<div class="plot" id="{name}" role="img" tabindex="0" aria-label="{html.escape(seen)}"></div>'
        f"{below}{controls.saving()}</figure>"
    )


def trusted(trust: Trust) -> str:
    """Where losses come from, the kind as a badge."""
    kind = trust.words.split()[0].rstrip(":")
    noise = f"{trust.noise[:1].upper()}{trust.noise[1:]}." if trust.noise else ""
    more = " ".join(filter(None, (noise, trust.checked)))
    rest = html.escape(trust.words.removeprefix(kind).removeprefix(":")).replace(" %", "&nbsp;%")
    after = f' <span class="more">{html.escape(more)}</span>' if more else ""
    return f"<b>{kind[:1].upper()}{kind[1:]}</b>{rest}.{after}"


def fact(name: str, value: str) -> str:
    """One entry of a list of facts."""
    full = f' title="{html.escape(value)}"' if shortened(value) != value else ""
    return f"<div><dt>{html.escape(name)}</dt><dd{full}>{breakable(value)}</dd></div>"


def notices(sentences: Sequence[str], labels: Sequence[str]) -> str:
    """What a reader must know first; nothing where there is nothing."""
    items = "".join(f"<li>{text_html(each, labels)}</li>" for each in sentences)
    return f'<ul class="notices" role="status">{items}</ul>' if items else ""
