"""Θ̂, λ_max and Θ_{K−1} in titles and labels, as matplotlib sets them and as plotly does."""

from __future__ import annotations

import html
import re

_SYMBOL = re.compile(  # letter, hat, what is below it in braces or without
    r"(?<![^\W_])([^\W\d_])(\u0302?)(?:_\{([^{}]+)\}|_([^\W_]+)|(?<=\u0302))"
)


def math_text(text: str) -> str:
    r"""`text` for matplotlib, letters with a hat or with something below them as formulas.

    >>> print(math_text("λ_max of cost $1"), math_text("Θ_{K−1}"))
    $λ_{\mathrm{max}}$ of cost \$1 $Θ_{K−1}$
    """
    return _SYMBOL.sub(_formula, text.replace("$", r"\$")).replace("ᵀ", r"$^{\mathrm{T}}$")


def _formula(found: re.Match[str]) -> str:
    letter = rf"\hat{{{found[1]}}}" if found[2] else found[1]
    below = found[3] or found[4] or ""
    if re.search(r"[^\W\d_]{2}", below):  # a word: upright
        below = rf"\mathrm{{{below}}}"
    return f"${letter}_{{{below}}}$" if below else f"${letter}$"


def html_text(words: str) -> str:
    """Words as plotly and a browser read them, subscripts as such.

    >>> html_text("λ_max <b>")
    'λ<sub>max</sub> &lt;b&gt;'
    """
    return _SYMBOL.sub(_below, html.escape(words))


def _below(found: re.Match[str]) -> str:
    below = found[3] or found[4]
    return f"{found[1]}{found[2]}" + (f"<sub>{below}</sub>" if below else "")
