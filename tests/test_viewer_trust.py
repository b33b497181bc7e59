"""Evaluated or reconstructed, and how well: said in one way on the page, in the figure and in the terminal."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from landscape.basin import SliceResult
from landscape.slices.stored import StoredSlice
from landscape.terminal.slices import print_summary
from landscape.viewer import describe
from landscape.viewer.described.evaluations import node_places
from landscape.viewer.described.findings import BEYOND, findings
from landscape.viewer.described.trust import trust
from landscape.viewer.described.words import bound, measured
from landscape.viewer.pages.slice import slice_page
from landscape.viewer.pages.slice_data import slice_data
from viewer_slices import Recipe, alone, kinked, line, pca, quantizers, torn


@pytest.fixture(scope="module")
def smooth(tmp_path_factory: pytest.TempPathFactory) -> StoredSlice:
    return Recipe(adaptive=True, grid=(41, 41)).make(tmp_path_factory.mktemp("slice") / "smooth.h5")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> StoredSlice:
    return torn().make(tmp_path_factory.mktemp("slice") / "torn.h5")


def printed(stored: StoredSlice, tmp_path: Path, width: int = 200) -> str:
    """The summary in a terminal of that width."""
    out = io.StringIO()
    result = SliceResult(tmp_path / "s.h5", tmp_path / "s.html", (tmp_path / "s.pdf",), stored)
    print_summary(Console(file=out, width=width), result, ["a note"], 12.0)
    return out.getvalue()


def test_a_reconstruction_says_from_how_many_evaluations_and_how_well(smooth: StoredSlice) -> None:
    c, said = smooth.certificate, trust(smooth)
    assert said.kind == "reconstructed" and said.error == c.error > 0
    relative = 100 * c.error / (smooth.loss.max() - smooth.loss.min())
    error = f"error ≤ {bound(c.error)} nats ({bound(relative)} % of the range)"
    assert said.words == f"reconstructed from {c.evaluations} evaluations, {error}"
    assert said.short == f"reconstructed, error ≤ {bound(c.error)} nats"
    assert f"At {c.checks} places" in said.checked and bound(c.worst_check) in said.checked
    assert (said.noise, said.notices) == ("", ())


def test_every_place_says_it(smooth: StoredSlice, tmp_path: Path) -> None:
    said, text = trust(smooth), slice_page(smooth)
    assert said.words.removeprefix("reconstructed").replace(" %", "&nbsp;%") in text
    assert text.count(said.short) >= 3  # facts, surface, profile
    assert dict(describe(smooth).facts)["Losses"] == said.short
    assert said.words in printed(smooth, tmp_path)


def test_a_scan_says_evaluated(tmp_path: Path) -> None:
    stored = Recipe().make(tmp_path / "dense.h5")
    assert trust(stored).words == "evaluated at all 99 cells"
    assert "evaluated at all 99 cells" in printed(stored, tmp_path)
    rough = replace(stored, attributes={**stored.attributes, "dtype": "bfloat16"})
    assert trust(rough).short == "evaluated in bfloat16"


def test_cells_that_were_all_evaluated_are_not_called_reconstructed(tmp_path: Path) -> None:
    stored = Recipe(adaptive=True, grid=(3, 5)).make(tmp_path / "small.h5")
    said = trust(stored)
    assert said.kind == said.short == "evaluated" and said.error == 0
    assert said.notices == ("Every one of the 15 cells was evaluated itself: 15 cells are too few for a polynomial.",)
    assert set(slice_data(stored, describe(stored))["cells"].tolist()) == {1}


def test_a_picture_of_pieces_says_so_and_why(mixed: StoredSlice, tmp_path: Path) -> None:
    c, said = mixed.certificate, trust(mixed)
    assert c.pieces > 1 and 0 < c.evaluated < 1
    share = f"{100 * c.evaluated:.0f} % of the cells"
    assert said.kind == "partly reconstructed" and f"{c.evaluations} evaluations, {share} among them" in said.words
    notice = next(notice for notice in said.notices if "pieces" in notice)
    assert c.why in notice and f"joined from {c.pieces} pieces, {share} being evaluated one by one" in notice
    assert notice in describe(mixed).notices
    assert c.why in printed(mixed, tmp_path)
    assert said.error == max(c.error, c.worst_check)  # no check point contradicts it


def test_cells_say_which_of_them_are_evaluated(mixed: StoredSlice, smooth: StoredSlice) -> None:
    data = slice_data(mixed, describe(mixed))
    np.testing.assert_array_equal(data["cells"].reshape(mixed.loss.shape), np.where(mixed.evaluated, 1, 2))
    assert data["errorWords"] == bound(trust(mixed).error)
    data = slice_data(smooth, describe(smooth))
    assert set(data["cells"].tolist()) == {2} and data["errorWords"] == bound(smooth.certificate.error)


def test_an_error_that_is_too_large_is_announced(smooth: StoredSlice, tmp_path: Path) -> None:
    worse = replace(smooth.certificate, error=0.0123, target=0.001, reached=False, noise=0.004)
    stored = replace(smooth, certificate=worse, attributes={**smooth.attributes, "dtype": "bfloat16"})
    said = trust(stored)
    assert said.notices == (
        "The picture is less exact than was asked for: it may be off by 0.013 nats, not by 0.0010 at most. With "
        "--dtype float32 it would be more exact.",
    )
    assert said.noise == "one evaluation in bfloat16 scatters by 0.004 nats"
    text = slice_page(stored)
    assert "One evaluation in bfloat16 scatters by 0.004 nats." in text and "less exact than was asked for" in text
    assert dict(describe(stored).facts)["Arithmetic"] == "bfloat16, named points in float32"
    out = printed(stored, tmp_path)
    assert "error ≤ 0.013 nats" in out and "one evaluation in bfloat16 scatters" in out and "less exact" in out


def test_checks_that_are_not_finite_are_counted(smooth: StoredSlice) -> None:
    checks = smooth.checks.copy()
    checks[:2, 2] = math.nan  # the loss there
    checks[1, 3] = math.inf  # and one that the picture knows of
    said = trust(replace(smooth, checks=checks, certificate=replace(smooth.certificate, worst_check=math.inf)))
    assert "at 1 of them only one of the two is finite" in said.checked
    assert said.error == smooth.certificate.error


def test_where_evaluations_ran_out_it_is_said(tmp_path: Path) -> None:
    stored = Recipe(adaptive=True, grid=(41, 41), loss=kinked, most=100).make(tmp_path / "most.h5")
    c = stored.certificate
    assert not c.reached and c.why
    assert any(notice.endswith(f"{bound(c.target)} at most: {c.why}.") for notice in trust(stored).notices)


def test_an_error_of_the_size_of_the_noise_is_explained(tmp_path: Path) -> None:
    stored = Recipe(adaptive=True, grid=(41, 41), tolerance=(1e-9, 1e-9)).make(tmp_path / "exact.h5")
    assert not stored.certificate.reached
    assert trust(stored).notices[0].endswith("That is about what one evaluation scatters by.")


def test_an_unknown_error_is_not_called_small(smooth: StoredSlice) -> None:
    stored = replace(smooth, certificate=replace(smooth.certificate, error=math.inf, reached=False))
    assert trust(stored).words == f"reconstructed from {stored.certificate.evaluations} evaluations, error unknown"
    slice_page(stored)


def test_a_reconstruction_that_has_only_begun_counts_its_evaluations(tmp_path: Path) -> None:
    stored = Recipe(adaptive=True, grid=(41, 41), stop_after=9).make(tmp_path / "early.h5")
    made = sum(map(len, stored.nodes.values()))
    assert made == 10 and not stored.done.any()
    assert trust(stored).words == "unfinished: 10 evaluations made so far"
    assert describe(stored).notices[0].startswith("10 evaluations made so far; the picture is reconstructed")
    data = slice_data(stored, describe(stored))
    assert len(data["nodes"]) == 10 and not data["checks"] and not data["cells"].any()
    assert "unfinished: 10 evaluations" in printed(stored, tmp_path)


def test_nodes_and_check_points_are_marked_with_what_was_evaluated(smooth: StoredSlice) -> None:
    data = slice_data(smooth, describe(smooth))
    np.testing.assert_array_equal(data["nodes"], node_places(smooth))
    assert len(data["nodes"]) + len(data["checks"]) == smooth.certificate.evaluations
    np.testing.assert_array_equal(data["checks"], smooth.checks)
    shown = [smooth.at(a, b) for a, b, *_ in smooth.checks]
    np.testing.assert_allclose(np.array(data["checks"])[:, 3], shown, atol=1e-12)


@pytest.mark.parametrize(("value", "written"), [(0.000414, "0.00042"), (0.99999, "1.0"), (9.96e-5, "0.00010")])
def test_bounds_are_rounded_up(value: float, written: str) -> None:
    assert bound(value) == written and float(written) >= value


@pytest.mark.parametrize(
    ("value", "error", "written"),
    [
        (1.2345, 0.0123, "1.234 ± 0.012"),
        (1.2345, 0.0, "1.234"),
        (-3.21e-5, 4e-7, "(−3.21 ± 0.04)·10⁻⁵"),
        (5.0, math.inf, "5"),
        (math.nan, 0.1, "—"),
        (0.0, 0.0, "0"),
        (0.0, 0.003, "0.000 ± 0.003"),
    ],
)
def test_values_are_written_to_the_digits_that_count(value: float, error: float, written: str) -> None:
    assert measured(value, error) == written


READING = {
    "rise": 0.05,
    "gradient_alpha": -0.0123,
    "gradient_alpha_error": 0.0004,
    "gradient_beta": 0.5,
    "gradient_beta_error": 0.02,
    "hessian_alpha_alpha": 0.3,
    "hessian_alpha_alpha_error": 0.01,
    "hessian_beta_beta": 0.2,
    "hessian_beta_beta_error": 0.01,
    "width_alpha_plus": 1.25,
    "width_alpha_plus_error": 0.02,
    "width_alpha_minus": math.inf,
    "width_alpha_minus_error": 0.0,
    "looked_alpha_minus": 0.5,
    "width_beta_plus": 0.8,
    "width_beta_plus_error": math.inf,
    "width_beta_minus": math.nan,
    "eigenvalue_largest": 0.31,
    "eigenvalue_smallest": 0.19,
    "eigenvalue_error": 0.01,
    "angle": math.radians(30),
    "angle_error": math.radians(2),
    "area": 2.5,
    "area_error": 0.1,
    "area_share": 0.4,
    "area_is_cut": 1.0,
    "barrier_theta_theta_hat": 0.02,
    "barrier_theta_theta_hat_error": 0.001,
    "barrier_theta_theta_hat_at": 0.25,
    "barrier_theta_theta_hat_excess": 0.031,
    "barrier_theta_theta_prev": 0.0,
    "barrier_theta_theta_prev_error": 0.001,
}


def test_findings_carry_their_errors(smooth: StoredSlice) -> None:
    said = findings(replace(smooth, reading=READING))
    assert said.directions == ("α", "β", "Θ_K → Θ̂_K")
    rows = {row.name: row.cells for row in said.rows}
    assert rows["Slope at Θ_K"][:2] == (("−0.0123 ± 0.0004",), ("0.50 ± 0.02",))
    assert rows["Curvature at Θ_K"][0] == ("0.300 ± 0.010",)
    assert rows["Loss is 0.05 nats higher after"][0] == ("+1.25 ± 0.02", f"− {BEYOND}")
    assert rows["Loss is 0.05 nats higher after"][1] == ("+0.8 or farther",)
    assert "Quadratic model good until" not in rows  # nothing is known of it
    others = dict(said.others)
    assert others["Largest curvature in the plane"] == "0.310 ± 0.010 nats per distance², at 30° ± 2° from α"
    assert others["Area where the loss is at most 0.05 nats higher"].startswith("at least 2.50 ± 0.10 distance² (40 %")
    assert others["Barrier Θ_K – Θ̂_K"] == (
        "0.0200 ± 0.0010 nats, 25 % of the way; 0.0310 ± 0.0010 nats above the chord"
    )
    assert others["Barrier Θ_K – Θ_{K−1}"] == "none (± 0.0010 nats)"


def test_a_line_has_findings_along_itself_only(tmp_path: Path) -> None:
    said = findings(line().make(tmp_path / "line.h5"))
    rows = {row.name.split()[0]: row.cells for row in said.rows}
    assert said.directions == ("α",) and set(rows) == {"Slope", "Curvature", "Loss", "Quadratic"}
    assert rows["Loss"] == (("+1.40000 ± 0.00008", "− beyond the ends"),)
    assert [name for name, _ in said.others] == ["Barrier between Θ_K and Θ̂_K"]


def test_of_many_points_the_highest_barrier_is_told(tmp_path: Path) -> None:
    stored = pca(adaptive=True, grid=(21, 21)).make(tmp_path / "pca.h5")
    barriers = {f"barrier_theta_theta_{i}{end}": i / 100 for i in range(1, 9) for end in ("", "_error", "_at")}
    others = dict(findings(replace(stored, reading=barriers)).others)
    assert others == {"Highest barrier Θ_K – Θ_{step1600}": "0.08 ± 0.08 nats, 8 % of the way"}


def test_what_the_slice_says_is_on_the_page_and_in_the_terminal(smooth: StoredSlice, tmp_path: Path) -> None:
    said, text, out = findings(smooth), slice_page(smooth), printed(smooth, tmp_path)
    assert said.rows and said.others
    assert "What the slice says" in text
    for row in said.rows:
        for part in (part for cell in row.cells for part in cell):
            assert part in text and part.replace("the rectangle", "edge") in out
    assert "What the slice says" not in slice_page(replace(smooth, reading={}))


def test_numbers_stay_whole_in_a_narrow_terminal(smooth: StoredSlice, tmp_path: Path) -> None:
    out = printed(smooth, tmp_path, 80)
    for cell in (cell for row in findings(smooth).rows[:2] for cell in row.cells):
        assert cell[0] in out


@pytest.mark.parametrize("make", [pca, quantizers, alone, line], ids=lambda make: make.__name__)
def test_summaries_of_all_kinds(make, tmp_path: Path) -> None:
    stored = make(adaptive=True, **({} if make is line else {"grid": (21, 21)})).make(tmp_path / "s.h5")
    out = printed(stored, tmp_path)
    for point in stored.points:
        assert point.label in out and f"{point.loss:.4f}" in out
    quantized = [point for point in stored.points if point.role == "quantized"]
    assert out.count("ΔQ = ") == len(quantized)
    for point in quantized:
        assert f"{point.loss / stored.points[0].loss - 1:.3%}" in out
    assert ("parameters quantized" in out) == bool(quantized)
    assert trust(stored).words in out and "a note" in out and "tokens of validation.jsonl.xz" in out
