"""The viewer: what it says, what it draws, and the page in a real browser."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import matplotlib.image
import numpy as np
import pytest
import torch

from landscape import slices
from landscape.errors import OptionError, StoreError
from landscape.files import lock
from landscape.slices.stored import StoredSlice, read
from landscape.viewer import describe, write_figure, write_page
from landscape.viewer.describe import nice_step
from landscape.viewer.figure import draw
from landscape.viewer.labels import label_html, place, text_html
from landscape.viewer.profile import profile
from landscape.weights import Weights

LABELS = {"theta": "Θ_K", "theta_prev": "Θ_{K−1}", "theta_hat": "Θ̂_K"}
ATTRIBUTES = {
    "title": "run@step8000, gptq-w3-g128",
    "model": "run@step8000",
    "previous": "run@step7200",
    "quantizer": "gptq-w3-g128",
    "first_axis": "theta_prev",
    "eval_tokens": 4096,
    "eval_windows": 16,
    "text": "validation.jsonl.xz",
    "dtype": "float32",
    "seed": 0,
    "device": "cpu",
    "weight_norm": 32.5,
    "config": json.dumps({"grid": [9, 11]}),
    "versions": json.dumps({"torch": "2.13.0"}),
}
LAYERS = {"name": ["h.0.attn", "h.0.mlp"], "bits": [3, 3], "weight_error": [0.1, 0.11], "fallback": [False, True]}
HOSTILE = "<script>window.hacked=1</script>"


def bowl(a: float, b: float) -> float:
    """Not symmetric in any way: swapped or mirrored axes give other numbers."""
    return 2.66 + 0.15 * (a - 0.1) ** 2 + 0.04 * b * b + 0.03 * a * b + 0.01 * math.cos(5 * a)


@dataclass
class Recipe:
    """A slice file to make."""

    loss: Callable[[float, float], float] = bowl
    attributes: dict[str, Any] = field(default_factory=lambda: dict(ATTRIBUTES))
    labels: dict[str, str] = field(default_factory=lambda: dict(LABELS))
    tables: dict[str, Any] = field(default_factory=lambda: {"layers": LAYERS})
    first_length: float = 0.45
    second_length: float = 1.4
    stop_after: int | None = None  # evaluations

    def make(self, path: Path) -> StoredSlice:
        generator = torch.Generator().manual_seed(0)
        origin, first, second = (Weights({"w": torch.randn(50, generator=generator)}) for _ in range(3))
        first, second = first * (self.first_length / first.norm()), second * (self.second_length / second.norm())
        points = {"theta": origin, "theta_prev": origin + first, "theta_hat": origin + second}
        if self.attributes.get("first_axis") == "random":
            del points["theta_prev"]
        plane = slices.span(origin, first, second, points)
        bounds = slices.around([(at.alpha, at.beta) for at in plane.points.values()], 0.5)
        alpha, beta = slices.with_zero(*bounds.alpha, 9), slices.with_zero(*bounds.beta, 11)
        labels = {name: self.labels[name] for name in points}
        profile = np.linspace(-0.25, 1.25, 7)
        slices.create(path, slices.Layout(plane, alpha, beta, profile, labels, self.attributes, self.tables, "key"))

        def loss(weights: Weights) -> float:
            step = weights - origin
            return self.loss(step.dot(plane.u), step.dot(plane.v))

        def progress(done: int, total: int) -> None:
            if self.stop_after is not None and done > self.stop_after:
                raise InterruptedError

        stopped = contextlib.suppress(InterruptedError)
        with stopped, lock(path), slices.SliceWriter(path, "key", plane.fingerprint()) as writer:
            slices.scan(writer, plane, points, loss, progress)
        return read(path)


def broken(a: float, b: float) -> float:
    """NaN, then infinite, on part of the plane that is scanned early."""
    return (math.nan if b < 0.3 else math.inf) if a < -0.2 and b < 0.9 else bowl(a, b)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> StoredSlice:
    return Recipe().make(tmp_path_factory.mktemp("slice") / "complete.h5")


# --- what it says ---------------------------------------------------------------------------------------------------


def test_numbers_are_the_stored_ones(complete: StoredSlice) -> None:
    described = describe(complete)
    assert [point.name for point in described.points] == ["theta", "theta_prev", "theta_hat"]
    for row, point in zip(described.points, complete.points, strict=True):
        assert (row.loss, row.alpha, row.beta) == (point.loss, point.alpha, point.beta)
        assert (row.distance, row.residual, row.label) == (point.distance, point.residual, point.label)
        assert row.perplexity == pytest.approx(math.exp(point.loss), rel=1e-14)
    assert [point.what for point in described.points] == ["run@step8000", "run@step7200", "gptq-w3-g128"]
    facts = dict(described.facts)
    assert facts["Evaluated on"] == "4,096 tokens in 16 windows"
    assert facts["Weights, ‖Θ‖"] == "32.5"
    assert facts["Quantization step, ‖δ‖/‖Θ‖"] == "4.31 %"  # 1.4 / 32.5
    assert facts["Grid, α × β"] == "9 × 11 cells"
    assert described.notices == ()


def test_quantization_error_is_relative_to_theta(complete: StoredSlice) -> None:
    theta, previous, quantized = describe(complete).points
    loss, hat = complete.point("theta").loss, complete.point("theta_hat").loss
    assert quantized.relative == pytest.approx(hat / loss - 1, rel=1e-12) and quantized.relative > 0.01
    assert quantized.change == pytest.approx(hat - loss, rel=1e-12)
    assert previous.relative == pytest.approx(complete.point("theta_prev").loss / loss - 1, rel=1e-12)
    assert theta.relative is None and theta.change is None
    caption = " ".join(describe(complete).caption)
    assert f"ΔQ is +{100 * quantized.relative:.2f} %" in caption
    assert f"from {loss:.4f} to {hat:.4f}" in caption


def test_caption_says_lowers_when_the_loss_falls(tmp_path: Path) -> None:
    stored = Recipe(loss=lambda a, b: 3 - 0.1 * b).make(tmp_path / "down.h5")
    assert "lowers the loss from 3.0000" in " ".join(describe(stored).caption)


def test_unfinished_and_non_finite_cells_are_counted(tmp_path: Path) -> None:
    stored = Recipe(loss=broken, stop_after=70).make(tmp_path / "part.h5")
    described = describe(stored)
    bad = int((stored.done & ~np.isfinite(stored.loss)).sum())
    assert 0 < bad < stored.done.sum() < stored.done.size
    assert described.notices[0].startswith(f"{stored.done.sum()} of 99 cells evaluated so far")
    assert described.notices[1].startswith(f"{bad} evaluated cells have a non-finite loss")
    assert np.isfinite(described.finite).sum() == stored.done.sum() - bad
    assert dict(described.facts)["Status"] == "running"


def test_a_few_enormous_cells_do_not_take_the_colours(tmp_path: Path) -> None:
    stored = Recipe(loss=lambda a, b: 1e6 if a > 0.7 and b > 1.6 else bowl(a, b)).make(tmp_path / "tall.h5")
    described = describe(stored)
    assert described.colours is not None
    assert described.colours.low == stored.loss.min()
    named = [point.loss for point in stored.points]
    assert max(named) < described.colours.high < 4
    above = int((stored.loss > described.colours.high).sum())
    assert described.colours.cells_above == above > 0
    assert any(f"{above} cells above it share the last colour" in notice for notice in described.notices)
    assert np.nanmax(described.finite) == 1e6  # only the colours are clipped


def test_one_loss_everywhere_and_none_at_all(tmp_path: Path) -> None:
    flat = Recipe(loss=lambda a, b: 2.0).make(tmp_path / "flat.h5")
    colours = describe(flat).colours
    assert colours is not None and colours.low < 2 < colours.high and colours.cells_above == 0
    nothing = Recipe(loss=lambda a, b: math.nan).make(tmp_path / "nan.h5")
    assert describe(nothing).colours is None
    early = Recipe(stop_after=2).make(tmp_path / "early.h5")
    for stored, name in ((flat, "flat"), (nothing, "nan"), (early, "early")):
        write_page(stored, tmp_path / f"{name}.html")
        write_figure(stored, tmp_path / f"{name}.png")


def test_a_file_that_says_nothing_of_itself(tmp_path: Path) -> None:
    Recipe(attributes={}, tables={}).make(path := tmp_path / "bare.h5")
    with h5py.File(path, "r+") as file:
        for name in set(file.attrs) - {"schema", "key", "point_order"}:
            del file.attrs[name]
    described = describe(stored := read(path))
    facts = dict(described.facts)
    assert described.title == "Loss slice"
    assert {facts[name] for name in ("Model", "Quantizer", "Text", "Seed", "Status", "Angle of directions")} == {"—"}
    write_page(stored, tmp_path / "bare.html")
    write_figure(stored, tmp_path / "bare.pdf")


def test_random_axis_has_two_points(tmp_path: Path) -> None:
    stored = Recipe(attributes={**ATTRIBUTES, "first_axis": "random", "previous": ""}).make(tmp_path / "random.h5")
    described = describe(stored)
    assert [point.name for point in described.points] == ["theta", "theta_hat"]
    assert described.alpha_title == "α: distance along a random direction"
    assert "its first direction is random" in described.caption[0]
    assert dict(described.facts)["Previous checkpoint"] == "—"


def test_point_outside_the_rectangle_is_announced(complete: StoredSlice) -> None:
    narrow = StoredSlice(
        complete.alpha,
        complete.beta[:6],
        complete.loss[:, :6],
        complete.done[:, :6],
        complete.points,
        complete.profile,
        complete.attributes,
        complete.tables,
    )
    assert any(notice.startswith("Θ̂_K lies outside the rectangle") for notice in describe(narrow).notices)


@pytest.mark.parametrize(("rough", "nice"), [(0.011, 0.02), (0.02, 0.02), (0.3, 0.5), (7, 10), (1e-9, 1e-9)])
def test_nice_steps(rough: float, nice: float) -> None:
    assert nice_step(rough) == pytest.approx(nice)


def test_profile_shows_what_was_evaluated_and_both_ends(complete: StoredSlice) -> None:
    line, *ends = profile(complete, describe(complete)).data
    np.testing.assert_array_equal(line.x, complete.profile[0])
    np.testing.assert_array_equal(line.y, complete.profile[1])
    assert complete.profile[0][0] < 0 and complete.profile[0][-1] > 1
    first, last = complete.point("theta"), complete.point("theta_hat")
    assert [(end.x[0], end.y[0]) for end in ends] == [(0, first.loss), (1, last.loss)]
    np.testing.assert_allclose(line.customdata[:, 0], complete.profile[0] * math.hypot(last.alpha, last.beta))


# --- labels ---------------------------------------------------------------------------------------------------------


def test_labels_become_subscripts_and_markup_stays_text() -> None:
    assert label_html("Θ_{K−1}") == "Θ<sub>K−1</sub>"
    assert label_html("<b>") == "&lt;b&gt;"
    assert re.sub("<[^>]*>", "", label_html("Θ̂_K")) == "Θ̂K"
    assert text_html("from Θ_K to <i>", ["Θ_K", ""]) == "from Θ<sub>K</sub> to &lt;i&gt;"


TRIPLES = [
    [(x, y), (x + (far if x < 200 else -far), y), (x, y + (far if y < 100 else -far))]
    for far in (0, 3, 10, 40, 120)
    for x, y in ((5, 5), (295, 5), (150, 195), (150, 100))
]


@pytest.mark.parametrize("points", [*TRIPLES, [(150, 100), (180, 115), (120, 115), (150, 70)]])
def test_labels_neither_overlap_nor_leave_the_frame(points: list[tuple[float, float]]) -> None:
    width, height = 42.0, 24.0
    offsets = place(points, (300, 200), (width, height))
    centres = [(x + dx, y + dy) for (x, y), (dx, dy) in zip(points, offsets, strict=True)]
    for i, (a, b) in enumerate(centres):
        assert width / 2 <= a <= 300 - width / 2 and height / 2 <= b <= 200 - height / 2
        assert all(abs(a - c) >= width or abs(b - d) >= height for c, d in centres[:i])
        assert all(abs(a - x) >= width / 2 or abs(b - y) >= height / 2 for x, y in points)


# --- files ----------------------------------------------------------------------------------------------------------


def test_figure_is_written_as_pdf_and_png(complete: StoredSlice, tmp_path: Path) -> None:
    write_figure(complete, tmp_path / "slice.pdf")
    write_figure(complete, tmp_path / "slice.png")
    pdf = (tmp_path / "slice.pdf").read_bytes()
    assert pdf.startswith(b"%PDF") and len(pdf) > 10_000 and b"/Type3" not in pdf
    image = matplotlib.image.imread(tmp_path / "slice.png")
    assert image.shape[1] == 1050  # 3.5 inches at 300 dots per inch
    assert colours(image) > 500
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slice.pdf", "slice.png"]


def colours(pixels: np.ndarray) -> int:
    """How many colours there are among pixels with red, green, blue from 0 to 1."""
    return len(np.unique((255 * pixels[..., :3]).astype(np.int64) @ [1, 256, 65536]))


@pytest.mark.parametrize(("first", "second"), [(0.45, 1.4), (0.01, 1.4), (1.4, 0.02), (1.0, 1.0)])
def test_figure_keeps_its_words_apart_and_on_the_paper(first: float, second: float, tmp_path: Path) -> None:
    figure = draw(Recipe(first_length=first, second_length=second).make(tmp_path / "near.h5"))
    figure.draw_without_rendering()
    axes, bar = figure.axes
    labels = [text.get_window_extent() for text in axes.texts]
    assert len(labels) == 3
    for i, box in enumerate(labels):
        assert not any(box.overlaps(other) for other in labels[:i])
    titles = [axes.xaxis.label, axes.yaxis.label, bar.yaxis.label]
    assert [title.get_text()[:1] for title in titles] == ["α", "β", "l"]
    boxes = [*labels, *(axis.get_tightbbox() for axis in (axes.xaxis, axes.yaxis, bar.yaxis))]
    for box in boxes + [title.get_window_extent() for title in titles]:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1


def test_figure_wants_a_known_suffix(complete: StoredSlice, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"slice\.svg: expected a name that ends in \.pdf or \.png"):
        write_figure(complete, tmp_path / "slice.svg")


def test_a_failed_write_leaves_the_old_file(
    complete: StoredSlice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "slice.html"
    target.write_text("old")
    whole = Path.write_bytes

    def half(self: Path, content: bytes) -> None:
        whole(self, content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(StoreError, match=r"slice\.html: the disk is full"):
        write_page(complete, target)
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


# --- the page in a browser ------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """A page as the browser sees it, and all it complained about or asked for."""

    page: Any
    stored: StoredSlice
    complaints: list[str]
    requests: list[str]
    url: str

    def hover(self, alpha: float, beta: float) -> str:
        """The hover text of the contour where (α, β) is drawn."""
        self.page.evaluate("scrollTo(0, 0)")
        x, y = self.page.evaluate(
            """([a, b]) => { const plot = document.getElementById("contour"), box = plot.getBoundingClientRect();
            const {xaxis, yaxis} = plot._fullLayout;
            return [box.x + xaxis._offset + xaxis.l2p(a), box.y + yaxis._offset + yaxis.l2p(b)]; }""",
            [alpha, beta],
        )
        self.page.mouse.move(0, 0)
        self.page.wait_for_selector("#contour .hovertext", state="detached")
        self.page.mouse.move(x, y)
        return shown(self.page.locator("#contour .hovertext"))[0]


def shown(locator: Any) -> list[str]:
    """The texts, without the spaces of no width that plotly puts around subscripts."""
    locator.first.wait_for()
    return [text.replace("\u200b", "") for text in locator.all_text_contents()]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    missing = [] if CHROMIUM else ["chromium (Debian: apt-get install chromium)"]
    missing += [] if importlib.util.find_spec("playwright") else ["playwright (pip install playwright)"]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"CI must test the page in a browser, and there is no {' and no '.join(missing)}")
    if missing:
        pytest.skip(f"THE PAGE IS NOT TESTED IN A BROWSER: no {' and no '.join(missing)}")
    from playwright import sync_api

    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


def open_page(browser: Any, stored: StoredSlice, path: Path) -> Opened:
    write_page(stored, path)
    page = browser.new_page(viewport={"width": 1200, "height": 1000})
    opened = Opened(page, stored, [], [], path.as_uri())
    page.on("console", lambda message: opened.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("dialog", lambda dialog: (opened.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.goto(opened.url)
    return opened


@pytest.fixture(scope="module")
def good(browser: Any, complete: StoredSlice, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return open_page(browser, complete, tmp_path_factory.mktemp("page") / "good.html")


@pytest.fixture(scope="module")
def bad(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Unfinished, with non-finite cells, two points only, and every word of the file hostile."""
    folder = tmp_path_factory.mktemp("page")
    attributes = {key: value if isinstance(value, int | float) else HOSTILE + key for key, value in ATTRIBUTES.items()}
    recipe = Recipe(
        loss=broken,
        stop_after=70,
        attributes={**attributes, "first_axis": "random", "config": json.dumps({HOSTILE: "$title </pre>"})},
        labels={"theta": "%{x}<img src=x onerror=window.hacked=1>", "theta_hat": "&lt;b&gt;" + HOSTILE},
        tables={"layers": {**LAYERS, "name": [HOSTILE, "</td>"]}},
    )
    recipe.attributes["versions"] = json.dumps({"</footer>": HOSTILE})
    return open_page(browser, recipe.make(folder / "bad.h5"), folder / "bad.html")


@pytest.mark.browser
def test_page_is_silent_and_alone(good: Opened) -> None:
    good.hover(0.0, 0.0)
    assert good.complaints == []
    assert [url for url in good.requests if not url.startswith(("data:", "blob:"))] == [good.url]


@pytest.mark.browser
def test_surface_is_drawn(good: Opened) -> None:
    assert good.page.locator(".no-webgl").count() == 0
    image = matplotlib.image.imread(io.BytesIO(good.page.locator("#surface").screenshot()))[..., :3]
    colourful = image[np.ptp(image, axis=-1) > 0.2]
    assert len(colourful) > 0.1 * image.shape[0] * image.shape[1]
    assert colours(colourful) > 300


@pytest.mark.browser
def test_points_are_labelled_in_both_plots_and_the_table(good: Opened) -> None:
    expected = ["ΘK", "ΘK−1", "Θ̂K"]
    for plot in ("contour", "surface"):
        assert shown(good.page.locator(f"#{plot} .annotation-text")) == expected
    rows = good.page.locator("tr[data-point]")
    assert [text[1:] for text in rows.locator(".label").all_text_contents()] == expected
    quantized = describe(good.stored).points[2]
    assert f"ΔQ = +{100 * quantized.relative:.2f} %" in rows.nth(2).text_content()
    assert f"{quantized.loss:.6f}" in rows.nth(2).text_content()


@pytest.mark.browser
def test_layers_are_listed_on_request(good: Opened) -> None:
    report = good.page.locator("details", has_text="The quantizer's report, 2 layers")
    assert not report.locator("table").is_visible()
    report.locator("summary").click()
    assert report.locator("tr").nth(2).locator("td").all_text_contents() == ["h.0.mlp", "3", "0.11", "yes"]
    report.locator("summary").click()


@pytest.mark.browser
@pytest.mark.parametrize(("i", "j"), [(0, 0), (7, 2), (1, 9), (8, 10)])
def test_hover_shows_the_stored_loss(good: Opened, i: int, j: int) -> None:
    stored = good.stored
    inward = [
        0.2 * (line[1] - line[0]) * (-1 if k == len(line) - 1 else 1)
        for line, k in ((stored.alpha, i), (stored.beta, j))
    ]
    text = good.hover(stored.alpha[i] + inward[0], stored.beta[j] + inward[1]).replace("−", "-")
    found = re.match(r"α = (\S+), β = (\S+?)loss (\S+) nats per token(\S+) against ΘK$", text)
    assert found, text
    alpha, beta, loss, change = map(float, found.groups())
    assert (alpha, beta) == pytest.approx((stored.alpha[i], stored.beta[j]), abs=1e-3)
    assert loss == pytest.approx(stored.loss[i, j], rel=2e-7)
    assert change == pytest.approx(stored.loss[i, j] - stored.points[0].loss, rel=1e-3)


@pytest.mark.browser
def test_hover_on_the_surface_shows_the_stored_loss(good: Opened) -> None:
    good.page.evaluate("scrollTo(0, 0)")
    box = good.page.locator("#surface").bounding_box()
    good.page.mouse.move(box["x"] + 0.45 * box["width"], box["y"] + 0.45 * box["height"], steps=3)
    text = shown(good.page.locator("#surface .hovertext"))[0].replace("−", "-")
    alpha, beta, loss = map(float, re.match(r"α = (\S+), β = (\S+?)loss (\S+) nats", text).groups())
    assert loss == pytest.approx(good.stored.at(alpha, beta), rel=2e-7)


@pytest.mark.browser
def test_hover_on_a_point_shows_its_own_loss(good: Opened) -> None:
    point = good.stored.point("theta_hat")
    text = good.hover(point.alpha, point.beta)
    assert text.startswith("Θ̂K, α = ") and f"loss {point.loss:#.7g} nats per token" in text


@pytest.mark.browser
def test_plots_stand_side_by_side_and_nothing_sticks_out(good: Opened) -> None:
    surface, contour = (good.page.locator(f"#{name}").bounding_box() for name in ("surface", "contour"))
    assert surface["y"] == contour["y"] and surface["x"] + surface["width"] <= contour["x"]
    assert good.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_broken_slice_renders_with_its_notices(bad: Opened) -> None:
    described = describe(bad.stored)
    notices = bad.page.locator(".notices li").all_text_contents()
    assert notices == list(described.notices) and len(notices) == 2
    assert "of 99 cells evaluated so far" in notices[0] and "non-finite" in notices[1]
    assert "non-finite loss" in bad.page.locator("#contour .legend").text_content()
    rows, columns = np.nonzero(described.non_finite & np.isinf(bad.stored.loss))
    assert "loss +∞" in bad.hover(bad.stored.alpha[rows[-1]], bad.stored.beta[columns[-1]])
    assert bad.page.locator("tr[data-point]").count() == 2
    assert bad.page.locator(".no-webgl").count() == 0


@pytest.mark.browser
def test_words_of_the_file_stay_text(bad: Opened, good: Opened) -> None:
    bad.hover(0.0, 0.0)
    assert bad.complaints == []
    assert bad.page.evaluate("window.hacked") is None
    assert bad.page.locator("img").count() == 0
    assert bad.page.locator("script").count() == good.page.locator("script").count()
    assert bad.page.locator("h1").text_content() == HOSTILE + "title"
    assert bad.page.title() == HOSTILE + "title"
    assert bad.page.locator("dd").first.text_content() == HOSTILE + "model"
    assert bad.page.locator("pre").text_content() == json.dumps({HOSTILE: "$title </pre>"}, indent=1)
    labels = [bad.stored.points[0].label, bad.stored.points[1].label]
    for plot in ("contour", "surface"):
        assert shown(bad.page.locator(f"#{plot} .annotation-text")) == labels
    assert bad.hover(0.0, 0.0).startswith(labels[0])
