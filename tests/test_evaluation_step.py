"""The second order along a quantization step: against double precision, and by its definitions."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import oracles
from landscape import evaluation, inputs
from landscape.config import EvaluateConfig
from landscape.errors import ModelError, OptionError
from landscape.evaluation import evaluate_model
from landscape.models import load_model, load_tokenizer
from landscape.models.references import resolve
from landscape.objective import TokenCrossEntropy, batches, mean
from landscape.quantize import parse, quantize
from landscape.terminal.evaluation import print_evaluations
from landscape.texts import documents
from landscape.tokens import WindowReader, Windows
from landscape.weights import Weights

WINDOWS = 6


def measured(run: Path, text: Path, out: Path, quant: str = "rtn-w3-g16", **options: object) -> evaluation.Evaluated:
    asked = {"tokens": 640, "second_order": True, "curvature_tokens": WINDOWS * 64, **options}
    return evaluate_model(EvaluateConfig(f"{run}@step30", text=str(text), quant=quant, out=out, **asked))[0]


@pytest.fixture(scope="module")
def windows(run: Path, text_file: Path) -> Windows:
    return WindowReader(documents(str(text_file)), load_tokenizer(resolve(f"{run}@step30")), 64).take(WINDOWS)


@pytest.fixture(scope="module")
def found(run: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> evaluation.Evaluated:
    return measured(run, text_file, tmp_path_factory.mktemp("step"), prev="@step20")


def weights_and_step(run: Path) -> tuple[torch.nn.Module, Weights, Weights]:
    model = load_model(resolve(f"{run}@step30"))
    return model, Weights.of(model), quantize(parse("rtn-w3-g16"), model)[0]


def test_slope_and_quadratic_are_those_of_double_precision(found, run: Path, windows: Windows):
    model, theta, hat = weights_and_step(run)
    model.set_attn_implementation("eager")
    exact = oracles.double(model)
    losses = []
    for row in windows.ids:
        logits = exact(input_ids=row[None]).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum"))
    names = [name for name, _ in exact.named_parameters()]
    parameters = [p for _, p in exact.named_parameters()]
    delta = [(hat[name] - theta[name]).double() for name in names]
    count = 63 * WINDOWS
    shares = []
    for loss in losses:
        gradient = torch.autograd.grad(loss, parameters, create_graph=True)
        slope = sum((g * d).sum() for g, d in zip(gradient, delta, strict=True))
        product = torch.autograd.grad(slope, parameters)
        shares.append((slope.item(), sum((h * d).sum().item() for h, d in zip(product, delta, strict=True))))
    slopes, bends = np.array(shares).T
    step = found.step
    assert step["slope"] == pytest.approx(slopes.sum() / count, rel=1e-4)
    assert step["quadratic"] == pytest.approx(bends.sum() / count, rel=1e-4)
    assert step["predicted"] == pytest.approx(step["slope"] + step["quadratic"] / 2)
    for name, own in (("slope_se", slopes), ("quadratic_se", bends), ("predicted_se", slopes + bends / 2)):
        assert step[name] == pytest.approx(own.std(ddof=1) * math.sqrt(WINDOWS) / count, rel=0.1)
    assert step["length"] == pytest.approx(math.sqrt(sum((d**2).sum().item() for d in delta)))
    assert sum(layer["quadratic"] for layer in step["layers"]) == pytest.approx(step["quadratic"], rel=1e-5)
    assert len(step["layers"]) == len(found.report["layers"])  # what does not move has no share


def test_the_diagonal_is_what_errors_with_random_signs_cost(
    run: Path, text_file: Path, windows: Windows, tmp_path: Path
):
    """E (δ⊙s)ᵀH(δ⊙s) in double precision, by signs of its own; for GPTQ it is not δᵀHδ."""
    step = measured(run, text_file, tmp_path, "gptq-w2-g16", diagonal_probes=16).step
    checkpoint = resolve(f"{run}@step30")
    model = load_model(checkpoint)
    theta = Weights.of(model)
    config = EvaluateConfig(f"{run}@step30", text=str(text_file), tokens=640)
    text = inputs.read_text(config, checkpoint, True, print)
    hat, _ = quantize(parse("gptq-w2-g16"), model, text.calibration)
    model.set_attn_implementation("eager")
    exact = oracles.double(model)
    logits = exact(input_ids=windows.ids).logits[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows.ids[:, 1:].flatten())
    named = dict(exact.named_parameters())
    gradient = torch.autograd.grad(loss, list(named.values()), create_graph=True)
    delta = [(hat[name] - theta[name]).double() for name in named]
    samples, random = [], torch.Generator().manual_seed(7)
    for _ in range(40):
        moved = [d * (torch.randint(2, d.shape, generator=random) * 2 - 1) for d in delta]
        slope = sum((g * m).sum() for g, m in zip(gradient, moved, strict=True))
        product = torch.autograd.grad(slope, list(named.values()), retain_graph=True)
        samples.append(sum((h * m).sum().item() for h, m in zip(product, moved, strict=True)))
    error = math.hypot(step["diagonal_se"], np.std(samples, ddof=1) / math.sqrt(len(samples)))
    assert abs(step["diagonal"] - np.mean(samples)) < 4 * error < abs(step["diagonal"] - step["quadratic"])
    assert sum(layer["diagonal"] for layer in step["layers"]) == pytest.approx(step["diagonal"], rel=1e-5)


def test_the_diagonal_can_be_left_out(run: Path, text_file: Path, tmp_path: Path):
    without = measured(run, text_file, tmp_path, diagonal_probes=0).step
    assert "diagonal" not in without and all("diagonal" not in layer for layer in without["layers"])


def test_what_was_measured_is_printed(found):
    console = Console(file=io.StringIO(), width=120)
    print_evaluations(console, [found], [], 1.0)
    said = console.file.getvalue()
    for number in ("slope", "quadratic", "diagonal"):
        assert f"{found.step[number] / (1 if number == 'slope' else 2):.4f}" in said
    assert f"{found.step['predicted']:+.4f}" in said and f"on the first {found.step['tokens']:,} tokens" in said


def test_the_profile_is_the_loss_along_the_step(found, run: Path, windows: Windows):
    model, theta, hat = weights_and_step(run)
    objective = TokenCrossEntropy(model, batches(windows, 4))
    step = found.step
    here = mean(objective, theta)
    assert step["loss"] == pytest.approx(here) and step["windows"] == WINDOWS and step["tokens"] == 64 * WINDOWS
    for t, change in zip(step["profile"]["t"], step["profile"]["change"], strict=True):
        assert change == pytest.approx(mean(objective, theta + t * (hat - theta)) - here, abs=2e-6)
    assert step["actual"] == step["profile"]["change"][step["profile"]["t"].index(1.0)]
    rest = [
        change - t * step["slope"] - t**2 / 2 * step["quadratic"]
        for t, change in zip(step["profile"]["t"], step["profile"]["change"], strict=True)
        if t in (0.25, 0.5)
    ]
    assert 5 < rest[1] / rest[0] < 13  # what is left is of third order


def test_the_critical_step_brings_the_loss_back(found, run: Path, windows: Windows):
    model, theta, hat = weights_and_step(run)
    objective = TokenCrossEntropy(model, batches(windows, 4))
    critical, step = found.step["critical"], found.step
    downhill = (hat - theta) * (-1.0 if step["slope"] > 0 else 1.0)
    here = mean(objective, theta)
    assert mean(objective, theta + 0.5 * critical["step"] * downhill) < here
    assert mean(objective, theta + 1.1 * critical["step"] * downhill) > here
    assert critical["sharpness"] == pytest.approx(2 / critical["step"])


def test_the_checkpoint_before_is_a_distance_and_an_angle(found, run: Path):
    _, theta, hat = weights_and_step(run)
    back = theta - Weights.of(load_model(resolve(f"{run}@step20")))
    previous, delta = found.step["previous"], hat - theta
    assert previous["name"] == "run@step20" and previous["distance"] == pytest.approx(back.norm())
    assert previous["cosine"] == pytest.approx(back.dot(delta) / back.norm() / delta.norm())


def test_it_is_part_of_the_key_only_where_it_is_asked_for(found, run: Path, text_file: Path, tmp_path: Path):
    plain, there, other = (
        measured(run, text_file, tmp_path, **options)
        for options in ({"second_order": False, "curvature_tokens": None}, {}, {"prev": "@step20"})
    )
    assert plain.step == {} and len({each.facts["key"] for each in (plain, there, other)}) == 3
    assert other.facts["key"] == found.facts["key"] and there.step["previous"] == {}
    assert plain.comparison == there.comparison
    stored = json.loads(found.path.read_text())
    assert stored["config"]["prev"] == "@step20" and str(run) not in found.path.read_text()


def test_several_quantizers_share_what_belongs_to_the_checkpoint(run: Path, text_file: Path, tmp_path: Path):
    config = EvaluateConfig(
        f"{run}@step30", text=str(text_file), quant="rtn-w3-g16,none,gptq-w2-g16", tokens=640, out=tmp_path,
        second_order=True, curvature_tokens=WINDOWS * 64,
    )  # fmt: skip
    three, nothing, two = evaluate_model(config)
    alone = measured(run, text_file, tmp_path / "alone", "gptq-w2-g16")
    assert nothing.step == {} and two.step == alone.step
    assert two.step["length"] > three.step["length"]


def test_ragged_windows_are_counted_as_they_are_read(run: Path, tmp_path: Path):
    text = tmp_path / "lines.jsonl"
    text.write_text("".join(json.dumps({"text": "the cat sat on one mat " * (1 + n % 5)}) + "\n" for n in range(40)))
    options = {"packing": "documents", "tokens": 640, "curvature_tokens": 300, "seq_len": 48}
    step = measured(run, text, tmp_path, **options).step
    read = WindowReader(documents(str(text)), load_tokenizer(resolve(f"{run}@step30")), 48, "documents")
    assert (step["windows"], step["tokens"]) == ((few := read.take_tokens(300)).ids.shape[0], few.n_tokens)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"second_order": False}, "--curvature-tokens 384: belongs to --second-order"),
        ({"second_order": False, "curvature_tokens": None, "prev": "@step20"}, "--prev @step20: belongs to"),
        ({"stream": "always"}, "--stream always with --second-order"),
        ({"curvature_tokens": 0}, "--curvature-tokens 0"),
        ({"diagonal_probes": 1}, "--diagonal-probes 1: expected 0, or at least 2"),
        ({"diagonal_probes": -1}, "--diagonal-probes -1"),
    ],
)
def test_options_that_do_not_go_together(run: Path, text_file: Path, tmp_path: Path, options: dict, words: str):
    with pytest.raises(OptionError, match=words):
        measured(run, text_file, tmp_path, **options)


def test_another_architecture_is_no_checkpoint_before(run: Path, text_file: Path, tmp_path: Path, trained: Path):
    with pytest.raises(ModelError, match="--prev trained@step10: "):
        measured(run, text_file, tmp_path, prev=f"{trained}@step10")
