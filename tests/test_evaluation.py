"""The jobs that quantize and evaluate, as a person runs them: results, resuming, what is kept, mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from landscape import evaluation
from landscape.config import EvaluateConfig, QuantizeConfig
from landscape.errors import StoreError
from landscape.evaluation import ways
from landscape.losses import compare, window_losses
from landscape.models import load_model, load_tokenizer
from landscape.models.references import resolve
from landscape.objective import TokenCrossEntropy, batches, mean
from landscape.quantize import parse, quantize
from landscape.quantizing import quantize_model
from landscape.texts import documents
from landscape.tokens import WindowReader
from landscape.weights import Weights


def evaluate(run: Path, text_file: Path, out: Path, quant: str, **options: object) -> list[evaluation.Evaluated]:
    config = EvaluateConfig(model=f"{run}@step30", text=str(text_file), tokens=640, quant=quant, out=out, **options)
    return evaluation.evaluate_model(config)


def test_results_are_what_the_parts_give(run: Path, text_file: Path, tmp_path: Path):
    found = evaluate(run, text_file, tmp_path, "none,rtn-w3-g16,gptq-w3-g16")
    checkpoint = resolve(f"{run}@step30")
    model, reader = load_model(checkpoint), WindowReader(documents(str(text_file)), load_tokenizer(checkpoint), 64)
    windows, calibration = reader.take_tokens(640), reader.take(128)
    objective = TokenCrossEntropy(model, batches(windows, 8))
    theta = Weights.of(model)
    assert [result.quantizer for result in found] == ["none", "rtn-w3-g16", "gptq-w3-g16"]
    for result, name in zip(found[1:], ("rtn-w3-g16", "gptq-w3-g16"), strict=True):
        hat, report = quantize(parse(name), model, calibration)
        assert result.comparison == compare(window_losses(objective, theta), window_losses(objective, hat))
        assert result.comparison.relative.value == pytest.approx(mean(objective, hat) / mean(objective, theta) - 1)
        assert result.report["layers"][0]["weight_error"] == report.layers[0].weight_error
        assert (
            result.bits
            == report.bits
            == sum(layer.bits_per_weight * layer.parameters for layer in report.layers)
            + 16 * (theta.numel() - report.quantized_parameters)
        )
        sums = result.facts["windows"]
        assert np.sum(sums["sum_hat"]) / np.sum(sums["predicted"]) == pytest.approx(mean(objective, hat))
    assert found[0].comparison.change.value == 0 and found[0].bits == 16 * theta.numel()
    stored = json.loads(found[1].path.read_text())
    assert str(tmp_path) not in json.dumps(stored) and str(run.parent) not in json.dumps(stored)
    assert stored["model"] == "run@step30" and stored["config"]["text"] == "prose.txt"


def test_the_same_command_evaluates_what_is_missing(run: Path, text_file: Path, tmp_path: Path, monkeypatch):
    first = evaluate(run, text_file, tmp_path, "rtn-w3-g16")
    wrote = first[0].path.read_bytes()
    asked: list[str] = []
    original = ways.quantized
    monkeypatch.setattr(ways, "quantized", lambda q, *rest: asked.append(str(q)) or original(q, *rest))
    both = evaluate(run, text_file, tmp_path, "rtn-w3-g16,rtn-w4-g16,rtn-w4-g16-sym")
    assert asked == ["rtn-w4-g16"] and first[0].path.read_bytes() == wrote
    assert [result.quantizer for result in both] == ["rtn-w3-g16", "rtn-w4-g16"]  # each quantizer once
    evaluate(run, text_file, tmp_path, "rtn-w3-g16", overwrite=True)
    evaluate(run, text_file, tmp_path, "rtn-w3-g16", draws=500)
    assert asked == ["rtn-w4-g16", "rtn-w3-g16", "rtn-w3-g16"]
    assert len(list(tmp_path.glob("*.json"))) == 3
    assert not list(tmp_path.glob(".*"))


def test_a_lower_precision_is_that_of_both(run: Path, text_file: Path, tmp_path: Path):
    exact, rough = (
        evaluate(run, text_file, tmp_path, "rtn-w3-g16", dtype=dtype)[0] for dtype in ("float32", "bfloat16")
    )
    assert exact.path != rough.path
    assert rough.comparison.loss.value != exact.comparison.loss.value
    assert rough.comparison.loss.value == pytest.approx(exact.comparison.loss.value, rel=1e-2)
    assert rough.comparison.change.value == pytest.approx(exact.comparison.change.value, rel=0.3)


def test_the_table_has_a_row_for_each(landscape, run: Path, text_file: Path, tmp_path: Path):
    code, out, err = landscape(
        "evaluate",
        f"{run}@step30",
        "--text",
        text_file,
        "--tokens",
        640,
        "--quant",
        "rtn-w3-g16,int8",
        "--out",
        tmp_path,
    )
    assert code == 0, err
    for result in (evaluation.read(path) for path in tmp_path.glob("*.json")):
        row = next(line for line in out.splitlines() if line.startswith(result.quantizer))
        assert f"{result.comparison.loss_hat.value:.4f}" in row and f"{result.comparison.change.value:+.4f}" in row
        assert row.rstrip().endswith("%") and len(row) <= 80
    assert "the weight half alone" in out and "2 files in" in out
    code, out, _ = landscape(
        "evaluate",
        f"{run}@step30",
        "--text",
        text_file,
        "--tokens",
        640,
        "--quant",
        "rtn-w3-g16,int8",
        "--out",
        tmp_path,
    )
    assert code == 0 and "2 of 2 results were there already" in " ".join(out.split())


def test_what_is_saved_is_an_ordinary_checkpoint(landscape, run: Path, text_file: Path, tmp_path: Path):
    from transformers import AutoModelForCausalLM

    saved = tmp_path / "saved"
    code, out, err = landscape("quantize", f"{run}@step30", "gptq-w3-g16", "--text", text_file, "--save", saved)
    assert code == 0, err
    assert (
        landscape("quantize", f"{run}@step30", "rtn-w4-g16", "--text", text_file, "--save", saved, "--overwrite")[0]
        == 0
    )
    assert json.loads((saved / "report.json").read_text())["quantizer"] == "rtn-w4-g16"
    code = landscape("quantize", f"{run}@step30", "gptq-w3-g16", "--text", text_file, "--save", saved, "--overwrite")[0]
    assert code == 0
    assert "parameters quantized to 4.00 bits" in " ".join(out.split()) and "mlp.dense_4h_to_h" in out
    assert {path.name for path in tmp_path.iterdir()} == {"saved"}
    checkpoint = resolve(f"{run}@step30")
    model = load_model(checkpoint)
    reader = WindowReader(documents(str(text_file)), load_tokenizer(checkpoint), 64)
    reader.take_tokens(4096)
    expected, report = quantize(parse("gptq-w3-g16"), model, reader.take(128))
    again = AutoModelForCausalLM.from_pretrained(saved)
    assert Weights.of(again).equal(expected)
    stored = json.loads((saved / "report.json").read_text())
    assert stored["quantizer"] == "gptq-w3-g16" and stored["model"] == "run@step30"
    assert [layer["name"] for layer in stored["layers"]] == [layer.name for layer in report.layers]
    alone = evaluation.evaluate_model(
        EvaluateConfig(model=str(saved), text=str(text_file), quant="none", out=tmp_path / "e")
    )
    other = evaluation.evaluate_model(
        EvaluateConfig(model=f"{run}@step30", text=str(text_file), quant="gptq-w3-g16", out=tmp_path / "e")
    )
    assert alone[0].comparison.loss.value == pytest.approx(other[0].comparison.loss_hat.value, rel=1e-6)


def test_a_tied_model_is_saved_tied(tmp_path: Path, text_file: Path, tokenizer):
    from transformers import AutoModelForCausalLM

    from conftest import build

    folder = tmp_path / "tied"
    build("llama-tied-gqa").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = QuantizeConfig(model=str(folder), quant="rtn-w4-g16", text=str(text_file), save=tmp_path / "hat")
    result = quantize_model(config)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "hat")
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert result.step_norm == pytest.approx((Weights.of(again) - Weights.of(build("llama-tied-gqa"))).norm())


def test_a_save_that_fails_leaves_nothing_that_looks_whole(run: Path, text_file: Path, tmp_path: Path, monkeypatch):
    from transformers import PreTrainedTokenizerBase

    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PreTrainedTokenizerBase, "save_pretrained", refuse)
    config = QuantizeConfig(model=f"{run}@step30", quant="rtn-w4-g16", text=str(text_file), save=tmp_path / "hat")
    with pytest.raises(StoreError, match="the disk is full"):
        quantize_model(config)
    assert not list(tmp_path.iterdir())


MISTAKES = {
    "no quantizer": (["evaluate", "{run}", "--quant", " "], "--quant '': empty"),
    "unknown quantizer": (["evaluate", "{run}", "--quant", "rtn-w4-g16,gptx-w3"], "did you mean gptq?"),
    "group size": (["evaluate", "{run}", "--quant", "rtn-w4-g128"], "does not divide the 32 inputs"),
    "a file for a directory": (["evaluate", "{run}", "--out", "x.json"], "--out x.json: expected a directory"),
    "few draws": (["evaluate", "{run}", "--draws", "10"], "--draws 10: expected a whole number of at least 100"),
    "dtype": (["evaluate", "{run}", "--dtype", "int8"], "--dtype int8: expected one of float32"),
    "no calibration left": (["evaluate", "{run}", "--quant", "gptq-w4-g16", "--tokens", "900000"], "not one window"),
    "little calibration": (
        ["evaluate", "{run}", "--quant", "gptq-w4-g16", "--calibration-windows", "1", "--seq-len", "16"],
        "16 calibration tokens for the 64 inputs",
    ),
    "head": (["quantize", "{run}", "rtn-w4-g16+embed_in=w8"], "is about gpt_neox.embed_in"),
    "missing quantizer": (["quantize", "{run}"], "Missing argument"),
    "a training run": (["quantize", "{run}", "rtn-w4-g16", "--save", "{run}", "--overwrite"], "not a directory that"),
    "taken directory": (["quantize", "{run}", "rtn-w4-g16", "--save", "{run}"], "exists already; name another"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(landscape, run: Path, text_file: Path, tmp_path: Path, monkeypatch, mistake: str):
    monkeypatch.chdir(tmp_path)
    arguments, expected = MISTAKES[mistake]
    filled = [argument.format(run=run / "step30") for argument in arguments]
    code, out, err = landscape(*filled, "--text", text_file)
    assert code == 2 and not out
    line = err.strip().splitlines()[-1]
    assert line.startswith("landscape: ") and expected in line
    assert "Traceback" not in err and not list(tmp_path.rglob("*.json"))


def test_files_that_are_no_evaluations(tmp_path: Path):
    with pytest.raises(StoreError, match="no such file"):
        evaluation.read(tmp_path / "missing.json")
    for content in ("", "[]", '{"kind": "evaluation", "schema": 99}', '{"kind": "evaluation", "schema": 1}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(StoreError, match="not an evaluation"):
            evaluation.read(tmp_path / "x.json")


def test_a_model_that_overflows_is_a_result(run: Path, text_file: Path, tmp_path: Path):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(run / "step30")
    with torch.no_grad():
        model.gpt_neox.final_layer_norm.weight.fill_(3e38)
    model.save_pretrained(tmp_path / "big")
    load_tokenizer(resolve(f"{run}@step30")).save_pretrained(tmp_path / "big")
    config = EvaluateConfig(model=str(tmp_path / "big"), text=str(text_file), quant="rtn-w4-g16", out=tmp_path / "e")
    found = evaluation.evaluate_model(config)[0]
    assert not np.isfinite(found.comparison.loss.value) and not np.isfinite(found.comparison.relative.value)
    assert evaluation.read(found.path).comparison.loss.value is not None


def test_a_checkpoint_that_somebody_packed_is_evaluated_beside(landscape, run: Path, text_file: Path, tmp_path: Path):
    """GPTQ's format, from integer codes; and a float checkpoint by mistake."""
    from test_packed import pack_gptq

    checkpoint = resolve(f"{run}@step30")
    model = load_model(checkpoint)
    folder = tmp_path / "their-w4"
    pack_gptq(folder, model)
    out = tmp_path / "e"
    arguments = [
        "evaluate",
        f"{run}@step30",
        "--text",
        text_file,
        "--tokens",
        640,
        "--quant",
        "rtn-w4-g16",
        "--out",
        out,
    ]
    code, printed, err = landscape(*arguments, "--packed", folder)
    assert code == 0, err
    code, _, err = landscape("evaluate", folder, "--tokenizer", f"{run}@step30", *arguments[2:])  # as if it were floats
    assert code == 2 and "packed (gptq); name the float checkpoint it was made from as MODEL" in err
    theirs = next(result for result in map(evaluation.read, out.glob("*.json")) if result.quantizer == "their-w4")
    assert theirs.report["format"] == "gptq" and theirs.bits < 16 * theirs.facts["total_parameters"]
    from landscape import packed

    windows = WindowReader(documents(str(text_file)), load_tokenizer(checkpoint), 64).take_tokens(640)
    dense, _ = packed.load_dense(packed.locate(str(folder)), Weights.of(model), model)
    expected = mean(TokenCrossEntropy(model, batches(windows, 8)), dense)
    assert theirs.comparison.loss_hat.value == pytest.approx(expected, rel=1e-9)
    assert theirs.comparison.loss_hat.value != theirs.comparison.loss.value
    row = next(line for line in printed.splitlines() if line.startswith("their-w4"))
    assert f"{expected:.4f}" in row and "their-w4: read from gptq" in " ".join(printed.split())
    code, _, err = landscape(*arguments, "--packed", run / "step20")
    assert code == 2 and "not packed; expected a quantized checkpoint" in err


def test_an_error_leaves_no_folder_behind(run: Path, text_file: Path, tmp_path: Path, landscape):
    command = ("evaluate", f"{run}@step30", "--text", text_file, "--quant", "rtn-w4-g24")
    code, _, err = landscape(*command, "--out", tmp_path / "new" / "deep")
    assert code == 2 and "group size 24" in err and not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "kept").touch()
    assert landscape(*command, "--out", tmp_path / "old" / "deep")[0] == 2
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["kept"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder in which nobody can make files")
def test_a_place_where_no_file_can_be_made(run: Path, landscape):
    code, _, err = landscape("quantize", f"{run}@step30", "rtn-w4-g16", "--save", "/proc/self/fdinfo/new")
    assert code == 2 and "cannot be written" in err and "with --save" in " ".join(err.split())
    assert "another process" not in err
