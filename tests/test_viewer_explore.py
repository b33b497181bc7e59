"""What a reader can do on the page of a slice, in a real browser."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import maximum_filter

from landscape.slices.stored import StoredSlice
from landscape.viewer import write_page
from viewer_browser import Opened, becomes_true, launched, shown
from viewer_slices import Recipe, pca, torn

pytestmark = pytest.mark.browser
RECIPES = {"smooth": Recipe(adaptive=True, grid=(41, 41)), "dense": Recipe(), "torn": torn(), "pca": pca(adaptive=True)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[StoredSlice, Path]]:
    folder = tmp_path_factory.mktemp("explore")
    slices = {name: recipe.make(folder / f"{name}.h5") for name, recipe in RECIPES.items()}
    for name, stored in slices.items():
        write_page(stored, folder / f"{name}.html")
    return {name: (stored, folder / f"{name}.html") for name, stored in slices.items()}


@pytest.fixture(scope="module")
def tabs() -> dict[str, Opened]:
    """Pages that tests share, by the slice."""
    return {}


@pytest.fixture
def visit(browser: Any, made: dict[str, tuple[StoredSlice, Path]], tabs: dict[str, Opened]) -> Iterator[Any]:
    """Opens a page at a fragment; a page that complained fails the test.

    Without a fragment it is the one that others used, and as it is at first: drawing it anew takes seconds.
    """
    own: list[Opened] = []
    used: list[Opened] = []

    def load(name: str, fragment: str = "", **options: Any) -> Opened:
        stored, path = made[name]
        tab = browser.new_page(viewport={"width": 1300, "height": 1000}, **options)
        page = Opened(tab, stored, [], [], path.as_uri() + fragment)
        tab.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: page.complaints.append(str(error)))
        tab.goto(page.url)
        assert becomes_true(tab, "document.documentElement.dataset.drawn === 'all'"), page.complaints
        return page

    def open_page(name: str, fragment: str = "", **options: Any) -> Opened:
        if fragment or options:
            own.append(load(name, fragment, **options))
            return own[-1]
        if name not in tabs:
            tabs[name] = load(name)
        used.append(tabs[name])
        return tabs[name]

    yield open_page
    for page in own + used:
        assert page.complaints == []
    for page in own:
        page.page.close()
    for page in used:
        page.page.evaluate("() => { document.activeElement.blur(); location.hash = ''; scrollTo(0, 0); }")
        page.page.mouse.move(0, 0)
        settle(page)


def settle(page: Opened) -> None:
    """Plots follow in the next frame."""
    page.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def layout(page: Opened, plot: str, path: str) -> Any:
    return page.page.evaluate(f"document.getElementById('{plot}').layout.{path}")


def picture(page: Opened, expression: str) -> Any:
    """`expression` of the slice `p` as the page's script holds it."""
    return page.page.evaluate(f"(() => {{ const p = landscape.openPicture(landscape.data); return {expression}; }})()")


def drag(page: Opened, start: tuple[float, float], end: tuple[float, float]) -> None:
    """With the mouse on the contour, from one place (α, β) to another."""
    page.page.locator("#contour").scroll_into_view_if_needed()
    pixels = page.page.evaluate(
        """places => { const plot = document.getElementById('contour'), box = plot.getBoundingClientRect();
        const {xaxis: x, yaxis: y} = plot._fullLayout;
        return places.map(([a, b]) => [box.x + x._offset + x.d2p(a), box.y + y._offset + y.d2p(b)]); }""",
        [start, end],
    )
    page.page.mouse.move(*pixels[0])
    page.page.mouse.down()
    page.page.mouse.move(*pixels[1], steps=5)
    page.page.mouse.up()
    settle(page)


@pytest.mark.parametrize("name", RECIPES)
def test_the_script_evaluates_the_picture_as_python_does(name: str, visit: Any) -> None:
    page = visit(name)
    stored = page.stored
    random = np.random.default_rng(0)
    (a, b), (c, d) = stored.bounds.alpha, stored.bounds.beta
    places = random.uniform((a, c), (b, d), (200, 2))
    found = np.array(picture(page, f"{json.dumps(places.tolist())}.map(([a, b]) => String(p.at(a, b)))"), dtype=float)
    if stored.surface is not None:
        expected = stored.surface(places[:, 0], places[:, 1])
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert np.isfinite(expected).any()
    else:  # between evaluated cells
        i = np.searchsorted(stored.alpha, places[:, 0])
        j = np.searchsorted(stored.beta, places[:, 1])
        corners = np.stack([stored.loss[i - x, j - y] for x in (0, 1) for y in (0, 1)])
        assert ((corners.min(0) <= found) & (found <= corners.max(0))).all()
        cells = [[float(stored.alpha[i]), float(stored.beta[i])] for i in range(9)]
        exact = picture(page, f"{json.dumps(cells)}.map(([a, b]) => p.at(a, b))")
        np.testing.assert_allclose(exact, [stored.loss[i, i] for i in range(9)], rtol=1e-15)


def test_lines_on_the_surface_meet_no_gap(visit: Any) -> None:
    """Where they do, a frame takes seconds without a graphics card."""
    lines = "document.getElementById('surface').data[0].contours.z"
    page = visit("torn")
    gaps = maximum_filter(~np.isfinite(page.stored.loss), 5)
    drawn = page.page.evaluate(lines)
    assert drawn["show"] and drawn["end"] <= page.stored.loss[gaps & np.isfinite(page.stored.loss)].min()
    all_of_them = visit("smooth").page.evaluate(lines)
    assert all_of_them["end"] > visit("smooth").stored.loss.max() - 2 * all_of_them["size"]


def test_units_relabel_axes_hover_and_tables(visit: Any) -> None:
    page = visit("smooth")
    alpha, norm = page.stored.alpha, page.stored.attributes["weight_norm"]
    hat = page.stored.point("theta_hat")
    assert shown(page.page.locator("#contour .xtitle")) == ["α: distance along ΘK → ΘK−1"]
    for key, title, length in (
        ("relative", ", in % of ‖ΘK‖", norm / 100),
        ("step-theta_hat", ", in steps ‖Θ̂K − ΘK‖", hat.distance),
    ):
        page.page.locator("[data-choice=units]").select_option(key)
        settle(page)
        assert shown(page.page.locator("#contour .xtitle")) == [f"α: distance along ΘK → ΘK−1{title}"]
        assert shown(page.page.locator("#profile .xtitle"))[0].endswith(title)
        np.testing.assert_allclose(layout(page, "contour", "xaxis.range"), alpha[[0, -1]] / length)
        np.testing.assert_allclose(
            page.page.evaluate("Array.from(document.getElementById('surface').data[0].x)"), alpha / length
        )
        place = alpha[30], page.stored.beta[8]
        text = page.hover(place[0] / length, place[1] / length).replace("−", "-")
        said = re.match(r"α = (\S+), β = (\S+?)loss", text)
        assert float(said[1]) == pytest.approx(place[0] / length, abs=2e-3)
        distance = page.page.locator("tr[data-point=theta_hat] [data-distance]").nth(2).text_content()
        assert float(distance) == pytest.approx(hat.distance / length, abs=1e-2)
        assert page.page.locator("[data-unit]").last.text_content() != "L2 distance"
    assert page.page.url.endswith("#units=step-theta_hat")


def test_a_line_that_is_drawn_becomes_the_profile(visit: Any) -> None:
    page = visit("smooth")
    stored = page.stored
    before = page.page.evaluate("Array.from(document.getElementById('profile').data[2].y)")
    start, end = (float(stored.alpha[5]), float(stored.beta[30])), (float(stored.alpha[33]), float(stored.beta[9]))
    drag(page, start, end)
    line = page.page.evaluate("landscape.state.line")
    np.testing.assert_allclose(line, [*start, *end], atol=0.02)
    t, after = page.page.evaluate(
        "(() => { const p = landscape.profileOf(landscape.openPicture(landscape.data)); return [p.t, p.loss]; })()"
    )
    t = np.array(t)
    a, b = line[0] + t * (line[2] - line[0]), line[1] + t * (line[3] - line[1])
    np.testing.assert_allclose(after, stored.surface(a, b), rtol=1e-12)
    drawn = page.page.evaluate("Array.from(document.getElementById('profile').data[2].y)")
    np.testing.assert_allclose(drawn, after)
    assert drawn != before
    assert shown(page.page.locator("#profile-title"))[0].startswith("Profile from (α = ")
    assert page.page.locator("#line-from").input_value() == ""
    page.page.locator("#line-from").select_option("theta_prev")
    page.page.locator("#line-to").select_option("theta_hat")
    settle(page)
    assert shown(page.page.locator("#profile-title")) == ["Profile from ΘK−1 to Θ̂K"]
    previous, hat = stored.point("theta_prev"), stored.point("theta_hat")
    length = np.hypot(hat.alpha - previous.alpha, hat.beta - previous.beta)
    middle = stored.at((previous.alpha + hat.alpha) / 2, (previous.beta + hat.beta) / 2)
    assert abs(float(re.search(r"loss (\S+) nats", page.hover(length / 2, middle, "profile"))[1]) - middle) < 2e-4
    assert page.page.evaluate("document.querySelectorAll('#contour .shapelayer path').length") == 1
    page.page.locator("#line-reset").click()
    assert page.page.evaluate("landscape.state.line") is None


def test_an_end_that_is_dropped_near_a_point_is_that_point(visit: Any) -> None:
    page = visit("smooth")
    hat, previous = page.stored.point("theta_hat"), page.stored.point("theta_prev")
    drag(page, (previous.alpha + 0.012, previous.beta - 0.01), (hat.alpha + 0.01, hat.beta + 0.02))
    assert shown(page.page.locator("#profile-title")) == ["Profile from ΘK−1 to Θ̂K"]


def test_the_quadratic_model_is_that_of_the_reading(visit: Any) -> None:
    page = visit("smooth")
    model = picture(page, "landscape.quadraticModel(p)")
    reading = page.stored.reading
    assert model["slope"] == pytest.approx(reading["gradient_delta"], abs=1e-6)
    assert model["bend"] == pytest.approx(reading["hessian_delta_delta"], rel=1e-4)
    hat = page.stored.point("theta_hat")
    along = reading["gradient_delta"] * hat.distance, reading["hessian_delta_delta"] * hat.distance**2 / 2
    said = page.page.locator("#profile-model").text_content().replace("−", "-")
    numbers = [float(each) for each in re.findall(r"[+-]\d\S*\d", said)]
    real = hat.loss - page.stored.points[0].loss
    assert numbers == pytest.approx([*along, sum(along), real], rel=6e-3)


def test_colours_follow_sliders_measure_and_logarithm(visit: Any) -> None:
    page = visit("smooth")
    origin = page.stored.points[0].loss
    top = "document.getElementById('contour').data.find(t => t.type == 'contour')"
    before = page.page.evaluate(f"{top}.zmax")
    slider = page.page.locator("[data-end=high]")
    slider.focus()
    for _ in range(3):
        page.page.keyboard.press("PageDown")
    settle(page)
    after = page.page.evaluate(f"{top}.zmax")
    assert page.stored.loss.min() < after < before
    assert slider.get_attribute("aria-valuetext").startswith(f"{after:.2f}"[:4])
    assert page.page.evaluate("document.getElementById('surface').data[0].cmax") == pytest.approx(after)
    page.page.locator("[data-choice=measure]").select_option("relative")
    settle(page)
    z = page.page.evaluate(f"{top}.z[7][9]")
    assert z == pytest.approx(100 * (page.stored.loss[9, 7] / origin - 1))
    change = page.hover(*page.cell(30, 12)).replace("−", "-")
    assert float(re.search(r"([+-][\d.]+) % against ΘK", change)[1]) == pytest.approx(
        100 * (page.stored.loss[30, 12] / origin - 1), rel=0.01
    )
    page.page.locator("[data-choice=scale]").select_option("log")
    settle(page)
    assert page.page.evaluate(f"{top}.z[7][9]") == pytest.approx(np.log10(100 * (page.stored.loss[9, 7] / origin - 1)))
    assert shown(page.page.locator("#contour .cbtitle"))[0] == "loss above that of ΘK (%)"


def test_the_address_brings_everything_back(visit: Any) -> None:
    page = visit("smooth")
    for choice, value in (("units", "relative"), ("measure", "change"), ("scale", "log"), ("theme", "dark")):
        page.page.locator(f"[data-choice={choice}]").select_option(value)
    page.page.locator("[data-choice=places]").check()
    drag(page, (-1.0, 1.0), (1.5, 4.0))
    page.page.evaluate("landscape.choose({high: [0.11], camera: [1, 0.5, 2]})")
    settle(page)
    again = visit("smooth", "#" + page.page.url.partition("#")[2])
    for expression in (
        "landscape.state",
        "document.getElementById('contour').layout.xaxis.range",
        "Array.from(document.getElementById('profile').data[2].y)",
        "document.getElementById('surface').data[0].cmax",
        "document.documentElement.dataset.theme",
        "document.querySelector('[data-choice=places]').checked",
    ):
        one, other = (each.page.evaluate(expression) for each in (page, again))
        if isinstance(one, list):
            np.testing.assert_allclose(one, other, rtol=1e-4)
        elif isinstance(one, float):
            assert one == pytest.approx(other, rel=1e-4)
        elif isinstance(one, str | bool):
            assert one == other
        else:
            assert one.keys() == other.keys()
    assert again.page.evaluate("document.getElementById('surface').layout.scene.camera.eye") == {
        "x": 1,
        "y": 0.5,
        "z": 2,
    }
    assert again.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_an_address_that_makes_no_sense_changes_nothing(visit: Any) -> None:
    page = visit("smooth", "#units=parsec&measure=__proto__&scale=7&line=1,2,x&high=&theme=<b>&nothing=1&camera=1,2")
    assert page.page.evaluate("[landscape.state.units, landscape.state.measure, landscape.state.scale]") == [
        "distance",
        "loss",
        "linear",
    ]
    assert page.page.evaluate("[landscape.state.line, landscape.state.high, landscape.state.camera]") == [None] * 3


def test_arrow_keys_move_a_cross_that_says_the_loss(visit: Any) -> None:
    page = visit("smooth")
    contour = page.page.locator("#contour")
    contour.focus()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("Shift+ArrowUp")
    alpha, beta = page.stored.alpha, page.stored.beta
    i, j = np.abs(alpha).argmin() + 1, np.abs(beta).argmin() + 10
    said = page.page.locator("#readout").text_content()
    assert float(re.match(r"α = (\S+),", said)[1]) == pytest.approx(alpha[i], abs=1e-3)
    assert abs(float(re.search(r"loss (\S+) nats", said)[1]) - page.stored.loss[i, j]) < page.stored.certificate.error
    assert page.page.locator("#contour .cross:not([hidden])").count() == 2
    assert page.page.locator("#readout").get_attribute("aria-live") == "polite"
    marked = "document.getElementById('surface').data.find(trace => trace.meta === 'looked at')"
    assert becomes_true(page.page, f"{marked}.x[0] !== null")  # and the surface shows where that is
    at = page.page.evaluate(f"[{marked}.x[0], {marked}.y[0], {marked}.z[0]]")
    room = 0.03 * float(np.ptp(page.stored.loss))
    assert at == pytest.approx([alpha[i], beta[j], page.stored.loss[i, j]], abs=room)
    page.page.evaluate("document.getElementById('contour').blur()")
    assert becomes_true(page.page, f"{marked}.x[0] === null")


def test_plots_are_saved(visit: Any) -> None:
    page = visit("smooth")
    figure = page.page.locator("figure", has=page.page.locator("#contour"))
    saved = {}
    for kind in ("csv", "svg", "png"):
        with page.page.expect_download() as download:
            figure.locator(f"[data-save={kind}]").click()
        saved[kind] = Path(download.value.path()).read_bytes()
        assert download.value.suggested_filename.endswith(f"contour.{kind}")
    rows = list(csv.DictReader(io.StringIO(saved["csv"].decode())))
    np.testing.assert_array_equal([float(row["loss"]) for row in rows], page.stored.loss.ravel())
    assert saved["svg"].startswith(b"<svg") and saved["png"].startswith(b"\x89PNG")
    figure = page.page.locator("figure", has=page.page.locator("#profile"))
    with page.page.expect_download() as download:
        figure.locator("[data-save=csv]").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    at = [abs(float(row["t"]) - 1) for row in rows]
    row = rows[int(np.argmin(at))]
    assert float(row["loss"]) == pytest.approx(page.stored.at(float(row["alpha"]), float(row["beta"])))


def test_of_a_run_points_far_out_of_the_plane_are_larger(visit: Any) -> None:
    page = visit("pca")
    sizes = dict(
        page.page.evaluate(
            "document.getElementById('contour').data.filter(t => t.mode == 'markers').map(t => [t.name, t.marker.size])"
        )
    )
    run = [point for point in page.stored.points if point.role == "checkpoint"]
    residuals = [point.residual for point in run]
    ordered = [sizes[f"Θ<sub>{point.label[3:-1]}</sub>"] for point in run]
    assert np.argmax(residuals) == np.argmax(ordered) and np.argmin(residuals) == np.argmin(ordered)
    assert max(ordered) > 1.3 * min(ordered)


def test_dark_and_printed_pages_have_their_colours(visit: Any) -> None:
    page = visit("smooth", color_scheme="dark")
    paper = "document.getElementById('contour').layout.paper_bgcolor"
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    assert page.page.evaluate(paper) == "#14181d"
    page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    settle(page)
    assert page.page.evaluate(paper) == "#ffffff"
    page.page.evaluate("dispatchEvent(new Event('afterprint'))")
    settle(page)
    assert page.page.evaluate(paper) == "#14181d"


def test_large_grids_are_thinned_for_the_surface_alone(browser: Any, tmp_path: Path) -> None:
    stored = Recipe(adaptive=True, grid=(301, 251)).make(tmp_path / "large.h5")
    write_page(stored, path := tmp_path / "large.html")
    tab = browser.new_page(viewport={"width": 1300, "height": 1000})
    tab.goto(path.as_uri())
    assert becomes_true(tab, "document.documentElement.dataset.drawn === 'all'")
    page = Opened(tab, stored, [], [], path.as_uri())
    x = tab.evaluate("Array.from(document.getElementById('surface').data[0].x)")
    assert len(x) == 101 and x[-1] == stored.alpha[-1]
    np.testing.assert_array_equal(tab.evaluate("document.getElementById('contour').data[0].x"), stored.alpha)
    text = page.hover(*page.cell(77, 200)).replace("−", "-")
    assert float(re.match(r"α = (\S+),", text)[1]) == pytest.approx(stored.alpha[77], abs=1e-4)
    tab.close()
