"""Accuracy on a local task as part of an evaluation, as a person runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from landscape import evaluation, tasks
from landscape.models import load_model, load_tokenizer
from landscape.models.references import resolve
from landscape.quantize import parse, quantize
from questions import TEST, TRAIN, write_task


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("lm_eval")
    pytest.importorskip("accelerate")
    folder = tmp_path_factory.mktemp("questions")
    write_task(folder, "next", {"test": TEST, "train": TRAIN})
    return folder


def test_the_drop_is_printed_with_its_error_and_stored(
    landscape, questions: Path, run: Path, text_file: Path, tmp_path: Path
):
    arguments = ["evaluate", f"{run}@step30", "--text", text_file, "--tokens", 640, "--out", tmp_path]
    asked = ["--quant", "rtn-w2-g16", "--tasks", "next", "--task-folder", questions, "--shots", 2]
    code, out, err = landscape(*arguments, *asked)
    assert code == 0, err
    (result,) = map(evaluation.read, tmp_path.glob("*.json"))
    checkpoint = resolve(f"{run}@step30")
    model, tokenizer = load_model(checkpoint), load_tokenizer(checkpoint)
    chosen = tasks.load(["next"], shots=2, task_folder=questions)
    theta = tasks.score(model, tokenizer, chosen)
    with tasks.holding(model, quantize(parse("rtn-w2-g16"), model)[0]):
        hat = tasks.score(model, tokenizer, chosen)
    expected = tasks.accuracy_drop(theta, hat)
    stored = result.tasks["tasks"]["next"]
    assert stored["accuracy"]["value"] == expected.tasks["next"].accuracy.value
    assert stored["accuracy"]["value"] == pytest.approx(theta["next"].accuracy)
    assert stored["drop"]["value"] == expected.tasks["next"].drop.value
    assert stored["drop"]["low"] == pytest.approx(expected.tasks["next"].drop.low)
    assert sum(stored["correct_hat"]["next"]) == pytest.approx(hat["next"].accuracy * 60)
    row = next(line for line in out.splitlines() if "next (2 shots)" in line)
    assert f"{theta['next'].accuracy:.4f}" in row and f"{hat['next'].accuracy:.4f}" in row and "%" in row
    wrote = next(tmp_path.glob("*.json")).read_bytes()
    assert str(questions) not in wrote.decode()
    code, out, _ = landscape(*arguments, *asked)
    assert code == 0 and "1 of 1 results were there already" in out
    landscape(*arguments, *asked, "--limit", 30)
    landscape(*arguments, "--quant", "rtn-w2-g16")
    assert len(list(tmp_path.glob("*.json"))) == 3  # other questions, and none, are other results


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--task-folder", "{folder}"], "name what to ask from it with --tasks"),
        (["--tasks", "next", "--shots", "-1"], "--shots -1: expected a whole number of at least 0"),
        (["--tasks", "nxt", "--task-folder", "{folder}"], "nxt"),
        (["--tasks", "next", "--task-folder", "missing"], "--task-folder missing: no such directory"),
    ],
)
def test_mistakes(landscape, questions: Path, run: Path, text_file: Path, tmp_path: Path, options, expected: str):
    filled = [option.format(folder=questions) for option in options]
    code, out, err = landscape("evaluate", f"{run}@step30", "--text", text_file, "--out", tmp_path, *filled)
    assert code == 2 and not out and "Traceback" not in err
    assert expected in err.strip().splitlines()[-1]
    assert not list(tmp_path.iterdir())
