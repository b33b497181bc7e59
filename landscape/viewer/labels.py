"""Labels of named points: how `Θ_{K−1}` is set in HTML and in mathtext, and where labels go so that none overlap."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

_SUBSCRIPTED = re.compile(r"(\w\u0302?)_(?:\{([^_{}]+)\}|([^_{}]))")
_HAT = "\N{COMBINING CIRCUMFLEX ACCENT}"
_DIRECTIONS = [math.radians(degrees) for degrees in (35, 145, -35, -145, 90, -90, 0, 180, 60, 120, -60, -120)]
_REACHES = (1.0, 1.8, 2.8)

# Many fonts draw the hat where it fits a small letter; this moves it over a capital, in HTML and in SVG alike.
_RAISED_HAT = (
    '<span style="letter-spacing:-0.09em">{}</span>'
    f'<span style="letter-spacing:0.09em;baseline-shift:0.15em;vertical-align:0.15em;line-height:0">{_HAT}</span>'
)

Place = tuple[float, float]


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

    >>> print(label_math("Θ_{K−1}"))
    $\Theta_{K{-}1}$
    """
    found = _SUBSCRIPTED.fullmatch(label)
    if not found or found[1][0] != "Θ" or not re.fullmatch(r"[\w−+]+", found[2] or found[3]):
        return label.replace("$", r"\$")
    letter = r"\hat{\Theta}" if _HAT in found[1] else r"\Theta"
    return f"${letter}_{{{(found[2] or found[3]).replace('−', '{-}')}}}$"


def text_math(text: str, labels: Sequence[str]) -> str:
    """`text` for matplotlib, with every one of `labels` in it set as `label_math` sets it."""
    return "".join(label_math(part) if part in labels else part.replace("$", r"\$") for part in _split(text, labels))


def _split(text: str, labels: Sequence[str]) -> list[str]:
    longest_first = sorted(filter(None, labels), key=len, reverse=True)
    return re.split(f"({'|'.join(map(re.escape, longest_first))})", text) if longest_first else [text]


def place(points: Sequence[Place], frame: Place, size: Place) -> list[Place]:
    """For each point, the offset of its label's centre, y upwards.

    Tries a ring of places around each point, then wider rings, and takes the best in turn: inside the frame, clear of
    the labels placed before and of all points, near, and on the outer side of the group.

    Args:
        points: in the frame's units, from its lower left corner.
        frame: width and height.
        size: width and height of a label, margins included.
    """
    width, height = size
    clear = 0.25 * height  # around a point's marker
    count = max(1, len(points))
    middle = (sum(x for x, _ in points) / count, sum(y for _, y in points) / count)
    offsets: list[Place] = []
    taken: list[Place] = []

    def cost(point: Place, offset: Place, reach: float) -> float:
        x, y = point[0] + offset[0], point[1] + offset[1]
        beyond = max(0.0, width / 2 - x, x + width / 2 - frame[0]) + max(0.0, height / 2 - y, y + height / 2 - frame[1])
        on_labels = sum(abs(x - a) < width and abs(y - b) < height for a, b in taken)
        on_points = sum(abs(x - a) < width / 2 + clear and abs(y - b) < height / 2 + clear for a, b in points)
        inward = offset[0] * (middle[0] - point[0]) + offset[1] * (middle[1] - point[1])
        return 1000 * on_labels + 400 * on_points + 50 * beyond + 20 * reach + (5 if inward > 0 else 0)

    for point in points:
        candidates = [
            ((width * 0.85 * math.cos(angle) * reach, height * 1.1 * math.sin(angle) * reach), reach)
            for reach in _REACHES
            for angle in _DIRECTIONS
        ]
        best = min(candidates, key=lambda candidate, at=point: cost(at, *candidate))[0]  # type: ignore[misc]
        offsets.append(best)
        taken.append((point[0] + best[0], point[1] + best[1]))
    return offsets
