"""What `landscape view` makes of files and folders, and the index in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import made_studies
from landscape.config import ViewConfig
from landscape.curvature import store
from landscape.errors import LandscapeError
from landscape.slices import read
from landscape.viewing import view_results
from landscape.viewing.names import page_names
from landscape.viewing.site import INDEX
from viewer_browser import becomes_true, launched
from viewer_slices import ATTRIBUTES, Recipe, bowl, line

HOSTILE = "<script>window.hacked=1</script>"
EVALUATION = {
    "kind": "evaluation",
    "schema": 1,
    "model": "org/pythia@step9",
    "quantizer": "nf4",
    "text": "wikitext",
    "comparison": {
        "loss": {"value": 3.25, "standard_error": 0.01, "low": 3.23, "high": 3.27},
        "relative": {"value": 0.0123, "standard_error": 0.001, "low": 0.0103, "high": 0.0143},
    },
}


def titled(title: str, **attributes: Any) -> dict[str, Any]:
    return {**ATTRIBUTES, "title": title, **attributes}


def sharpness(path: Path) -> None:
    points = np.linspace(-1, 40, 30)
    density = {"points": points, "density": np.exp(-np.abs(points)), "standard_error": 0.1 * np.exp(-np.abs(points))}
    store.write(
        path,
        {"model": "run@step8000", "model_identity": "sha256:0", "text": "wikitext", "config": "{}", "versions": "{}"},
        {
            "eigenvalues/top": {"values": np.array([37.53]), "residuals": np.array([0.1])},
            "trace": {"value": 512.3, "standard_error": 4.2},
            "density": {**density, "width": 0.4, "n": 1000},
        },
        complete=True,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all kinds of results, and of some that cannot be read."""
    folder = tmp_path_factory.mktemp("made") / "results"
    for name in ("one", "two", "text"):
        (folder / name).mkdir(parents=True)
    Recipe().make(folder / "one/plain.h5")
    Recipe(loss=lambda a, b: bowl(a, b) + 0.05 * b, attributes=titled("run@step7200, gptq-w3-g128")).make(
        folder / "one/steeper.h5"
    )
    Recipe(attributes=titled(HOSTILE, model=f"a/b {HOSTILE}")).make(folder / "two/plain.h5")
    Recipe(attributes=titled("begun"), stop_after=40).make(folder / "two/begun.h5")
    line(attributes=titled("a line", plane="line"), grid=(31, 1)).make(folder / "two/line.h5")
    made_studies.study(folder, made_studies.stable("stable-a", lambda step: {"delta_q": step * 1e-5}), "study")
    sharpness(folder / "two/sharp.h5")
    (folder / "two/evaluation.json").write_text(json.dumps(EVALUATION, indent=1))
    (folder / "two/other.json").write_text('{"kind": "something"}')
    (folder / "two/odd.json").write_text(json.dumps(EVALUATION | {"comparison": {}}, indent=1))
    (folder / "two/broken.h5").write_bytes(b"not hdf5")
    return folder


@pytest.fixture(scope="module")
def site(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    view_results(ViewConfig([str(made)], out=out))
    return out


def pages(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob("*.html")}


def test_one_slice_is_one_file_that_works_alone(landscape, made: Path, tmp_path: Path):
    shutil.copy(made / "one/plain.h5", tmp_path / "run.v2.h5")
    code, out, err = landscape("view", tmp_path / "run.v2.h5")
    assert code == 0, err
    page = (tmp_path / "run.v2.html").read_text()
    assert "<script src" not in page and "Plotly" in page and 'class="up"' not in page
    assert "run.v2.html" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.v2.h5", "run.v2.html"]
    assert landscape("view", tmp_path / "run.v2.h5", "--out", tmp_path / "a/b.html")[0] == 0
    assert (tmp_path / "a/b.html").is_file()


def test_a_measurement_alone_has_its_numbers(made: Path, tmp_path: Path):
    viewed = view_results(ViewConfig([str(made / "two/sharp.h5")], out=tmp_path / "sharp.html"))
    page = viewed.page.read_text()
    assert "37.53" in page and "512 ± 4" in page and "<polyline" in page


def test_a_folder_has_a_page_for_all_that_has_one(made: Path, site: Path):
    names = pages(site)
    kinds = sorted("plain" if name.startswith("plain") else name.rpartition("-")[0] for name in names)
    # the two called plain.h5, one comparison in `one` and another of the two planes in `two`
    groups = [kind for kind in kinds if kind.startswith("compare")]
    assert len(groups) == 2
    assert [kind for kind in kinds if kind not in groups] == ["", "begun", "line", "plain", "plain", "steeper", "study"]
    index = (site / INDEX).read_text()
    assert all(f'href="{name}"' in index for name in names if name != INDEX)
    assert "landscape.js" in index and len(index) < 200_000
    for name in names:
        assert ('href="index.html"' in (site / name).read_text()) == (name != INDEX)


def test_what_cannot_be_read_is_named(landscape, made: Path, tmp_path: Path):
    code, out, _ = landscape("view", made, "--out", tmp_path)
    assert code == 0
    assert "results/two/broken.h5: not a whole HDF5 file" in out
    assert "results/two/odd.json: cannot be shown (KeyError: 'relative')" in out
    assert "2 files could not be shown" in (tmp_path / INDEX).read_text()


def test_only_what_changed_is_drawn_again(made: Path, tmp_path: Path):
    shutil.copytree(made, tmp_path / "results")
    config = ViewConfig([str(tmp_path / "results")], out=tmp_path / "site")
    first = view_results(config)
    assert (first.drawn, first.kept) == (8, 0)
    before = pages(first.page.parent)
    again = view_results(config)
    assert (again.drawn, again.kept) == (0, 8)
    assert pages(first.page.parent) == before
    os.utime(tmp_path / "results/one/steeper.h5", (1, 1))
    view_results(config)
    changed = {name.rpartition("-")[0][:7] for name, when in pages(first.page.parent).items() if when != before[name]}
    assert changed == {"", "steeper", "compare"}
    (tmp_path / "results/one/steeper.h5").unlink()
    view_results(config)
    assert {name.rpartition("-")[0][:7] for name in before.keys() - pages(first.page.parent)} == {"steeper", "compare"}
    assert "steeper" not in first.page.read_text()


def test_pages_and_their_own_folder_are_no_results(made: Path, tmp_path: Path):
    shutil.copytree(made / "one", tmp_path / "one")
    viewed = view_results(ViewConfig([str(tmp_path / "one")]))
    assert viewed.page == tmp_path / "one/pages/index.html"
    shutil.copy(made / "one/plain.h5", tmp_path / "one/pages/more.h5")
    assert view_results(ViewConfig([str(tmp_path / "one")])).kept == 3


def test_names_are_stable_unique_and_safe():
    odd = [f"a/{HOSTILE}.h5", "a/..h5", "a/Größe π.h5", "a/" + 300 * "x"]
    places = ["a/run.h5", "b/run.h5", *odd, "lab/study.parquet"]
    names = page_names(places)
    assert len(set(names.values())) == len(places)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]{,99}", name) for name in names.values())
    assert names["lab/study.parquet"].startswith("lab-")
    assert page_names(places[:1])["a/run.h5"] == names["a/run.h5"]


def test_two_folders_of_one_name(made: Path, tmp_path: Path):
    for name in "xy":
        shutil.copytree(made / "one", tmp_path / name / "same")
    viewed = view_results(ViewConfig([str(tmp_path / "x/same"), str(tmp_path / "y/same")], out=tmp_path / "out"))
    assert viewed.drawn == 6 and len(pages(tmp_path / "out")) == 7


def test_figures_are_drawn_with_the_pages(made: Path, tmp_path: Path):
    viewed = view_results(ViewConfig([str(made / "two")], out=tmp_path, figures=True))
    drawn = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.pdf")]
    assert viewed.figures == len(drawn)
    assert {name.split("/")[1].split("-")[0] for name in drawn} >= {"plain", "line", "sharp"}


def test_without_a_browser_the_address_is_said(landscape, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(asked.append(address)))
    code, out, _ = landscape("view", made / "one/plain.h5", "--out", tmp_path / "a page.html", "--open")
    assert code == 0
    assert asked == [(tmp_path / "a page.html").as_uri()]
    assert f"no browser found here; open {asked[0]}" in out


MISTAKES = {
    "nothing": ([], "paths"),
    "nowhere": (["missing.h5"], "missing.h5: no such file or directory; expected a slice (.h5)"),
    "an empty folder": (["{empty}"], "no result in it; expected slices or measurements (.h5)"),
    "nothing readable": (["{bad}"], "nothing in it can be shown; bad/broken.h5: not a whole HDF5 file"),
    "no result": (["{text}"], "not a result; expected a slice (.h5), study.parquet or a folder"),
    "a broken slice": (["{bad}/broken.h5"], "not a whole HDF5 file"),
    "a page for many": (["{made}", "--out", "x.html"], "several results give a folder of pages"),
    "no page": (["{made}/one/plain.h5", "--out", "x.pdf"], "--out x.pdf: expected a page, NAME.html"),
    "an index of another": (["{made}", "--out", "{foreign}"], "index.html: not made by 'landscape view'"),
    "a page to serve": (["{made}/one/plain.h5", "--serve", "0", "--out", "x.html"], "served from a folder; expected"),
    "no port": (["{made}", "--serve", "http"], "http"),
    "a port beyond": (["{made}", "--serve", "65536"], "--serve 65536: expected a port from 0 to 65535"),
    "unknown option": (["{made}", "--figure"], "--figures"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(case: str, landscape, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    places = {name: tmp_path / name for name in ("empty", "bad", "foreign")}
    for place in places.values():
        place.mkdir()
    (places["bad"] / "broken.h5").write_bytes(b"not hdf5")
    (places["foreign"] / "index.html").write_text("mine")
    places |= {"made": made, "text": places["foreign"] / "index.html"}
    arguments, expected = MISTAKES[case]
    before = sorted(tmp_path.rglob("*"))
    code, out, err = landscape("view", *(word.format(**places) for word in arguments))
    said = [text for text in err.splitlines() if text.startswith("landscape: ")]
    assert (code, out, len(said)) == (2, "", 1), (out, err)
    assert expected in said[0]
    assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


def test_no_torch_is_loaded(made: Path, tmp_path: Path):
    code = (
        "import sys; from landscape.cli import app\n"
        f"app(['view', {str(made)!r}, '--out', {str(tmp_path)!r}], standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1] == "[]"


def test_a_disk_that_refuses_is_one_line(made: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LandscapeError, match="cannot be written"):
        view_results(ViewConfig([str(made)], out=tmp_path / "file/below"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


class Index:
    """The index as a reader has it, opened from a disk."""

    def __init__(self, context: Any, site: Path, fragment: str = "") -> None:
        self.page, self.complaints, self.requests = context.new_page(), [], []
        self.page.set_default_timeout(10_000)
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda asked: self.requests.append(asked.url))
        self.page.goto((site / INDEX).as_uri() + fragment)

    @property
    def titles(self) -> list[str]:
        return [card.inner_text() for card in self.page.locator(".card:visible h3").all()]

    @property
    def count(self) -> str:
        return str(self.page.locator("#count").text_content())


@pytest.fixture(scope="module")
def index(browser: Any, site: Path) -> Index:
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    return Index(context, site)


@pytest.mark.browser
def test_the_index_shows_everything_without_a_network(index: Index, site: Path, made: Path):
    assert index.count == "All 10 are shown."
    assert HOSTILE in index.titles
    assert index.page.evaluate("window.hacked") is None
    assert index.complaints == []
    own = {(site / name).as_uri() for name in (INDEX, "landscape.js")}
    assert {url for url in index.requests if not url.startswith("data:")} == own
    begun = index.page.locator(".card", has_text="begun")
    assert f"unfinished: {100 * read(made / 'two/begun.h5').done.mean():.0f} %" in begun.first.inner_text()
    pictures = index.page.locator("svg.thumbnail")
    assert pictures.count() >= 8
    assert all(picture.get_attribute("aria-label") for picture in pictures.all())


@pytest.mark.browser
def test_the_filter_and_its_permalink(index: Index, site: Path):
    page, search = index.page, index.page.locator("input[type=search]")
    search.fill("GPTQ step7200")
    assert index.titles == ["one: 2 slices, checkpoint and quantization", "run@step7200, gptq-w3-g128"]
    assert index.count == "2 of 10 are shown."
    page.get_by_role("checkbox", name="Side by side").uncheck()
    assert index.titles == ["run@step7200, gptq-w3-g128"]
    page.get_by_label("Sort by").select_option("error")
    again = Index(page.context, site, "#" + page.evaluate("location.hash.slice(1)"))
    assert again.titles == index.titles and again.count == "1 of 10 are shown."
    assert again.page.locator("input[type=search]").input_value() == "GPTQ step7200"
    again.page.locator("input[type=search]").fill("nothing like it")
    assert again.count.startswith("None of 10")
    again.page.close()
    search.fill("")
    page.get_by_role("checkbox", name="Side by side").check()
    page.get_by_label("Sort by").select_option("name")
    assert page.evaluate("location.hash") == ""


@pytest.mark.browser
@pytest.mark.parametrize(("order", "first"), [("error", "worst"), ("least", "mildest")])
def test_sorting_by_error(index: Index, order: str, first: str):
    index.page.get_by_label("Sort by").select_option(order)
    cards = index.page.locator(".group[data-kind=slice] .card")
    errors = [card.get_attribute("data-error") for card in cards.all()]
    known = [float(error) for error in errors if error]
    assert known == sorted(known, reverse=first == "worst") and len(set(known)) > 1
    assert errors[len(known) :] == [None] * (len(errors) - len(known))


@pytest.mark.browser
def test_a_card_leads_to_its_page_and_back(index: Index):
    page = index.page
    page.get_by_role("link", name=HOSTILE, exact=True).click()
    assert becomes_true(page, "document.documentElement.dataset.drawn === 'all'")
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator(".up a").all_inner_texts() == ["Side by side", "All results"]
    page.locator(".up a", has_text="All results").click()
    assert becomes_true(page, "document.documentElement.dataset.drawn === 'all'")
    assert index.complaints == []


@pytest.mark.browser
def test_without_a_script_every_card_is_there(browser: Any, site: Path):
    context = browser.new_context(java_script_enabled=False)
    assert len(Index(context, site).titles) == 10
    context.close()
