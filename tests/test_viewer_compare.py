"""Several slices beside each other: what the page says of them, and what a reader can do with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from landscape import slices
from landscape.slices.stored import StoredSlice
from landscape.viewer.described.comparison import compare
from landscape.viewer.pages.compare import compare_page
from landscape.viewer.printed.compare import write_comparison
from viewer_browser import becomes_true, launched, shown
from viewer_slices import ATTRIBUTES, NAMED, Recipe, alone

HOSTILE = "<script>window.hacked=1</script>"
Entries = list[tuple[str, StoredSlice, str]]


def bent(curvature: float, level: float = 2.5) -> Any:
    """A basin with this curvature along β, the direction of the quantization step."""
    return lambda a, b: level + 0.8 * a * a + curvature / 2 * b * b + 0.002 * b**3


def made(folder: Path, name: str, curvature: float, step: float, **changes: Any) -> StoredSlice:
    attributes = {**ATTRIBUTES, "title": f"{name}, gptq-w3-g128"}
    settings = {"loss": bent(curvature), "second_length": step, "attributes": attributes} | changes
    return Recipe(adaptive=True, grid=(31, 31), **settings).make(folder / f"{len(list(folder.iterdir()))}.h5")


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Entries:
    """Named in no order; the flatter the basin, the longer the step."""
    folder = tmp_path_factory.mktemp("compare")
    recipes = {"peak-0.01-s1@9": (0.05, 1.6), "peak-0.0003-s1@9": (0.9, 0.7), "peak-0.003-s1@9": (0.2, 1.2)}
    return [(name, made(folder, name, *recipe), f"{name}.html") for name, recipe in recipes.items()]


def test_entries_are_called_after_what_differs_and_stand_in_order(entries: Entries) -> None:
    found = compare("three", entries)
    assert [entry.name for entry in found.entries] == ["peak-0.0003", "peak-0.003", "peak-0.01"]
    assert found.entries[0].address == "peak-0.0003-s1@9.html"


def test_the_verdict_says_which_is_safest_and_why(entries: Entries) -> None:
    found = compare("three", entries)
    fragile, _, safe = found.entries
    first, why, rule, use = found.verdict
    assert first.startswith(
        "The safest under gptq-w3-g128 (3 bits a weight) is peak-0.01: quantization raises the loss by"
    )
    assert f"peak-0.0003: there it raises the loss by {100 * fragile.error:.3g} %" in first
    times = (safe.quantized.distance / fragile.quantized.distance, fragile.curvature / safe.curvature)
    assert [round(float(each)) for each in re.findall(r"([\d.]+) times (?:as far|less)", why)] == [
        round(t) for t in times
    ]
    assert why.endswith("the flatter basin outweighs the longer step.")
    for entry in (safe, fragile):
        assert f"{entry.predicted:.3f}" in rule and f"{entry.quantized.change:.3f}" in rule
        assert entry.predicted == pytest.approx(entry.quantized.change, rel=0.15)
    assert use.startswith("What counts in use") and f"that of peak-0.01, {safe.quantized.loss:.4f}" in use


@pytest.mark.parametrize(
    ("safest", "worst", "words"),
    [
        ((0.1, 1.0), (0.4, 1.0), "bends # times less; both move as far."),
        ((0.2, 0.5), (0.2, 1.5), "rounding moves the weights of b # times as far; their losses bend alike."),
        ((0.3, 0.5), (0.2, 1.5), "of b # times as far, though its loss bends less in that direction."),
        ((0.1, 0.5), (0.4, 1.0), "bends # times less, and b moves # times as far."),
        ((0.2, 1.0), (0.204, 1.0), "Neither the length of the step nor the curvature along it tells"),
    ],
)
def test_reasons(safest: tuple[float, float], worst: tuple[float, float], words: str, tmp_path: Path) -> None:
    two = [("a", made(tmp_path, "a", *safest), ""), ("b", made(tmp_path, "b", *worst), "")]
    assert words in re.sub(r"\d+(\.\d+)?", "#", " ".join(compare("two", two).verdict))


def test_each_quantizer_has_its_verdict(entries: Entries, tmp_path: Path) -> None:
    named = {**NAMED, "theta_hat": slices.Named("Θ̂_K", "quantized", "nf4")}
    other = made(tmp_path, "peak-0.01-s1@9", 0.05, 0.4, named=named)
    found = compare(
        "four", [*((f"{name}, gptq", *rest) for name, *rest in entries), ("peak-0.01-s1@9, nf4", other, "")]
    )
    firsts = [sentence for sentence in found.verdict if sentence.startswith("The safest")]
    assert firsts[0].startswith("The safest under gptq-w3-g128 (3 bits a weight) is peak-0.01, gptq:")
    assert firsts[1].startswith("The safest of all is peak-0.01, nf4:") and len(firsts) == 2


def test_what_cannot_be_compared_is_said(entries: Entries, tmp_path: Path) -> None:
    other = made(tmp_path, "x", 0.1, 1.0, attributes={**ATTRIBUTES, "text": "another.txt", "plane": "gradient"})
    notices = " ".join(compare("", [*entries, ("x", other, "")]).notices)
    assert "different texts" in notices and "checkpoints and gradient" in notices
    assert compare("", entries).notices == ()
    early = Recipe(stop_after=40).make(tmp_path / "early.h5")
    assert compare("", [*entries, ("early", early, "")]).notices[-1] == "Not finished yet: early."


def test_without_a_quantizer_nothing_is_judged(tmp_path: Path) -> None:
    lone = [(name, alone(adaptive=True, grid=(11, 11)).make(tmp_path / f"{name}.h5"), "") for name in "ab"]
    found = compare("two", lone)
    assert found.verdict == () and found.high > 0
    assert "In numbers" not in compare_page("two", lone)


def test_printed(entries: Entries, tmp_path: Path) -> None:
    write_comparison("three", entries, tmp_path / "a.pdf")
    write_comparison("three", entries, tmp_path / "b.pdf")
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    hostile = [("$x_$", entries[0][1], ""), (HOSTILE, entries[1][1], "")]
    write_comparison("two", hostile, tmp_path / "c.png")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


@pytest.fixture(scope="module")
def tab(browser: Any, entries: Entries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("page") / "compare.html"
    path.write_text(compare_page(HOSTILE, entries), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    assert becomes_true(page, "document.documentElement.dataset.drawn === 'all'"), complaints
    yield page
    assert complaints == [] and page.evaluate("window.hacked") is None


def everywhere(tab: Any, expression: str) -> list[Any]:
    """`expression` of each panel `p`."""
    return tab.evaluate(f"[0, 1, 2].map(k => document.getElementById(`panel-${{k}}`)).map(p => {expression})")


@pytest.mark.browser
def test_panels_share_axes_and_colours(tab: Any, entries: Entries) -> None:
    for expression in ("p.layout.xaxis.range", "p.layout.yaxis.range", "[p.data[0].zmin, p.data[0].zmax]"):
        first, *others = everywhere(tab, expression)
        assert others == [first, first]
    low, high = everywhere(tab, "p.layout.yaxis.range")[0]
    assert low == min(stored.beta[0] for _, stored, _ in entries)
    assert high == max(stored.beta[-1] for _, stored, _ in entries)
    in_order = [entries[1][1], entries[2][1], entries[0][1]]
    for z, stored in zip(everywhere(tab, "p.data[0].z[12][7]"), in_order, strict=True):
        assert z == pytest.approx(100 * (stored.loss[7, 12] / stored.points[0].loss - 1))
    ticks = [float(word) for word in shown(tab.locator(".shades span"))]
    assert ticks == sorted(ticks) and ticks[0] == 0


@pytest.mark.browser
def test_the_pointer_asks_all_panels_at_one_place(tab: Any, entries: Entries) -> None:
    place = tab.evaluate(
        """() => { const p = document.getElementById('panel-2'), {xaxis: x, yaxis: y} = p._fullLayout;
        p.scrollIntoView({block: 'center'}); const box = p.getBoundingClientRect();
        return [box.x + x._offset + x.d2p(0.31), box.y + y._offset + y.d2p(0.62)]; }"""
    )
    tab.mouse.move(*place)
    assert becomes_true(tab, "document.querySelectorAll('.cross:not([hidden])').length === 6")
    for k, (_, stored, _) in enumerate([entries[1], entries[2], entries[0]]):
        said = tab.locator(f"#readout-{k}").text_content()
        alpha, beta, loss = map(
            float, re.match(r"α = (\S+), β = (\S+), loss (\S+) nats", said.replace("−", "-")).groups()
        )
        assert alpha == pytest.approx(0.31, abs=np.diff(stored.alpha).max())
        assert beta == pytest.approx(0.62, abs=np.diff(stored.beta).max())
        assert loss == pytest.approx(stored.at(alpha, beta), abs=2e-3)
    tab.mouse.move(2, 2)


@pytest.mark.browser
def test_a_reader_chooses_panels_measure_and_unit(tab: Any, entries: Entries) -> None:
    tab.locator("[data-choice=shown][value='1']").uncheck()
    assert becomes_true(
        tab, "document.getElementById('profiles').data.filter(t => t.showlegend !== false).length === 2"
    )
    assert not tab.locator("#panel-1").is_visible()
    tab.locator("[data-choice=units]").select_option("step")
    tab.locator("[data-choice=measure]").select_option("change")
    assert becomes_true(tab, "document.getElementById('panel-0').layout.xaxis.title.text === 'α, steps'")
    stored = entries[1][1]
    hat = tab.evaluate("document.getElementById('panel-0').data.find(t => t.marker?.symbol === 'diamond').y[0]")
    assert hat == pytest.approx(stored.point("theta_hat").beta / stored.point("theta_hat").distance)
    address = tab.url
    assert "shown=0,2" in address and "units=step" in address and "measure=change" in address
    tab.locator("[data-choice=shown][value='1']").check()
    tab.locator("[data-choice=units]").select_option("distance")
    tab.locator("[data-choice=measure]").select_option("relative")
    assert becomes_true(tab, "document.getElementById('panel-1').data[0].zmax > 1")
    tab.goto("about:blank")
    tab.goto(address)
    assert becomes_true(tab, "document.documentElement.dataset.drawn === 'all'")
    assert not tab.locator("#panel-1").is_visible()
    assert everywhere(tab, "p.layout?.xaxis.title.text ?? null") == ["α, steps", None, "α, steps"]
    tab.goto(address.partition("#")[0])
    assert becomes_true(tab, "document.documentElement.dataset.drawn === 'all'")


@pytest.mark.browser
def test_what_is_written(tab: Any, entries: Entries) -> None:
    assert tab.title() == HOSTILE and tab.locator("h1").text_content() == HOSTILE
    assert tab.locator(".verdict p").all_text_contents() == list(compare("", entries).verdict)
    rows = tab.locator("tbody tr").all_text_contents()
    assert len(rows) == 3 and "gptq-w3-g128" in rows[0]
    assert [tab.locator(f"[data-panel='{k}'] h2 a").get_attribute("href") for k in range(3)] == [
        f"peak-{rate}-s1@9.html" for rate in ("0.0003", "0.003", "0.01")
    ]


@pytest.mark.browser
def test_hostile_names(browser: Any, tmp_path: Path) -> None:
    named = {**NAMED, "theta_hat": slices.Named("Θ̂_K", "quantized", HOSTILE)}
    two = [(HOSTILE + str(k), Recipe(named=named).make(tmp_path / f"{k}.h5"), "x'\"><b>") for k in range(2)]
    (path := tmp_path / "h.html").write_text(compare_page("two", two), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert becomes_true(page, "document.documentElement.dataset.drawn === 'all'")
    assert page.evaluate("window.hacked") is None and page.locator("b b").count() == 0
    assert page.locator(".panel h2 a").first.get_attribute("href") == "x'\"><b>"
    assert HOSTILE in page.locator(".verdict").text_content()
