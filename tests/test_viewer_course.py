"""A study before it is drawn: its words, what is shown first, its spectra; and its figures for papers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from landscape.curvature.store import StoredSharpness
from landscape.errors import OptionError
from landscape.viewer.described.course import Course, Spectrum
from landscape.viewer.described.course_columns import interval, layer_measures, same_for_all, scattered, shown_runs
from landscape.viewer.described.course_words import caption, notices
from landscape.viewer.pages.trajectory_data import course_data
from landscape.viewer.printed.trajectory import draw_course, write_course
from viewer_courses import HOSTILE, LAYERS, QUANTIZERS, RUNS, course


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return course(tmp_path_factory.mktemp("course"))


def rows(errors: list[float], rates: list[float], run: str = "r", **more: Any) -> tuple[dict[str, Any], ...]:
    """A run with these errors under one quantizer, a million tokens apart."""
    shared = {"run": run, "kind": "checkpoint", "quantizer": "q", "trace": 1.0, **more}
    return tuple(
        {**shared, "checkpoint": f"step{k}", "step": k, "tokens": 1e6 * k, "delta_q": error, "learning_rate": rate}
        for k, (error, rate) in enumerate(zip(errors, rates, strict=True), 1)
    )


def a_course(*parts: tuple[dict[str, Any], ...]) -> Course:
    return Course("study", tuple(row for part in parts for row in part), (), {}, {}, {})


class TestWords:
    def test_how_the_error_goes_and_when_by_the_learning_rate(self):
        said = " ".join(caption(a_course(rows([0.01, 0.02, 0.03, 0.08, 0.07], [1e-3, 1e-3, 8e-4, 4e-4, 1e-5]))))
        assert "the training run r" in said and "5 checkpoints" in said and "from 1 million to 5 million tokens" in said
        assert "from +1.00 % at 1 million tokens to +7.00 % at 5 million tokens" in said
        assert "its largest is +8.00 % at 4 million tokens" in said
        assert (
            "Until 3 million tokens the learning rate is still above half of its highest, and the error +3.00 %" in said
        )
        assert "fallen to 1·10⁻⁵, it is +7.00 %" in said

    def test_a_rate_that_does_not_fall(self):
        said = " ".join(caption(a_course(rows([0.01, 0.02], [1e-3, 1e-3]))))
        assert "has not begun to fall: it is 0.001 at its end" in said

    def test_ends_of_runs_by_whether_their_rate_fell(self):
        runs = [rows([0.01, 0.01 * k], [1e-3, 1e-3 if k < 3 else 1e-5], f"run{k}") for k in range(1, 6)]
        said = " ".join(caption(a_course(*runs)))
        assert "+4.00 % for the 3 runs whose learning rate has fallen below a tenth" in said
        assert "+1.50 % for the 2 whose rate has not" in said

    def test_what_is_missing_is_said(self):
        first, second = rows([0.01, math.inf], [1e-3, 1e-3])
        said = notices(
            a_course((first | {"tokens_fingerprint": "a"}, second | {"trace": None, "tokens_fingerprint": "b"}))
        )
        assert [each.split(":")[0] for each in said] == [
            "1 of 2 checkpoints have no curvature (λ_max, tr H)",
            "Infinite losses of Θ̂ in 1 of 2 rows",
            "The losses were measured on 2 different texts",
        ]
        assert notices(a_course()) == ("The table has no row yet.",) and caption(a_course()) == ()


class TestColumns:
    def test_runs_shown_first(self, made: Course):
        assert set(shown_runs(made)) == {*RUNS[:3], RUNS[4]}  # the longest
        some = replace(made, slices={made.along(RUNS[5])[0]["identity"]: ()})
        assert set(shown_runs(some)) == {*RUNS[:3], RUNS[5]}
        ends = a_course(*(rows([0.01], [1e-3], f"run{k}") for k in range(9)))
        assert len(shown_runs(ends)) == 9

    def test_a_column_of_the_checkpoint_is_held_once(self, made: Course):
        data = course_data(made)
        assert same_for_all(made, "trace") and not same_for_all(made, "delta_q")
        assert len(data["columns"]["trace"]["values"]) == len(made.checkpoints)
        assert len(data["columns"]["delta_q"]["values"]) == len(made.rows)
        single = a_course(rows([0.01, 0.02], [1e-3, 1e-3]))
        assert same_for_all(single, "trace") and not same_for_all(single, "delta_q")  # by name

    def test_errors_are_no_columns_to_scatter(self, made: Course):
        assert set(scattered(made)) == {"step", "tokens", "learning_rate", "loss", "trace", "delta_q"}

    def test_intervals(self):
        row = {"loss": 3.0, "loss_se": 0.1, "trace": 10.0, "trace_se": 1.0, "delta_q": 0.1, "delta_q_se": 0.01}
        assert interval(row, "loss") is None and interval(row, "step_length") is None
        assert interval(row, "trace") == pytest.approx((8.04, 11.96))
        assert interval(row | {"delta_q_low": 0.07, "delta_q_high": 0.2}, "delta_q") == (0.07, 0.2)

    def test_shares_of_layers(self, made: Course):
        assert [name for name, _ in layer_measures(made)] == ["predicted", "sensitivity", "trace", "step_norm"]
        found = course_data(made)["layers"]
        first = made.layers[0]
        size = len(made.checkpoints) * len(QUANTIZERS) * len(LAYERS)
        values = found["measures"]["predicted"]["values"]
        assert len(values) == size and values[0] == first["g_delta"] + first["delta_h_delta"] / 2
        assert found["measures"]["sensitivity"]["own"]
        assert found["measures"]["sensitivity"]["values"][0] == pytest.approx(0.5 * first["trace"] * 4 / 10)
        assert [each["html"] for each in found["names"]][:2] == ["0.up", r"0.down$\frac$"]


def test_a_spectrum_counts_eigenvalues():
    points = np.linspace(0.0, 11.0, 5)
    section = {"n": 50, "points": points, "density": np.full(5, 0.1), "standard_error": np.full(5, 0.01), "width": 0.1}
    eigenvalues = {"values": np.array([9.0, 8.0])}
    stored = StoredSharpness({"status": "complete"}, {"density": section, "eigenvalues/top": eigenvalues})
    found = Spectrum.of(stored)
    assert found is not None and found.top == (9.0, 8.0) and found.bottom == ()
    assert found.density == pytest.approx(5.0) and found.error == pytest.approx(0.5)
    assert found.floor == pytest.approx(0.05 / 0.1 / math.sqrt(2 * math.pi))  # as of a single measurement's figure
    assert Spectrum.of(StoredSharpness({"status": "complete"}, {})) is None


class TestFigures:
    def test_one_of_every_view_and_the_same_bytes_again(self, made: Course, tmp_path: Path):
        found = write_course(made, tmp_path)
        assert [path.name for path in found] == [
            f"study_script_window.hacked_1_script_-{name}.pdf" for name in ("course", "scatter", "spectrum", "layers")
        ]
        before = [path.read_bytes() for path in found]
        assert all(content.startswith(b"%PDF") for content in before)
        assert [path.read_bytes() for path in write_course(made, tmp_path)] == before
        with pytest.raises(OptionError, match="kind svg: expected pdf or png"):
            write_course(made, tmp_path, "svg")

    def test_none_of_what_is_not_there(self, tmp_path: Path):
        assert write_course(a_course(), tmp_path) == []
        plain = a_course(rows([0.01, 0.02], [1e-3, 1e-3]))
        assert [path.name for path in write_course(plain, tmp_path, "png")] == ["study-course.png", "study-scatter.png"]

    def test_lines_are_the_numbers_of_the_table(self, made: Course):
        figure = draw_course(made)
        error = next(axes for axes in figure.axes if "Delta Q" in axes.get_ylabel())
        drawn = [list(line.get_ydata()) for line in error.lines]
        for run in shown_runs(made):
            for quantizer in QUANTIZERS:
                wanted = [100 * row["delta_q"] for row in made.along(run, quantizer)]
                assert any(len(each) == len(wanted) and np.allclose(each, wanted) for each in drawn)
        assert error.get_yscale() == "log" and HOSTILE in figure.legends[0].get_texts()[-1].get_text()
