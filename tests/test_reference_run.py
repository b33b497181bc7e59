"""The bundled run gives its recorded numbers, and shows what it was trained to show."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from landscape.models import load_model, load_tokenizer
from landscape.models.references import predecessors, resolve
from landscape.pretraining import build_model, find
from landscape.quantize import parse, quantize
from landscape.texts import documents
from landscape.tokens import WindowReader
from landscape.training.data import train_tokenizer

REFERENCE = Path(__file__).parent.parent / "data" / "reference"
sys.path.insert(0, str(REFERENCE))

EXPECTED = json.loads((REFERENCE / "expected.json").read_text())


def error(step: int, quantizer: str) -> float:
    row = EXPECTED[str(step)]
    return row["quantized"][quantizer]["loss"] / row["loss"] - 1


def test_the_last_checkpoint_gives_its_recorded_numbers():
    import record

    measured, expected = record.measure(8000), EXPECTED["8000"]
    assert measured["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert measured["norm"] == pytest.approx(expected["norm"], rel=1e-6)
    for name, row in expected["quantized"].items():
        # rounding to nearest repeats to float32; GPTQ's path through ties may differ between processors
        tolerance = 1e-5 if name.startswith("rtn") else 2e-3
        assert measured["quantized"][name]["loss"] == pytest.approx(row["loss"], rel=tolerance), name


def test_the_recorded_numbers_show_the_decay_and_what_quantization_makes_of_it():
    losses = [EXPECTED[step]["loss"] for step in ("4800", "6400", "7200", "8000")]
    assert losses == sorted(losses, reverse=True)
    assert losses[1] - losses[3] > 5 * (losses[0] - losses[1])  # the decay, not the steps
    for quantizer in ("gptq-w3-g128", "rtn-w3-g128"):
        assert error(8000, quantizer) > 1.4 * error(6400, quantizer)  # rises through the decay
        assert error(8000, quantizer) > 3 * error(8000, quantizer.replace("w3", "w4")) > 0
    assert error(8000, "gptq-w3-g128") < error(8000, "rtn-w3-g128")


def test_gptq_beats_rounding_on_every_layer_of_a_trained_model():
    checkpoint = resolve(f"{REFERENCE / 'mini-pythia'}@8000")
    model, tokenizer = load_model(checkpoint), load_tokenizer(checkpoint)
    text = documents(str(REFERENCE / "corpus" / "train.jsonl.xz"))
    calibration = WindowReader(text, tokenizer, 256).take(32)
    for name in ("gptq-w3-g128", "gptq-w4-g32", "gptq-w2-g32-asym", "gptq-w3-g32-static", "gptq-w3-g128-noact"):
        _, report = quantize(parse(name), model, calibration)
        assert len(report.layers) == 12
        for layer in report.layers:
            assert layer.output_error < layer.rtn_output_error, (name, layer.name)


def test_it_is_a_run_with_a_predecessor_and_small_enough_for_git():
    assert next(predecessors(resolve(str(REFERENCE / "mini-pythia")))) == "@step7200"
    assert sum(path.stat().st_size for path in REFERENCE.rglob("*") if path.is_file()) < 12e6


def test_held_out_text_is_not_training_text():
    splits = [set(documents(str(REFERENCE / "corpus" / f"{s}.jsonl.xz"))) for s in ("train", "validation")]
    assert splits[0].isdisjoint(splits[1])


def test_the_recipe_makes_this_model(monkeypatch):
    monkeypatch.chdir(REFERENCE.parents[1])
    checkpoint = resolve(f"{REFERENCE / 'mini-pythia'}@8000")
    recipe, _ = find(str(REFERENCE / "recipe.yaml"))
    tokenizer = train_tokenizer(documents(recipe.text), recipe.vocabulary)
    stored = load_tokenizer(checkpoint)
    texts = list(itertools.islice(documents(recipe.text), 3))
    assert [tokenizer(text)["input_ids"] for text in texts] == [stored(text)["input_ids"] for text in texts]
    config, built = load_model(checkpoint).config, build_model(recipe, tokenizer).config
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings"):
        assert getattr(config, name) == getattr(built, name)
    rates = [3e-3 * recipe.rate()(step, recipe.steps) for step in (0, 79, 5000, 6400, 7200, 7999)]
    assert rates == pytest.approx([3e-3 / 80, 3e-3, 3e-3, 3e-3, 1.5e-3, 3e-3 / 1600])
    assert recipe.kept == [4800, 6400, 7200, 8000]
