"""Trajectories on disk: runs with logs of their own, of other people, of transformers' Trainer, and several at once."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from checkpoints import save
from landscape.errors import ModelError
from landscape.models.references import resolve
from landscape.trajectories import Point, points


def a_run(folder: Path, *steps: int, rows: list[Any] | None = None) -> Path:
    for step in steps:
        save(folder / f"step{step}", f"{folder.name} {step}".encode())
    if rows is not None:
        (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def row(step: int, rate: Any, tokens: Any = None) -> dict[str, Any]:
    return {"step": step, "tokens": 10 * step if tokens is None else tokens, "learning_rate": rate, "loss": 3.0}


def test_a_run_on_disk_with_its_log(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", 0, 100, 900, 1000, 1050, rows=[row(100, 1e-3), row(800, 4e-4), row(1000, 1e-4)])
    save(folder / ".step1050.partial")  # being written
    save(folder / "best")  # no step
    line = points(str(folder))

    assert [(point.step, point.tokens, point.learning_rate) for point in line] == [
        (0, 0, None),  # before the first update there is no rate
        (100, 1000, 1e-3),
        (900, 9000, 4e-4),
        (1000, 10000, 1e-4),
        (1050, 10500, 1e-4),
    ]
    assert line[1] == Point(f"{folder}@step100", "step100", "", 100, 1000.0, 1e-3, "run")
    assert [resolve(point.reference).folder for point in line] == [folder / str(point.revision) for point in line]


def test_the_bundled_run() -> None:
    line = points(str(Path(__file__).parent.parent / "data" / "reference" / "mini-pythia"))
    assert [point.step for point in line] == [4800, 6400, 7200, 8000]
    assert [point.tokens for point in line] == [2048.0 * point.step for point in line if point.step]
    rates = [point.learning_rate for point in line]
    assert rates[0] == 0.003 and rates == sorted(rates, reverse=True) and 0 < rates[-1] < 1e-4  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("rows", "rate", "tokens"),
    [
        ([], None, None),
        ([{"step": 100, "loss": 2.0}], None, None),
        ([{"step": 100, "lr": 1e-3}, ["step", 100], 7], None, None),
        ([row(100, "fast", "many")], None, None),
        ([row(100, math.nan)], None, 2000.0),
        ([{"step": None, "learning_rate": 1e-3}], None, None),
        ([row(100, 1e-3, 1000), row(190, 1e-3, 3800), row(300, 1e-3, 9)], 1e-3, 4000.0),  # batches that grew
        ([row(200, 1e-3), row(100, 5e-3), row(200, 2e-3)], 2e-3, 2000.0),  # begun again after a crash
    ],
)
def test_logs_of_other_people(tmp_path: Path, rows: list[Any], rate: float | None, tokens: float | None) -> None:
    (point,) = points(str(a_run(tmp_path / "run", 200, rows=rows)))
    assert (point.learning_rate, point.tokens) == (rate, tokens)


def test_a_log_that_is_no_text(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", 200)
    (folder / "log.jsonl").write_bytes(b"\xff\xfe\x00")
    assert points(str(folder))[0].learning_rate is None


def test_a_run_without_a_log_has_the_tokens_of_its_names(tmp_path: Path) -> None:
    save(tmp_path / "run" / "step10-tokens2B")
    assert points(str(tmp_path / "run"))[0].tokens == 2e9


def test_checkpoints_of_the_trainer(tmp_path: Path) -> None:
    folder = save(tmp_path / "trained")
    history = [{"step": 250, "learning_rate": 9e-5, "loss": 3.0}, {"step": 500, "learning_rate": 5e-5, "loss": 2.0}]
    history += [
        {"step": 500, "eval_loss": 2.1, "learning_rate": 10**400},
        {"step": 750, "learning_rate": 2e-5, "loss": 2.0},
    ]
    for step, seen in ((500, 0), (600, 1234)):
        state = {"global_step": step, "num_input_tokens_seen": seen}
        state["log_history"] = [entry for entry in history if entry["step"] <= step]  # type: ignore[assignment]
        save(folder / f"checkpoint-{step}")
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(state))
    save(folder / "checkpoint-700")
    (folder / "checkpoint-700" / "trainer_state.json").write_text("{")
    line = points(str(folder))

    assert [(point.revision, point.learning_rate, point.tokens) for point in line] == [
        ("checkpoint-500", 5e-5, None),  # 0 tokens means that they were not counted
        ("checkpoint-600", 5e-5, 1234),
        ("checkpoint-700", None, None),
        (None, None, None),
    ]
    assert line[-1] == Point(str(folder), None, "main", None, None, None, "trained")


def test_a_directory_of_runs(tmp_path: Path) -> None:
    top = tmp_path / "sweep"
    a_run(top / "lr-3e-3", 5, 10, rows=[row(5, 3e-3), row(10, 3e-3)])
    a_run(top / "lr-1e-3", 10, rows=[row(10, 1e-3)])
    save(top / "pictures" / "deeper" / "step5")
    (top / "notes.txt").touch()
    a_run(top / ".hidden", 10)
    notes: list[str] = []
    line = points(str(top), notes.append)

    assert [(point.run, point.step, point.learning_rate) for point in line] == [
        ("lr-1e-3", 10, 1e-3),
        ("lr-3e-3", 5, 3e-3),
        ("lr-3e-3", 10, 3e-3),
    ]
    assert resolve(line[1].reference).folder == top / "lr-3e-3" / "step5"
    assert notes == ["sweep: left out what is no run: pictures"]


def test_models_without_a_run(tmp_path: Path) -> None:
    lone = save(tmp_path / "tiny")
    folder = a_run(tmp_path / "run", 100, 200, rows=[row(100, 1e-3), row(200, 2e-3)])

    assert points(str(lone)) == [Point(str(lone), None, "", None, None, None, "tiny")]
    # A checkpoint by its own path belongs to its run, as for `resolve`.
    direct = str(folder / "step200")
    assert points(direct) == [Point(direct, "step200", "", 200, 2000.0, 2e-3, "run")]


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_run(tmp_path / "top" / "run", 100)
    for inside, model, reference in (
        (folder, ".", ".@step100"),
        (folder.parent, ".", "run@step100"),
        (folder.parent, "run", "run@step100"),
    ):
        monkeypatch.chdir(inside)
        (point,) = points(model)
        assert (point.reference, point.run) == (reference, "run")
        assert resolve(point.reference).folder == folder / "step100"


def test_what_is_no_trajectory_on_disk(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    for name, expected in (("file", "a file; expected a directory"), ("empty", "neither config.json, nor step<N>/")):
        with pytest.raises(ModelError, match=f"model {name}: {expected}") as caught:
            points(str(tmp_path / name))
        assert "\n" not in str(caught.value)
