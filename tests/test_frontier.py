"""Loss against size, from real evaluations of two models."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from conftest import build
from landscape import evaluation
from landscape.config import EvaluateConfig
from landscape.errors import OptionError, StoreError
from landscape.evaluation.frontier import BITS, NATS, draw, frontier
from landscape.storage.digests import with_digest


@pytest.fixture(scope="module")
def results(run: Path, text_file: Path, tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluations of a trained model and of a smaller one that is not trained."""
    folder = tmp_path_factory.mktemp("frontier")
    small = folder / "models" / "small"
    build("gpt_neox", num_hidden_layers=1).save_pretrained(small)
    tokenizer.save_pretrained(small)
    for model, quant in ((f"{run}@step30", "rtn-w8-channel,rtn-w3-g16"), (str(small), "rtn-w4-g16")):
        config = EvaluateConfig(model=model, text=str(text_file), tokens=640, quant=quant, out=folder / "evaluations")
        evaluation.evaluate_model(config)
    return folder / "evaluations"


def read(folder: Path) -> list[evaluation.Evaluated]:
    return [evaluation.read(path) for path in sorted(folder.glob("*.json"))]


def test_rows_by_size_and_what_nothing_beats(results: Path):
    found = frontier(read(results))
    assert found.unit == NATS
    assert {(row.model, row.quantizer) for row in found.rows} == {
        ("small", "rtn-w4-g16"),
        ("small", "none"),
        ("run@step30", "rtn-w3-g16"),
        ("run@step30", "rtn-w8-channel"),
        ("run@step30", "none"),
    }
    assert len(found.rows) == 5
    assert [row.bits for row in found.rows] == sorted(row.bits for row in found.rows)
    for i, row in enumerate(found.rows):
        assert row.best == all(row.loss < other.loss for other in found.rows[:i])
    by_name = {result.quantizer: result for result in read(results) if result.facts["model"] == "run@step30"}
    row = next(row for row in found.rows if row.quantizer == "rtn-w3-g16")
    assert row.loss == by_name["rtn-w3-g16"].comparison.loss_hat.value and row.bits == by_name["rtn-w3-g16"].bits
    assert row.relative == by_name["rtn-w3-g16"].comparison.relative.value
    alone = next(row for row in found.rows if (row.model, row.quantizer) == ("run@step30", "none"))
    assert alone.bits == 16 * alone.parameters and alone.loss == by_name["rtn-w3-g16"].comparison.loss.value


def test_models_of_different_tokenizers_compare_by_bytes(results: Path, tmp_path: Path):
    for path in results.glob("*.json"):
        content = json.loads(path.read_text())
        if content["model"] == "small":
            content = with_digest(content | {"tokens_fingerprint": "another"})
        (tmp_path / path.name).write_text(json.dumps(content))
    found = frontier(read(tmp_path))
    assert found.unit == BITS
    result = next(result for result in read(results) if result.quantizer == "rtn-w3-g16")
    row = next(row for row in found.rows if row.quantizer == "rtn-w3-g16")
    windows, facts = result.facts["windows"], result.facts
    assert row.loss == pytest.approx(sum(windows["sum_hat"]) / math.log(2) / facts["predicted_bytes"])
    assert 1 < facts["predicted_bytes"] / sum(windows["predicted"]) < 6  # bytes a token


def test_a_name_that_no_file_can_hold_is_refused(results: Path, tmp_path: Path):
    path = next(results.glob("*.json"))
    content = with_digest(json.loads(path.read_text()) | {"model": "\ud800"})  # half a character
    (tmp_path / "odd.json").write_text(json.dumps(content))
    with pytest.raises(StoreError, match=r"odd\.json: not an evaluation"):
        read(tmp_path)


def test_other_texts_do_not_compare(results: Path, run: Path, text_file: Path, tmp_path: Path):
    config = EvaluateConfig(model=f"{run}@step30", text=str(text_file), tokens=320, quant="none", out=tmp_path)
    (other,) = evaluation.evaluate_model(config)
    with pytest.raises(OptionError, match="different text"):
        frontier([*[result for result in read(results) if result.facts["model"] == "run@step30"], other])


def test_the_command_writes_a_table_and_figures(landscape, results: Path, tmp_path: Path):
    code, out, err = landscape("frontier", results, "--out", tmp_path / "sizes.png")
    assert code == 0, err
    assert {path.name for path in tmp_path.iterdir()} == {"sizes.csv", "sizes.pdf", "sizes.png"}
    rows = list(csv.DictReader((tmp_path / "sizes.csv").open()))
    found = frontier(read(results))
    assert [float(row["loss"]) for row in rows] == [row.loss for row in found.rows]
    assert [row["best"] == "1" for row in rows] == [row.best for row in found.rows]
    for row in found.rows:
        line = next(line for line in out.splitlines() if f"{row.loss:.4f}" in line and line.startswith(row.model))
        assert ("●" in line) is row.best
    again = tmp_path / "again"
    landscape("frontier", results, "--out", again / "sizes")
    assert (again / "sizes.pdf").read_bytes() == (tmp_path / "sizes.pdf").read_bytes()


def test_every_row_is_drawn(results: Path):
    found = frontier(read(results))
    axes = draw(found).axes[0]
    drawn = {(round(line.get_xdata()[0], 9), line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1}
    assert {(round(row.bits / 8e6, 9), row.loss) for row in found.rows} <= drawn


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Missing argument"),
        (["missing.json"], "no such file"),
        (["."], "no .json in it"),
    ],
)
def test_mistakes(landscape, tmp_path: Path, monkeypatch, arguments: list[str], expected: str):
    monkeypatch.chdir(tmp_path)
    code, out, err = landscape("frontier", *arguments)
    assert code == 2 and not out and expected in err and "Traceback" not in err
    assert not list(tmp_path.iterdir())
