"""The figure for a paper: contour or curve, PDF or PNG."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from landscape.errors import OptionError, StoreError
from landscape.slices.stored import StoredSlice
from landscape.viewer import write_figure, write_page
from landscape.viewer.printed.slice import CONTOUR, PROFILE, SURFACE, draw, views
from viewer_slices import Recipe, alone, line, pca, quantizers, torn


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> StoredSlice:
    return Recipe().make(tmp_path_factory.mktemp("slice") / "complete.h5")


def colours(pixels: np.ndarray) -> int:
    """How many colours there are among pixels with red, green, blue from 0 to 1."""
    return len(np.unique((255 * pixels[..., :3]).astype(np.int64) @ [1, 256, 65536]))


def test_figure_is_written_as_pdf_and_png(complete: StoredSlice, tmp_path: Path) -> None:
    write_figure(complete, tmp_path / "slice.pdf")
    write_figure(complete, tmp_path / "slice.png")
    pdf = (tmp_path / "slice.pdf").read_bytes()
    assert pdf.startswith(b"%PDF") and len(pdf) > 10_000 and b"/Type3" not in pdf
    image = matplotlib.image.imread(tmp_path / "slice.png")
    assert image.shape[1] == 1050  # 3.5 inches at 300 dots per inch
    assert colours(image) > 500
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slice.pdf", "slice.png"]


def assert_words_are_apart_and_on_the_paper(figure: Figure) -> None:
    figure.draw_without_rendering()
    axes = figure.axes[0]
    labels = [text.get_window_extent() for text in axes.texts]
    for i, box in enumerate(labels):
        assert not any(box.overlaps(other) for other in labels[:i])
    lines = [axis for one in figure.axes for axis in (one.xaxis, one.yaxis)]
    note = [text.get_window_extent() for text in figure.texts]
    assert not any(box.overlaps(axes.get_window_extent()) for box in note)
    titles = [axis.label.get_window_extent() for axis in lines if axis.label.get_text()]
    for box in [*labels, *note, *titles, *(axis.get_tightbbox() for axis in lines if axis.get_tightbbox())]:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1


@pytest.mark.parametrize(("first", "second"), [(0.45, 1.4), (0.01, 1.4), (1.4, 0.02), (1.0, 1.0)])
def test_figure_keeps_its_words_apart_and_on_the_paper(first: float, second: float, tmp_path: Path) -> None:
    figure = draw(Recipe(first_length=first, second_length=second).make(tmp_path / "near.h5"))
    assert_words_are_apart_and_on_the_paper(figure)
    axes, bar = figure.axes
    assert len(axes.texts) == 3
    titles = [axes.xaxis.label, axes.yaxis.label, bar.yaxis.label]
    assert [title.get_text()[:1] for title in titles] == ["α", "β", "l"]


PLANES = {"pca": pca, "quantizers": quantizers, "alone": alone, "torn": torn, "line": line}


@pytest.mark.parametrize("kind", PLANES)
def test_every_kind_of_plane_keeps_its_words_apart(kind: str, tmp_path: Path) -> None:
    recipe = PLANES[kind](adaptive=True, **({} if kind in ("line", "torn") else {"grid": (21, 21)}))
    stored = recipe.make(tmp_path / "slice.h5")
    figure = draw(stored)
    assert_words_are_apart_and_on_the_paper(figure)
    note = " ".join(figure.texts[0].get_text().split())
    assert note.startswith(f"reconstructed from {stored.certificate.evaluations:,} evaluations")
    assert "error $\\leq$" in note.replace("≤", "$\\leq$")


def test_the_note_says_evaluated(complete: StoredSlice) -> None:
    assert [text.get_text() for text in draw(complete).texts] == ["evaluated"]


def test_a_crowded_run_is_labelled_in_part(tmp_path: Path) -> None:
    stored = pca(second_length=0.05, first_length=0.9, grid=(21, 21), adaptive=True).make(tmp_path / "run.h5")
    figure = draw(stored)
    assert_words_are_apart_and_on_the_paper(figure)
    written = [text.get_text() for text in figure.axes[0].texts]
    assert r"$\Theta_{K}$" in written and 2 <= len(written) < 9


def test_a_line_is_a_curve(tmp_path: Path) -> None:
    stored = line().make(tmp_path / "line.h5")
    (axes,) = draw(stored).axes
    curve = axes.lines[0].get_xydata()
    shown = np.interp(stored.alpha, *curve.T)
    np.testing.assert_allclose(shown, stored.loss[:, 0], atol=1e-12)
    assert axes.get_ylabel() == "loss (nats per token)"
    low, high = axes.get_ylim()
    assert low < stored.loss.min() and high > stored.loss.max()
    places = axes.collections[1].get_offsets()
    assert len(places) == sum(map(len, stored.nodes.values())) == stored.certificate.evaluations


def test_figure_of_an_unfinished_reconstruction(tmp_path: Path) -> None:
    for recipe in (Recipe(adaptive=True, grid=(21, 21), stop_after=9), line(stop_after=4)):
        stored = recipe.make(tmp_path / f"{recipe.kind}.h5")
        figure = draw(stored)
        made = sum(map(len, stored.nodes.values()))
        assert made > 0 and figure.texts[0].get_text() == f"{made} evaluations made so far"
        assert max(len(dots.get_offsets()) for dots in figure.axes[0].collections) >= made


def test_each_kind_of_slice_has_its_views(complete: StoredSlice, tmp_path: Path) -> None:
    assert views(complete) == [CONTOUR, SURFACE, PROFILE]
    assert views(alone(adaptive=True, grid=(11, 11)).make(tmp_path / "alone.h5")) == [CONTOUR, SURFACE]
    assert views(line().make(tmp_path / "line.h5")) == [CONTOUR]
    early = Recipe(adaptive=True, grid=(21, 21), stop_after=9).make(tmp_path / "early.h5")
    assert views(early) == [CONTOUR]
    with pytest.raises(OptionError, match=r"figure of the surface: this slice has none; expected contour$"):
        write_figure(early, tmp_path / "early.pdf", SURFACE)


def test_the_profile_shows_losses_and_their_quadratic_model(tmp_path: Path) -> None:
    stored = Recipe(adaptive=True, grid=(31, 31)).make(tmp_path / "smooth.h5")
    figure = draw(stored, PROFILE)
    assert_words_are_apart_and_on_the_paper(figure)
    loss, model = figure.axes[0].lines[:2]
    hat, origin = stored.point("theta_hat"), stored.points[0]
    assert float(np.interp(hat.distance, *loss.get_data())) == pytest.approx(hat.loss, abs=1e-3)
    expected = origin.loss + stored.reading["gradient_delta"] * hat.distance
    expected += stored.reading["hessian_delta_delta"] * hat.distance**2 / 2
    assert float(np.interp(hat.distance, *model.get_data())) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("kind", ["good", "pca", "torn"])
def test_the_surface_is_drawn_on_the_paper(kind: str, complete: StoredSlice, tmp_path: Path) -> None:
    make = {"pca": pca(adaptive=True, grid=(31, 31)), "torn": torn()}
    stored = complete if kind == "good" else make[kind].make(tmp_path / "s.h5")
    write_figure(stored, tmp_path / "surface.png", SURFACE)
    image = matplotlib.image.imread(tmp_path / "surface.png")[..., :3]
    edge = np.concatenate([image[:, :3].reshape(-1, 3), image[:, -3:].reshape(-1, 3), image[-3:].reshape(-1, 3)])
    assert (edge > 0.99).all()  # nothing is cut off
    assert colours(image) > 150


def test_figure_wants_a_known_suffix(complete: StoredSlice, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"slice\.svg: expected a name that ends in \.pdf or \.png"):
        write_figure(complete, tmp_path / "slice.svg")


def test_a_failed_write_leaves_the_old_file(
    complete: StoredSlice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "slice.html"
    target.write_text("old")
    whole = Path.open

    def half(self: Path, mode: str = "r", *more: object, **given: object) -> object:
        file = whole(self, mode, *more, **given)
        if "w" not in mode:
            return file
        write = file.write

        class Full:
            def __enter__(self) -> Full:
                return self

            def __exit__(self, *exception: object) -> None:
                file.close()

            def write(self, content: bytes) -> None:
                write(content[:100])
                raise OSError(28, "No space left on device")

        return Full()

    monkeypatch.setattr(Path, "open", half)
    with pytest.raises(StoreError, match=r"slice\.html: the disk is full"):
        write_page(complete, target)
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
