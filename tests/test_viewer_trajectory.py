"""The page of a study in a real browser: what is drawn is what the tables say, and it follows what is chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from landscape.statistics.correlation import correlate
from landscape.viewer.described.course import Course
from landscape.viewer.pages.trajectory import trajectory_page
from viewer_browser import becomes_true, launched
from viewer_courses import HOSTILE, LAYERS, LENGTHS, QUANTIZERS, RUNS, course

pytestmark = pytest.mark.browser

TRACES = """([plot, axis]) => document.getElementById(plot).data
  .filter((trace) => !axis || (trace.yaxis ?? "y") === axis)
  .map((trace) => ({...trace, x: [...(trace.x ?? [])], y: [...(trace.y ?? [])]}))"""


class Page:
    """The page as the browser shows it, with all it complained about."""

    def __init__(self, browser: Any, made: Course, folder: Path) -> None:
        self.course, self.complaints, self.requests = made, [], []
        path = folder / "study.html"
        path.write_text(trajectory_page(made), encoding="utf-8")
        self.tab = browser.new_page(viewport={"width": 1300, "height": 1000}, color_scheme="light")
        self.tab.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.url = path.as_uri()
        self.load("")

    def load(self, address: str) -> Page:
        """Opened afresh at this address."""
        self.tab.goto("about:blank")
        self.tab.goto(f"{self.url}{address}")
        assert becomes_true(self.tab, "document.documentElement.dataset.drawn === 'all'")
        return self

    def open(self, address: str) -> Page:
        """Everything as it is at first, but for what the address says, as after a step in the browser's history."""
        self.tab.evaluate("(address) => { location.hash = address; }", address)
        return self.settled()

    def settled(self) -> Page:
        self.tab.evaluate(
            "() => new Promise((done) => setTimeout(() => requestAnimationFrame(() => setTimeout(done, 60))))"
        )
        return self

    def choose(self, **choices: Any) -> None:
        self.tab.evaluate("(choices) => window.landscape.choose(choices)", choices)
        self.settled()

    def traces(self, plot: str, axis: str = "") -> list[dict[str, Any]]:
        return self.tab.evaluate(TRACES, [plot, axis])

    def text(self, name: str) -> str:
        return self.tab.locator(name).inner_text()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("trajectory")
    with launched() as browser:
        yield Page(browser, course(folder), folder)


def along(page: Page, run: str, quantizer: str | None = None) -> list[Any]:
    return page.course.along(run, quantizer)


def test_words_of_a_table_are_shown_and_not_obeyed(page: Page):
    page.choose(runs=list(RUNS), along="run", run=RUNS[4])
    assert HOSTILE in page.text("h1") and HOSTILE in page.text("#numbers")
    assert HOSTILE in " ".join(page.tab.locator("#panels .xtick").all_text_contents())
    page.choose(run="stable", at="step400")
    assert HOSTILE in page.text("#slice-hint") and HOSTILE in page.tab.locator("#layers .ytick").all_text_contents()[-1]
    assert page.tab.evaluate("window.hacked") is None
    assert page.complaints == [] and {url.split(":")[0] for url in page.requests} <= {"file", "about", "data", "blob"}


def test_panels_hold_the_numbers_and_intervals_of_the_table(page: Page):
    page.open("#runs=stable,decay-a&panels=loss,delta_q")
    loss, error = page.traces("panels", "y"), page.traces("panels", "y2")
    bands, lines = ([trace for trace in error if bool(trace.get("fill")) is there] for there in (True, False))
    assert not any(trace.get("fill") for trace in loss)  # its error moves all checkpoints together
    drawn = [trace for trace in loss if trace["y"] != [None]]
    assert [trace["y"] for trace in drawn] == [[row["loss"] for row in along(page, run)] for run in RUNS[:2]]
    assert len({trace["line"]["dash"] for trace in drawn}) == 2
    asked = [(run, quantizer) for run in RUNS[:2] for quantizer in QUANTIZERS]
    assert len(lines) == len(bands) == len(asked)
    for (run, quantizer), line, band in zip(asked, lines, bands, strict=True):
        rows = along(page, run, quantizer)
        assert line["x"] == pytest.approx([row["tokens"] / 1e6 for row in rows])
        assert line["y"] == pytest.approx([100 * row["delta_q"] for row in rows])
        ends = [row["delta_q_low"] for row in rows] + [row["delta_q_high"] for row in reversed(rows)]
        assert band["y"] == pytest.approx([100 * end for end in ends])
    axes = page.tab.evaluate(
        "(({yaxis, yaxis2}) => [yaxis.type, yaxis2.type])(document.getElementById('panels').layout)"
    )
    assert axes == ["linear", "log"]  # ΔQ of these quantizers spans decades, the loss does not
    page.choose(quantizers=["rtn-w4"], averages=True)
    traces = [trace for trace in page.traces("panels", "y2") if not trace.get("fill")]
    assert {trace["line"]["color"] for trace in traces if "lines" in trace["mode"]} == {"#d55e00"}
    assert not [trace for trace in traces if trace["mode"] == "markers" and trace["y"]]
    page.choose(quantizers=list(QUANTIZERS))
    opened = [trace for trace in page.traces("panels", "y2") if trace["mode"] == "markers" and trace["y"]]
    assert [trace["y"] for trace in opened] == [[50.0]] and opened[0]["marker"]["symbol"].endswith("-open")


def test_of_many_runs_the_chosen_one_stands_before_the_others(page: Page):
    page.open("#panels=trace").choose(runs=list(RUNS), run="decay-a")
    crowd, band, chosen = (trace for trace in page.traces("panels", "y") if trace["y"] != [None])
    others = [run for run in RUNS if run != "decay-a"]
    assert crowd["y"] == [value for run in others for value in [*(row["trace"] for row in along(page, run)), None]]
    assert chosen["y"] == [row["trace"] for row in along(page, "decay-a")] and band["fill"]
    page.choose(along="run", quantizers=["rtn-w3"], panels=["delta_q"])
    (points,) = (trace for trace in page.traces("panels", "y") if trace["y"] != [None])
    rows = [(place, row) for place, run in enumerate(RUNS) for row in along(page, run, "rtn-w3")]
    assert points["x"] == [place for place, _ in rows]
    assert points["y"] == pytest.approx([100 * row["delta_q"] for _, row in rows])
    assert points["error_y"]["array"] == pytest.approx([20 * row["delta_q"] for _, row in rows])


def test_the_slider_the_panels_and_the_address_choose_one_checkpoint(page: Page):
    page.open("")
    assert "step400 (4 of 14)" in page.text(".scrub")  # the last of the longest run that has a slice
    page.tab.locator("#scrub").focus()
    page.tab.keyboard.press("ArrowRight")
    assert "step500 (5 of 14)" in page.text(".scrub") and "at=step500" in page.tab.url
    row = along(page, "stable", "rtn-w3")[4]
    shown = page.text("#numbers")
    assert "step500, 5 million tokens" in shown and f"{row['loss']:.4g}" in shown
    assert f"{100 * row['delta_q']:.1f} ± {5 * row['delta_q']:.1f}" in shown
    line = "document.getElementById('panels').layout.shapes[0].x0"
    assert becomes_true(page.tab, f"{line} === 5")
    assert not page.tab.locator("#beside").is_visible()
    assert "landscape slice stable@step500 --quant rtn-w3" in page.text("#no-slice")
    page.tab.locator("[data-goto]").click()
    assert page.tab.locator("#beside").is_visible() and page.text("#no-slice") == ""
    assert page.tab.locator("#slice-hint a").get_attribute("href") == "stable-step400.html"
    page.load("#run=decay-c&at=step400")
    assert "step400" in page.text("#numbers") and "decay-c" in page.text("#numbers")
    assert "decay-c" in page.tab.evaluate("window.landscape.state.runs")  # which is not among those shown at first
    assert page.open("#run=none&at=x&x=nonsense").text(".scrub").endswith("(4 of 14)")  # unknown words are ignored
    where = """() => { const plot = document.getElementById("panels"), {xaxis, yaxis} = plot._fullLayout;
      const trace = plot.data.find((each) => each.customdata && each.x.length === 9);
      const box = plot.getBoundingClientRect(), down = yaxis.l2p(yaxis.d2l(trace.y[2]));
      return [box.x + xaxis._offset + xaxis.l2p(trace.x[2]), box.y + yaxis._offset + down]; }"""
    page.open("#runs=decay-a&panels=loss").tab.evaluate("scrollTo(0, 0)")
    page.tab.mouse.click(*page.tab.evaluate(where))
    assert becomes_true(page.tab, "location.hash.includes('run=decay-a') && location.hash.includes('at=step300')")


def test_the_slice_beside_is_thinned_and_keeps_its_losses(page: Page):
    stored = next(iter(page.course.slices.values()))[0][0]
    contour = next(trace for trace in page.open("").traces("beside") if trace["type"] == "contour")
    table = np.array(contour["z"], dtype=float).T
    kept = [int(np.abs(stored.alpha - a).argmin()) for a in contour["x"]]
    assert len(kept) < len(stored.alpha) and kept[0] == 0 and kept[-1] == len(stored.alpha) - 1
    np.testing.assert_array_equal(table, stored.loss[kept])
    labels = page.tab.evaluate("document.getElementById('beside').layout.annotations.map((each) => each.text)")
    assert len(labels) == len(stored.points)


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_coefficients_are_those_of_the_statistics(page: Page, scale: str):
    page.open(f"#x=trace&y=delta_q&runs={','.join(RUNS[:4])}&xscale={scale}&yscale={scale}")
    found = page.tab.evaluate("window.landscape.coefficients()")
    assert [each["quantizer"] for each in found] == list(QUANTIZERS)
    shape = np.log if scale == "log" else np.array
    for each in found:
        rows = [row for run in RUNS[:4] for row in along(page, run, each["quantizer"])]
        x, y = (shape([row[name] for row in rows]) for name in ("trace", "delta_q"))
        for way, differenced in (("raw", False), ("changes", True)):
            asked = correlate(
                x, y, [row["run"] for row in rows], kinds=("pearson", "spearman"), differenced=differenced
            )
            for kind, expected in asked.items():
                own = each[way][kind]
                assert own["value"] == pytest.approx(expected.value, abs=1e-9)
                assert (own["low"], own["high"]) == pytest.approx((expected.low, expected.high), abs=0.03)
                assert each[way]["rows"] == expected.rows
    cells = page.tab.locator("#coefficients tbody tr").first.locator("td").all_inner_texts()
    assert cells[2].startswith(f"{found[0]['raw']['pearson']['value']:.2f}".replace("-", "−"))


def test_many_short_runs_are_blocks_of_their_own(page: Page):
    """What differs between runs is then most of the uncertainty; ties share their ranks."""
    random, runs = np.random.default_rng(0), np.repeat(np.arange(9), 4)
    shared = random.normal(size=(2, 9))[:, runs]
    x, y = np.round(shared + 0.2 * random.normal(size=(2, 36)), 1)
    asked = correlate(x, y, list(runs), kinds=("pearson", "spearman"))
    script = "([x, y, runs, quantiles]) => window.landscape.correlated(x, y, runs, {quantiles})"
    quantiles = stats.t.ppf(0.975, np.arange(1, 40)).tolist()
    found = page.tab.evaluate(script, [x.tolist(), y.tolist(), runs.tolist(), quantiles])
    for kind, expected in asked.items():
        assert found[kind]["value"] == pytest.approx(expected.value, abs=1e-9)
        assert (found[kind]["low"], found[kind]["high"]) == pytest.approx((expected.low, expected.high), abs=0.03)


def test_too_few_rows_have_no_coefficient(page: Page):
    page.open("#runs=decay-c&x=trace&y=delta_q")
    found = page.tab.evaluate("window.landscape.coefficients()")[0]
    assert "value" in found["raw"]["pearson"] and "3 rows" in found["changes"]["why"]
    assert page.tab.locator("#coefficients tbody tr").first.locator("td").all_inner_texts()[-1] == "—"


def test_the_ridge_stacks_spectra_in_time(page: Page):
    curves = [trace for trace in page.open("").traces("ridge") if trace["mode"] == "lines" and "customdata" in trace]
    assert [curve["x"][-1] for curve in curves] == [11, 9, 7]  # later ones behind
    feet = [curve["y"][-1] for curve in curves]
    assert feet == pytest.approx([2, 1, 0], abs=1e-6)
    assert all(max(curve["y"]) == pytest.approx(foot + 2.2, abs=0.05) for curve, foot in zip(curves, feet, strict=True))
    page.choose(run="decay-a")
    assert "No spectrum" in page.tab.evaluate("document.getElementById('ridge').layout.annotations[0].text")


def test_layers_in_the_order_of_the_model_with_both_signs_apart(page: Page):
    heat = page.open("#under=rtn-w3").traces("layers")[0]
    rows = along(page, "stable", "rtn-w3")
    shares = [[slope + row["delta_q"] / 2 for row in rows] for slope in (0.1, -0.5, 0.1)]
    np.testing.assert_allclose(np.array(heat["z"], dtype=float), shares)
    assert heat["zmin"] == -heat["zmax"] and "no logarithm" in page.text("[data-said=layers]")
    page.choose(part="trace")
    heat = page.traces("layers")[0]
    logs = np.log10([[row["trace"] + k for row in rows] for k in range(len(LAYERS))])
    np.testing.assert_allclose(np.array(heat["z"], dtype=float), logs)
    assert "same under every quantizer" in page.text("[data-said=layers]")


def test_runs_are_chosen_among_many_by_a_filter(page: Page):
    page.open("")
    runs = page.tab.locator(".several").first
    runs.locator("summary").click()
    assert runs.locator("output").inner_text() == "4 of 9"
    runs.locator("[data-set=runs][data-to=none]").click()
    assert page.tab.evaluate("window.landscape.state.runs") == []
    assert becomes_true(
        page.tab, "document.querySelector('[data-said=panels]').textContent.includes('No run is chosen')"
    )
    runs.locator("[data-filter=runs]").fill("s*RT")
    runs.locator("[data-set=runs][data-to=all]").click()
    assert page.tab.evaluate("window.landscape.state.runs") == list(RUNS[5:])  # of those that fit, all
    runs.locator("[data-filter=runs]").fill("")
    runs.locator("[data-set=runs][data-to=none]").click()
    runs.locator("label", has_text="decay-b").locator("input").check()
    assert "runs=decay-b" in page.tab.url
    page.tab.keyboard.press("Escape")
    assert runs.get_attribute("open") is None


def test_tables_to_save(page: Page):
    page.open("#runs=stable&panels=delta_q")
    tables = page.tab.evaluate(
        "Object.fromEntries([...window.landscape.plots].map(([id, plot]) => [id, plot.table()]))"
    )
    assert set(tables) == {"panels", "beside", "scatter", "ridge", "layers"}
    head, *rows = tables["panels"]
    assert head[-4:] == ["delta_q", "delta_q_se", "delta_q_low", "delta_q_high"]
    assert [row[-4] for row in rows] == [row["delta_q"] for row in page.course.rows if row["run"] == "stable"][
        : len(rows)
    ]
    assert len(rows) == LENGTHS[0] * len(QUANTIZERS) and len(tables["ridge"]) == 1 + 3 * 101
    assert all(math.isfinite(row[-1]) for row in tables["layers"][1:])
