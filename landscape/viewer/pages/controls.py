"""Controls of a page, as HTML; the script binds each to the choice that it names."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

Options = Sequence[tuple[str, str]]  # key and words, plain text


def form(parts: Iterable[str]) -> str:
    """Controls in a row."""
    return f'<form class="controls" aria-label="Display">{"".join(parts)}</form>'


def menu(choice: str, label: str, options: Options) -> str:
    """A menu; nothing where there is nothing to choose."""
    if len(options) < 2:
        return ""
    return f'<label>{html.escape(label)} <select data-choice="{choice}">{_options(options)}</select></label>'


def plain_menu(name: str, label: str, options: Options) -> str:
    """A menu with an id, that the script binds itself."""
    return f'<label>{html.escape(label)} <select id="{name}">{_options(options)}</select></label>'


def box(choice: str, label: str, kind: str = "", value: str = "") -> str:
    """A box to tick; `label` is HTML, `value` what it adds where a choice is a list."""
    more = f' class="{kind}"' if kind else ""
    of = f' value="{html.escape(value)}"' if value else ""
    return f'<label{more}><input type="checkbox" autocomplete="off" data-choice="{choice}"{of}> {label}</label>'


def losses(origin: str, *, sliders: bool = True, logarithm: bool = True) -> list[str]:
    """Which losses are shown, and how; `origin` is what they are compared with."""
    measures = [
        ("loss", "loss"),
        ("change", f"loss above that of {origin}"),
        ("relative", f"loss above that of {origin}, in %"),
    ]
    found = [menu("measure", "Show", measures)]
    if logarithm:
        found.append(menu("scale", "on a", [("linear", "linear scale"), ("log", "logarithmic scale")]))
    if sliders:
        both = f"{_slider('low', 'lowest')} to {_slider('high', 'highest')}"
        found.append(f"<fieldset><legend>Colours from</legend>{both}</fieldset>")
    return found


def theme() -> str:
    """Light or dark."""
    return menu("theme", "Page", [("auto", "as the system"), ("light", "light"), ("dark", "dark")])


def saving() -> str:
    """Buttons that save the plot of their figure."""
    buttons = "".join(
        f'<button type="button" data-save="{kind}" aria-label="Save as {kind.upper()}">{kind.upper()}</button>'
        for kind in ("png", "svg", "csv")
    )
    return f'<p class="save">Save as {buttons}</p>'


def _slider(end: str, word: str) -> str:
    slider = f'<input type="range" min="0" max="1000" data-end="{end}" aria-label="{word} loss of the colours">'
    return f"{slider}<output></output>"


def _options(options: Options) -> str:
    return "".join(f'<option value="{html.escape(key)}">{html.escape(words)}</option>' for key, words in options)
