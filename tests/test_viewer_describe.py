"""What the viewer says of a slice: points, facts, captions, colours."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from landscape import slices
from landscape.slices.stored import StoredSlice
from landscape.viewer import describe, write_figure, write_page
from landscape.viewer.described.colours import nice_step
from landscape.viewer.described.curves import profile_losses
from landscape.viewer.pages.slice_data import plane_data
from viewer_slices import ATTRIBUTES, NAMED, Recipe, alone, broken, line, pca, quantizers


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> StoredSlice:
    return Recipe().make(tmp_path_factory.mktemp("slice") / "complete.h5")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> StoredSlice:
    return pca(grid=(21, 21), adaptive=True).make(tmp_path_factory.mktemp("slice") / "pca.h5")


def test_numbers_are_the_stored_ones(complete: StoredSlice) -> None:
    described = describe(complete)
    assert [point.name for point in described.points] == ["theta", "theta_prev", "theta_hat"]
    for row, point in zip(described.points, complete.points, strict=True):
        assert (row.loss, row.alpha, row.beta) == (point.loss, point.alpha, point.beta)
        assert (row.distance, row.residual, row.label) == (point.distance, point.residual, point.label)
        assert (row.role, row.what) == (point.role, point.what)
        assert row.perplexity == pytest.approx(math.exp(point.loss), rel=1e-14)
    assert [point.what for point in described.points] == ["run@step8000", "run@step7200", "gptq-w3-g128"]
    facts = dict(described.facts)
    assert facts["Evaluated on"] == "4,096 tokens in 16 windows"
    assert facts["Weights, ‖Θ‖"] == "32.5"
    assert facts["Quantization step, ‖δ‖/‖Θ‖"] == "4.31 %"  # 1.4 / 32.5
    assert facts["Grid"] == "9 × 11 cells, α × β"
    assert "Parameters moved" not in facts and "Variance shown" not in facts
    assert described.notices == ()


def test_quantization_error_is_relative_to_the_origin(complete: StoredSlice) -> None:
    theta, previous, quantized = describe(complete).points
    loss, hat = complete.point("theta").loss, complete.point("theta_hat").loss
    assert quantized.relative == pytest.approx(hat / loss - 1, rel=1e-12) and quantized.relative > 0.01
    assert quantized.change == pytest.approx(hat - loss, rel=1e-12)
    assert previous.relative == pytest.approx(complete.point("theta_prev").loss / loss - 1, rel=1e-12)
    assert theta.relative is None and theta.change is None
    caption = " ".join(describe(complete).caption)
    assert f"ΔQ is +{100 * quantized.relative:.2f} %" in caption
    assert f"from {loss:.4f} to {hat:.4f}" in caption
    assert ATTRIBUTES["about"] in caption


def test_nothing_depends_on_the_names_of_points(complete: StoredSlice, tmp_path: Path) -> None:
    renamed = replace(
        complete, points=tuple(replace(point, name=f"p{i}") for i, point in enumerate(complete.points)), reading={}
    )
    assert describe(renamed).caption == describe(complete).caption
    assert [point.sign for point in describe(renamed).points] == [0, 1, 2]
    write_page(renamed, tmp_path / "renamed.html")
    write_figure(renamed, tmp_path / "renamed.png")


def test_two_quantizers_have_a_sentence_each(tmp_path: Path) -> None:
    described = describe(quantizers().make(tmp_path / "two.h5"))
    caption = " ".join(described.caption)
    for point in described.points[1:]:
        assert f"Quantization with {point.what} moves the weights by {point.distance:.4g}" in caption
    assert dict(described.facts)["Quantization step, ‖δ‖/‖Θ‖"] == "1.38 % and 4.31 %"
    assert [point.sign for point in described.points] == [0, 2, 2]


def test_a_run_is_a_path_from_the_origin(run: StoredSlice) -> None:
    described = describe(run)
    assert len(described.points) == 9
    np.testing.assert_array_equal(described.path[0], [point.alpha for point in run.points])
    np.testing.assert_array_equal(described.path[1], [point.beta for point in run.points])
    backwards = describe(replace(run, points=(run.points[0], *run.points[:0:-1])))
    np.testing.assert_array_equal(backwards.path[0], described.path[0])  # whichever end of the run comes first
    assert all(point.small for point in described.points[1:]) and not described.origin.small
    caption = " ".join(described.caption)
    assert "The 8 checkpoints reach from Θ_{step7200}" in caption and "to Θ_{step1600}" in caption
    facts = dict(described.facts)
    assert facts["Variance shown"] == "83.1 % + 11.4 %"
    assert "Quantizer" not in facts and "Quantization step, ‖δ‖/‖Θ‖" not in facts
    assert "ΔQ" not in caption


def test_points_off_the_plane_are_shown_where_they_project(run: StoredSlice, complete: StoredSlice) -> None:
    for point in describe(run).points[1:]:
        assert point.residual > 0.01
        assert point.shown == point.below == pytest.approx(run.at(point.alpha, point.beta), abs=1e-12)
    assert all(point.below is None and point.shown == point.loss for point in describe(complete).points)


def test_few_checkpoints_make_no_path(complete: StoredSlice) -> None:
    described = describe(complete)
    assert len(described.path[0]) == 0 and not any(point.small for point in described.points)


def test_a_point_alone_has_no_profile(tmp_path: Path) -> None:
    described = describe(alone(adaptive=True, grid=(21, 21)).make(tmp_path / "alone.h5"))
    assert described.profile_line is None
    assert described.alpha_title == "α: distance along a random direction, filter-normalized, seed 0"
    assert "Quantizer" not in dict(described.facts)


def test_a_line_has_one_axis(tmp_path: Path) -> None:
    stored = line().make(tmp_path / "line.h5")
    described = describe(stored)
    assert stored.is_line and described.is_line and described.profile_line is None
    assert dict(described.facts)["Grid"] == "101 places"
    assert "Angle of directions" not in dict(described.facts)
    assert described.caption[0].startswith("Every place on this line")
    assert all(point.inside for point in described.points)


def test_restricted_parameters_are_named(complete: StoredSlice) -> None:
    some = replace(complete, attributes={**complete.attributes, "params": "*attn*,!*bias"})
    assert dict(describe(some).facts)["Parameters moved"] == "*attn*, !*bias"


def test_caption_says_lowers_when_the_loss_falls(tmp_path: Path) -> None:
    stored = Recipe(loss=lambda a, b: 3 - 0.1 * b).make(tmp_path / "down.h5")
    assert "lowers the loss from 3.0000" in " ".join(describe(stored).caption)


def test_unfinished_and_non_finite_cells_are_counted(tmp_path: Path) -> None:
    stored = Recipe(loss=broken, stop_after=70).make(tmp_path / "part.h5")
    described = describe(stored)
    bad = int((stored.done & ~np.isfinite(stored.loss)).sum())
    assert 0 < bad < stored.done.sum() < stored.done.size
    assert described.notices[0].startswith(f"{stored.done.sum()} of 99 cells evaluated so far")
    assert described.notices[1].startswith(f"{bad} cells have a non-finite loss")
    assert np.isfinite(described.finite).sum() == stored.done.sum() - bad
    assert dict(described.facts)["Status"] == "running"


def test_a_few_enormous_cells_do_not_take_the_colours(tmp_path: Path) -> None:
    stored = Recipe(loss=lambda a, b: 1e6 if a > 0.7 and b > 1.6 else 2.66 + 0.1 * a * a + 0.04 * b * b)
    described = describe(stored := stored.make(tmp_path / "tall.h5"))
    assert described.colours is not None
    assert described.colours.low == stored.loss.min()
    named = [point.loss for point in stored.points]
    assert max(named) < described.colours.high < 4
    above = int((stored.loss > described.colours.high).sum())
    assert described.colours.cells_above == above > 0
    assert any(f"{above} cells above it share the last colour" in notice for notice in described.notices)
    assert np.nanmax(described.finite) == 1e6  # only the colours are clipped


def test_a_bowl_around_one_point_keeps_its_colours(tmp_path: Path) -> None:
    stored = alone(loss=lambda a, b: 3 + a * a + b * b, grid=(21, 21)).make(tmp_path / "bowl.h5")
    assert describe(stored).colours.cells_above == 0


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


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("grid", [(2, 2), (3, 2), (2, 7)])
def test_tiny_grids(grid: tuple[int, int], adaptive: bool, tmp_path: Path) -> None:
    stored = Recipe(grid=grid, adaptive=adaptive).make(tmp_path / "tiny.h5")
    write_page(stored, tmp_path / "tiny.html")
    write_figure(stored, tmp_path / "tiny.pdf")


def test_a_file_that_says_nothing_of_itself(tmp_path: Path) -> None:
    made = Recipe(attributes={}, tables={}).make(tmp_path / "bare.h5")
    bare = {name: made.attributes[name] for name in ("schema", "key", "point_order")} | {"status": ""}
    described = describe(stored := replace(made, attributes=bare))
    facts = dict(described.facts)
    assert described.title == "Loss slice"
    assert (described.alpha_title, described.beta_title) == ("α", "β")
    assert {facts[name] for name in ("Model", "Plane", "Text", "Seed", "Status", "Angle of directions")} == {"—"}
    assert described.caption[1] == "It runs through Θ_K, Θ_{K−1} and Θ̂_K."
    write_page(stored, tmp_path / "bare.html")
    write_figure(stored, tmp_path / "bare.pdf")


def test_points_outside_the_rectangle_are_announced(complete: StoredSlice) -> None:
    def narrow(columns: slice) -> tuple[str, ...]:
        cut = {name: getattr(complete, name)[:, columns] for name in ("loss", "done", "evaluated")}
        return describe(replace(complete, beta=complete.beta[columns], **cut)).notices

    assert any(notice.startswith("Θ̂_K lies outside the rectangle, at α = −0.08") for notice in narrow(slice(0, 6)))
    assert not any("outside" in notice for notice in narrow(slice(0, 11)))


def test_many_points_outside_are_announced_at_once(run: StoredSlice) -> None:
    cut = {name: getattr(run, name)[:, :9] for name in ("loss", "done", "evaluated")}
    notices = describe(replace(run, beta=run.beta[:9], **cut)).notices
    assert sum("outside" in notice for notice in notices) == 1
    assert any("Θ_{step2400} and Θ_{step1600} lie outside the rectangle." in notice for notice in notices)


@pytest.mark.parametrize(("rough", "nice"), [(0.011, 0.02), (0.02, 0.02), (0.3, 0.5), (7, 10), (1e-9, 1e-9)])
def test_nice_steps(rough: float, nice: float) -> None:
    assert nice_step(rough) == pytest.approx(nice)


def test_profile_shows_what_was_evaluated_and_both_ends(complete: StoredSlice) -> None:
    data = plane_data(complete, describe(complete))
    np.testing.assert_array_equal(data["profile"]["t"], complete.profile[0])
    np.testing.assert_array_equal(data["profile"]["loss"], complete.profile[1])
    assert complete.profile[0][0] < 0 and complete.profile[0][-1] > 1
    assert data["profile"]["evaluated"]
    first, last = complete.point("theta"), complete.point("theta_hat")
    assert data["line"] == [first.alpha, first.beta, last.alpha, last.beta]


def test_profile_of_a_reconstruction_ends_with_the_rectangle(tmp_path: Path) -> None:
    recipe = Recipe(adaptive=True, grid=(21, 21))
    stored = recipe.make(tmp_path / "whole.h5")
    cut = {name: getattr(stored, name)[:, :15] for name in ("loss", "done", "evaluated")}
    losses = np.where(stored.profile[0] * stored.points[-1].beta > stored.beta[14], np.nan, stored.profile[1])
    narrow = replace(stored, beta=stored.beta[:15], profile=(stored.profile[0], losses), **cut)
    t, loss = profile_losses(narrow)
    last = stored.points[-1]
    assert stored.beta[14] - 0.05 < t[-1] * last.beta <= stored.beta[14]
    assert np.isfinite(loss).all()


def test_an_unknown_role_is_drawn_all_the_same(tmp_path: Path) -> None:
    named = {**NAMED, "theta_prev": slices.Named("mean", "other", "an average")}
    stored = Recipe(named=named).make(tmp_path / "other.h5")
    assert describe(stored).points[1].sign == 3
    write_page(stored, tmp_path / "other.html")
    write_figure(stored, tmp_path / "other.png")
