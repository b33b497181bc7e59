"""Labels of named points: how `Θ_{K−1}` is set in HTML and in mathtext."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

_SUBSCRIPTED = re.compile(r"(\w\u0302?)_(?:\{([^{}]+)\}|([^_{}]))")
_HAT = "\N{COMBINING CIRCUMFLEX ACCENT}"

# Many fonts draw the hat where it fits a small letter; this moves it over a capital, in HTML and in SVG alike.
_RAISED_HAT = (
    '<span style="letter-spacing:-0.09em">{}</span>'
    f'<span style="letter-spacing:0.09em;baseline-shift:0.15em;vertical-align:0.15em;line-height:0">{_HAT}</span>'
)


def label_html(label: str) -> str:
    """`label` as HTML that both browsers and plotly read; markup in it is shown, not obeyed.

    >>> label_html("Θ_{K−1}"), label_html("<b>")
    ('Θ<sub>K−1</sub>', '&lt;b&gt;')
    """
    found = _SUBSCRIPTED.fullmatch(label)
    if not found:
        return html.escape(label)
    letter, hat, _ = found[1].partition(_HAT)
    letter = html.escape(letter)
    return f"{_RAISED_HAT.format(letter) if hat else letter}<sub>{html.escape(found[2] or found[3])}</sub>"


def text_html(text: str, labels: Sequence[str]) -> str:
    """`text` as HTML, with every one of `labels` in it set as `label_html` sets it."""
    return "".join(label_html(part) if part in labels else html.escape(part) for part in _split(text, labels))


def label_math(label: str) -> str:
    r"""`label` for matplotlib: a formula where it is Θ or Θ̂ with a subscript, else the text itself.

    >>> print(label_math("Θ_{K−1}"), label_math("Θ̂_{rtn-w3}"))
    $\Theta_{K{-}1}$ $\hat{\Theta}_{\mathrm{rtn‐w3}}$
    """
    found = _SUBSCRIPTED.fullmatch(label)
    if not found or found[1][0] != "Θ" or not re.fullmatch(r"[\w−+.,/ -]+", found[2] or found[3]):
        return label.replace("$", r"\$")
    letter = r"\hat{\Theta}" if _HAT in found[1] else r"\Theta"
    below = found[2] or found[3]
    if re.search(r"\w\w", below):  # a word: upright, with hyphens that are no minus signs
        below = below.replace("-", "‐").replace(" ", r"\ ").replace("_", r"\_")
        return f"${letter}_{{\\mathrm{{{below}}}}}$"
    return f"${letter}_{{{below.replace('−', '{-}')}}}$"


def text_math(text: str, labels: Sequence[str]) -> str:
    """`text` for matplotlib, with every one of `labels` in it set as `label_math` sets it."""
    return "".join(label_math(part) if part in labels else part.replace("$", r"\$") for part in _split(text, labels))


def width_in_ems(label: str) -> float:
    """About how wide `label` is as it is set, in units of the font's size."""
    found = _SUBSCRIPTED.fullmatch(label)
    if not found:
        return 0.6 * len(label)
    return 0.75 + 0.46 * len(found[2] or found[3])


def _split(text: str, labels: Sequence[str]) -> list[str]:
    longest_first = sorted(filter(None, labels), key=len, reverse=True)
    return re.split(f"({'|'.join(map(re.escape, longest_first))})", text) if longest_first else [text]
