"""Labels: how they are set, and where they go."""

from __future__ import annotations

import re

import pytest

from landscape.viewer.described.labels import label_html, label_math, text_html, text_math, width_in_ems
from landscape.viewer.described.placing import place


def test_labels_become_subscripts_and_markup_stays_text() -> None:
    assert label_html("Θ_{K−1}") == "Θ<sub>K−1</sub>"
    assert label_html("<b>") == "&lt;b&gt;"
    assert re.sub("<[^>]*>", "", label_html("Θ̂_K")) == "Θ̂K"
    assert text_html("from Θ_K to <i>", ["Θ_K", ""]) == "from Θ<sub>K</sub> to &lt;i&gt;"


def test_labels_become_formulas() -> None:
    assert label_math("Θ̂_{gptq-w3-g128}") == r"$\hat{\Theta}_{\mathrm{gptq‐w3‐g128}}$"
    assert label_math("Θ_{step_800}") == r"$\Theta_{\mathrm{step\_800}}$"
    assert label_math("Θ_{$}") == r"Θ_{\$}"
    assert text_math("Θ_K → Θ_{K−1}, 5 $", ["Θ_K", "Θ_{K−1}"]) == r"$\Theta_{K}$ → $\Theta_{K{-}1}$, 5 \$"


def test_longer_labels_take_more_room() -> None:
    assert width_in_ems("Θ_K") < width_in_ems("Θ_{K−1}") < width_in_ems("Θ_{step8000}")


TRIPLES = [
    [(x, y), (x + (far if x < 200 else -far), y), (x, y + (far if y < 100 else -far))]
    for far in (0, 3, 10, 40, 120)
    for x, y in ((5, 5), (295, 5), (150, 195), (150, 100))
]
FRAME = (300, 200)


def boxes(points: list[tuple[float, float]], sizes: list[tuple[float, float]], offsets: list) -> list:
    """(centre x, centre y, width, height) of every label that was placed."""
    return [
        (x + offset[0], y + offset[1], *size)
        for (x, y), size, offset in zip(points, sizes, offsets, strict=True)
        if offset is not None
    ]


def assert_apart(found: list, points: list[tuple[float, float]]) -> None:
    for i, (a, b, w, h) in enumerate(found):
        assert w / 2 <= a <= FRAME[0] - w / 2 and h / 2 <= b <= FRAME[1] - h / 2
        assert all(abs(a - c) >= (w + v) / 2 or abs(b - d) >= (h + k) / 2 for c, d, v, k in found[:i])
        assert all(abs(a - x) >= w / 2 or abs(b - y) >= h / 2 for x, y in points)


@pytest.mark.parametrize("points", [*TRIPLES, [(150, 100), (180, 115), (120, 115), (150, 70)]])
@pytest.mark.parametrize("sizes", [[(42.0, 24.0)] * 4, [(32.0, 24.0), (88.0, 24.0), (42.0, 24.0), (60.0, 24.0)]])
def test_labels_neither_overlap_nor_leave_the_frame(
    points: list[tuple[float, float]], sizes: list[tuple[float, float]]
) -> None:
    sizes = sizes[: len(points)]
    offsets = place(points, FRAME, sizes)
    assert None not in offsets
    assert_apart(boxes(points, sizes, offsets), points)


def test_where_it_is_crowded_only_some_labels_are_written() -> None:
    points = [(20.0 + 4 * i, 100.0 + 3 * (i % 2)) for i in range(60)]
    sizes = [(42.0, 24.0)] * 60
    offsets = place(points, FRAME, sizes, [False, *[True] * 59])
    found = boxes(points, sizes, offsets)
    assert 4 <= len(found) < 30
    assert offsets[0] is not None and offsets[1] is not None and offsets[-1] is not None  # needed, and both ends
    assert_apart(found, points)


def test_labels_keep_off_a_curve() -> None:
    point, curve = (150.0, 100.0), [(float(x), x / 1.5) for x in range(0, 300, 2)]
    ((dx, dy),) = place([point], FRAME, [(42.0, 24.0)], avoid=curve)
    assert all(abs(point[0] + dx - x) >= 21 or abs(point[1] + dy - y) >= 12 for x, y in curve)
