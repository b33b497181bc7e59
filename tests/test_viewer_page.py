"""The page in a real browser."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from landscape import slices
from landscape.viewer import describe, write_page
from landscape.viewer.described.trust import trust
from landscape.viewer.described.words import bound
from landscape.viewer.pages.slice import slice_page
from viewer_browser import Opened, becomes_true, launched, shown
from viewer_slices import ATTRIBUTES, LAYERS, Recipe, broken, line, pca, torn

pytestmark = pytest.mark.browser
HOSTILE = "<script>window.hacked=1</script>"


def colours(pixels: np.ndarray) -> int:
    """How many colours there are among pixels with red, green, blue from 0 to 1."""
    return len(np.unique((255 * pixels[..., :3]).astype(np.int64) @ [1, 256, 65536]))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Opens the page of a recipe, once for all tests that want it."""
    pages: dict[str, Opened] = {}

    def open_page(name: str, recipe: Recipe | None = None) -> Opened:
        if name not in pages:
            folder = tmp_path_factory.mktemp("page")
            stored = (recipe or RECIPES[name]).make(folder / f"{name}.h5")
            write_page(stored, path := folder / f"{name}.html")
            tab = browser.new_page(viewport={"width": 1200, "height": 1000})
            page = pages[name] = Opened(tab, stored, [], [], path.as_uri())
            tab.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
            tab.on("pageerror", lambda error: page.complaints.append(str(error)))
            tab.on("dialog", lambda dialog: (page.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
            tab.on("request", lambda request: page.requests.append(request.url))
            tab.goto(page.url)
            assert becomes_true(tab, "document.documentElement.dataset.drawn === 'all'"), page.complaints
        return pages[name]

    return open_page


RECIPES = {
    "good": Recipe(),
    "smooth": Recipe(adaptive=True, grid=(101, 101)),
    "torn": torn(),
    "early": Recipe(adaptive=True, grid=(41, 41), stop_after=9),
    "pca": pca(adaptive=True, grid=(41, 41)),
    "line": line(),
    # Unfinished, with non-finite cells, two points only, and every word of the file hostile.
    "bad": Recipe(
        loss=broken,
        stop_after=70,
        attributes={
            key: value if isinstance(value, int | float) else HOSTILE + key for key, value in ATTRIBUTES.items()
        }
        | {"config": json.dumps({HOSTILE: "$title </pre>"}), "versions": json.dumps({"</footer>": HOSTILE})},
        named={
            "theta": slices.Named("%{x}<img src=x onerror=window.hacked=1>", "origin", HOSTILE),
            "theta_hat": slices.Named("&lt;b&gt;" + HOSTILE, "quantized", HOSTILE + "what"),
        },
        tables={"layers": {**LAYERS, "name": [HOSTILE, "</td>"]}},
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_page_is_silent_and_alone(name: str, opened: Any) -> None:
    page = opened(name)
    page.page.wait_for_timeout(300)
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("data:", "blob:"))] == [page.url]


@pytest.mark.parametrize("name", ["good", "smooth", "torn", "pca"])
def test_surface_is_drawn(name: str, opened: Any) -> None:
    page = opened(name).page
    assert page.locator(".no-webgl").count() == 0
    image = matplotlib.image.imread(io.BytesIO(page.locator("#surface").screenshot()))[..., :3]
    colourful = image[np.ptp(image, axis=-1) > 0.2]
    assert len(colourful) > 0.1 * image.shape[0] * image.shape[1]
    assert colours(colourful) > 300


def test_points_are_labelled_in_both_plots_and_the_table(opened: Any) -> None:
    good, expected = opened("good"), ["ΘK", "ΘK−1", "Θ̂K"]
    for plot in ("contour", "surface"):
        assert shown(good.page.locator(f"#{plot} .annotation-text")) == expected
    rows = good.page.locator("tr[data-point]")
    assert [text[1:] for text in rows.locator(".label").all_text_contents()] == expected
    quantized = describe(good.stored).points[2]
    assert f"ΔQ = +{100 * quantized.relative:.2f} %" in rows.nth(2).text_content()
    assert f"{quantized.loss:.6f}" in rows.nth(2).text_content()
    assert shown(good.page.locator("#contour .xtitle")) == ["α: distance along ΘK → ΘK−1"]


def test_layers_are_listed_on_request(opened: Any) -> None:
    report = opened("good").page.locator("details", has_text="The quantizer's report, 2 layers")
    assert not report.locator("table").is_visible()
    report.locator("summary").click()
    cells = report.locator("tr").nth(2).locator("td").all_text_contents()
    assert cells == ["h.0.mlp", "200", "3", "128", "0.11", "2", "yes"]
    report.locator("summary").click()


@pytest.mark.parametrize(("i", "j"), [(0, 0), (7, 2), (1, 9), (8, 10)])
def test_hover_shows_the_stored_loss(i: int, j: int, opened: Any) -> None:
    good = opened("good")
    stored = good.stored
    text = good.hover(*good.cell(i, j)).replace("−", "-")
    found = re.match(r"α = (\S+), β = (\S+?)loss (\S+) nats per tokenevaluated(\S+) against ΘK$", text)
    assert found, text
    alpha, beta, loss, change = map(float, found.groups())
    assert (alpha, beta) == pytest.approx((stored.alpha[i], stored.beta[j]), abs=1e-3)
    assert loss == pytest.approx(stored.loss[i, j], rel=2e-7)
    assert change == pytest.approx(stored.loss[i, j] - stored.points[0].loss, rel=1e-3)


def test_hover_on_the_surface_shows_the_stored_loss(opened: Any) -> None:
    good = opened("good")
    text = good.on_surface(0.45, 0.45)
    alpha, beta, loss = map(float, re.match(r"α = (\S+), β = (\S+?)loss (\S+) nats per tokenevaluated", text).groups())
    assert loss == pytest.approx(good.stored.at(alpha, beta), rel=2e-7)


def test_hover_on_a_reconstruction_says_so_and_how_well(opened: Any) -> None:
    page = opened("smooth")
    stored, error = page.stored, page.stored.certificate.error
    said = rf"loss (\S+) nats per tokenreconstructed, error ≤ {re.escape(bound(error))}(\S+) against ΘK"
    text = page.hover(*page.cell(20, 70)).replace("−", "-")
    assert abs(float(re.search(said, text)[1]) - stored.loss[20, 70]) < error / 2  # and not all of a float's digits
    assert len(re.search(said, text)[1]) <= 9
    assert abs(float(re.search(said, text)[2]) - stored.loss[20, 70] + stored.points[0].loss) < error / 2
    text = page.on_surface(0.45, 0.5)
    alpha, beta = map(float, re.match(r"α = (\S+), β = (\S+?)loss", text).groups())
    assert abs(float(re.search(said, text)[1]) - stored.at(alpha, beta)) < error / 2


def test_hover_tells_evaluated_cells_from_others(opened: Any) -> None:
    page = opened("torn")
    stored = page.stored
    finite = np.isfinite(stored.loss)
    away = np.ones_like(finite)
    for point in stored.points:  # a marker answers for the cells beneath it
        away &= np.hypot(stored.alpha[:, None] - point.alpha, stored.beta - point.beta) > 0.2
    for mask, words in ((stored.evaluated, "evaluated"), (~stored.evaluated, "reconstructed, error ≤")):
        for i, j in np.argwhere(mask & finite & away)[[3, -4]]:
            assert f"nats per token{words}" in page.hover(*page.cell(i, j)), (i, j)
    kinds = set()
    for right, down in ((0.35, 0.35), (0.45, 0.45), (0.55, 0.55), (0.5, 0.4), (0.4, 0.6), (0.6, 0.5)):
        text = page.on_surface(right, down)
        alpha, beta = map(float, re.match(r"α = (\S+), β = (\S+?)loss", text).groups())
        i, j = np.abs(stored.alpha - alpha).argmin(), np.abs(stored.beta - beta).argmin()
        kinds.add(bool(stored.evaluated[i, j]))
        assert ("tokenevaluated" in text) == stored.evaluated[i, j], text
    assert kinds == {True, False}


def test_hover_on_a_point_shows_its_own_loss(opened: Any) -> None:
    good = opened("good")
    point = good.stored.point("theta_hat")
    text = good.hover(point.alpha, point.beta)
    assert text.startswith("Θ̂K, α = ") and f"loss {point.loss:#.7g} nats per token, evaluated" in text


def test_places_evaluated_are_shown_on_request(opened: Any) -> None:
    page = opened("smooth")
    stored, box = page.stored, page.page.locator("label.marks input")
    alpha, beta, loss, there = stored.checks[np.abs(stored.checks[:, :2] - [0.2, 1.0]).sum(1).argmin()]
    assert not box.is_checked() and "check point" not in page.hover(alpha, beta)
    traces = page.page.locator("#contour .scatterlayer .trace")
    before = traces.count()
    box.check()
    assert becomes_true(page.page, f"document.querySelectorAll('#contour .scatterlayer .trace').length == {before + 2}")
    marks = page.page.locator("#contour .scatterlayer .trace .points path").count()
    assert marks == stored.certificate.evaluations + len(stored.points)
    text = page.hover(alpha, beta).replace("−", "-")
    found = re.search(r"^check point, .*loss (\S+) nats per token, evaluatedthe picture differs by (\S+)$", text)
    assert float(found[1]) == pytest.approx(loss, rel=2e-7)
    assert float(found[2]) == pytest.approx(there - loss, rel=0.06, abs=1e-15)
    box.uncheck()
    assert becomes_true(page.page, f"document.querySelectorAll('#contour .scatterlayer .trace').length == {before}")


@pytest.mark.parametrize("width", [1000, 1400])
@pytest.mark.parametrize("name", ["good", "smooth", "pca", "line", "early"])
def test_nothing_sticks_out(name: str, width: int, opened: Any) -> None:
    page = opened(name).page
    page.set_viewport_size({"width": width, "height": 1000})
    assert becomes_true(page, "document.documentElement.scrollWidth <= innerWidth")  # plots follow a little later
    for table in page.locator(".scroll:visible").all():
        assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
    if name in ("good", "smooth", "pca"):
        surface, contour = (page.locator(f"#{plot}").bounding_box() for plot in ("surface", "contour"))
        assert surface["y"] == contour["y"] and surface["x"] + surface["width"] <= contour["x"]
    page.set_viewport_size({"width": 1200, "height": 1000})


def test_a_run_is_drawn_with_labels_that_do_not_overlap(opened: Any) -> None:
    page = opened("pca")
    boxes = page.page.locator("#contour .annotation-text-g").evaluate_all(  # at one moment: they may be drawn anew
        "all => all.map(one => { const {x, y, width, height} = one.getBoundingClientRect();"
        " return {x, y, width, height}; })"
    )
    assert 3 <= len(boxes) <= 9
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            apart = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
            assert apart or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]
    path = describe(page.stored).path
    lines = page.page.evaluate("document.getElementById('contour').data.filter(t => t.mode == 'lines').length")
    assert lines == 1 and len(path[0]) == 9
    assert page.page.locator("#contour .shapelayer path").count() == 1  # the profile's
    point = page.stored.points[3]
    assert f"{point.residual:.4g} off the plane, where the loss is" in page.hover(point.alpha, point.beta)
    assert page.page.locator("th", has_text="Loss of the picture there").count() == 1


def test_a_line_is_one_curve(opened: Any) -> None:
    page = opened("line")
    stored = page.stored
    for plot in ("surface", "contour", "profile"):
        assert page.page.locator(f"#{plot}").count() == 0
    assert page.page.locator("#curve").bounding_box()["height"] > 400
    assert shown(page.page.locator("#curve .annotation-text")) == ["ΘK", "Θ̂K"]
    alpha = 0.5 * (stored.nodes["node"][:, 0].max() + stored.points[1].alpha) - 0.03
    text = page.hover(alpha, stored.at(alpha, 0), "curve").replace("−", "-")
    found = re.match(rf"α = (\S+?)loss (\S+) nats per tokenreconstructed, error ≤ {bound(trust(stored).error)}", text)
    assert found and "β" not in text, text
    assert abs(float(found[2]) - stored.at(float(found[1]), 0)) < 1e-4
    names = shown(page.page.locator("#curve .legendtext"))
    assert f"± {bound(trust(stored).error)} nats" in names
    assert f"{stored.certificate.checks} check points" in names
    assert page.page.locator("#curve .scatterlayer .points path").count() == stored.certificate.evaluations + 2


def test_an_unfinished_reconstruction_shows_where_it_has_looked(opened: Any) -> None:
    page = opened("early")
    assert page.page.locator("#surface").count() == page.page.locator("#profile").count() == 0
    assert page.page.locator(".trust").text_content().strip() == "Unfinished 10 evaluations made so far."
    assert page.page.locator("label.marks input").is_checked()
    assert page.page.locator("#contour .scatterlayer .points path").count() == 10 + 3
    assert "10 evaluations made so far" in page.page.locator(".notices li").first.text_content()


def test_a_fine_picture_makes_no_large_page(opened: Any) -> None:
    page = opened("smooth")
    assert Path(page.url.removeprefix("file://")).stat().st_size < 6e6
    assert page.stored.loss.shape == (101, 101)
    assert len(slice_page(page.stored, beside=True).encode()) < 0.6e6


def test_broken_slice_renders_with_its_notices(opened: Any) -> None:
    bad = opened("bad")
    described = describe(bad.stored)
    notices = bad.page.locator(".notices li").all_text_contents()
    assert notices == list(described.notices) and len(notices) == 2
    assert "of 99 cells evaluated so far" in notices[0] and "non-finite" in notices[1]
    assert "non-finite loss" in bad.page.locator("#contour .legend").text_content()
    rows, columns = np.nonzero(described.non_finite & np.isinf(bad.stored.loss))
    assert "loss +∞" in bad.hover(bad.stored.alpha[rows[-1]], bad.stored.beta[columns[-1]])
    assert bad.page.locator("tr[data-point]").count() == 2
    assert bad.page.locator(".no-webgl").count() == 0


def test_words_of_the_file_stay_text(opened: Any) -> None:
    bad, good = opened("bad"), opened("good")
    bad.hover(0.0, 0.0)
    assert bad.complaints == []
    assert bad.page.evaluate("window.hacked") is None
    assert bad.page.locator("img").count() == 0
    assert bad.page.locator("script").count() == good.page.locator("script").count()
    assert bad.page.locator("h1").text_content() == HOSTILE + "title"
    assert bad.page.title() == HOSTILE + "title"
    assert bad.page.locator("dd").first.text_content() == HOSTILE + "model"
    assert HOSTILE + "about" in bad.page.locator(".caption").text_content()
    assert bad.page.locator("pre").text_content() == json.dumps({HOSTILE: "$title </pre>"}, indent=1)
    labels = [point.label for point in bad.stored.points]
    for plot in ("contour", "surface"):
        assert shown(bad.page.locator(f"#{plot} .annotation-text")) == labels
    assert shown(bad.page.locator("#contour .xtitle")) == [HOSTILE + "alpha_title"]
    assert bad.hover(0.0, 0.0).startswith(labels[0])
