"""Bits by layer: the cheapest choice by brute force, and the whole job on a small model."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from landscape.allocation import _cheapest, allocate_bits
from landscape.config import AllocateConfig
from landscape.errors import LandscapeError
from landscape.quantize import parse
from landscape.study.predictions import predict


@pytest.mark.parametrize("seed", range(6))
def test_the_choice_is_the_cheapest_of_all(seed: int):
    random = np.random.default_rng(seed)
    costs = np.sort(random.exponential(size=(5, 3)), axis=1)[:, ::-1] ** 3
    sizes = random.integers(1, 9, size=(5, 1)) * np.array([2.25, 3.25, 4.25])
    budget = float(random.uniform(sizes[:, 0].sum(), sizes[:, 2].sum()))
    rows = np.arange(5)
    allowed = [
        (costs[rows, list(levels)].sum(), levels)
        for levels in itertools.product(range(3), repeat=5)
        if sizes[rows, list(levels)].sum() <= budget
    ]
    chosen = _cheapest(costs, sizes, budget)
    assert chosen is not None and sizes[rows, chosen].sum() <= budget * (1 + 1e-9)
    assert costs[rows, chosen].sum() == pytest.approx(min(allowed)[0])
    assert _cheapest(costs, sizes, sizes[:, 0].sum() * 0.99) is None


def allocate(run: Path, text: Path, out: Path, quant: str = "gptq-w3-g16", **options: object):
    small = {"seq_len": 32, "tokens": 640, "curvature_tokens": 256, "calibration_windows": 8, "max_probes": 10}
    return allocate_bits(AllocateConfig(f"{run}@step30", text=str(text), quant=quant, out=out, **small | options))


def test_bits_go_where_they_save_most(run: Path, text_file: Path, tmp_path: Path):
    found = allocate(run, text_file, tmp_path, bits=4.6, choices="2,3,4,8")
    assert len(found.bits) == 8 and set(found.bits.values()) <= {2, 3, 4, 8} and len(set(found.bits.values())) > 1
    assert found.bits_per_weight <= 4.6
    chosen, *alike = found.results
    assert chosen.report["bits_per_weight"] == pytest.approx(found.bits_per_weight)
    assert {layer["name"]: layer["bits"] for layer in chosen.report["layers"]} == found.bits
    assert str(parse(found.quantizer)) == found.quantizer == chosen.quantizer
    assert [result.quantizer for result in alike] == [f"gptq-w{bits}-g16" for bits in (2, 3, 4, 8)]
    predicted = list(found.predicted.values())
    assert predicted[1] > predicted[2] > predicted[0] > predicted[4]


def test_predictions_are_those_of_a_study(run: Path, text_file: Path, tmp_path: Path):
    from landscape.curvature import store
    from landscape.study.rows import traces_of

    found = allocate(run, text_file, tmp_path, "rtn-w3-g16", bits=4.0, choices="3,4", by="length")
    traces = traces_of(store.read(next(tmp_path.glob("*.h5"))))
    for result in found.results[1:]:
        expected = predict(result.report["layers"], traces)["length"][0]
        assert found.predicted[result.quantizer] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bits": 0.5}, "--bits 0.5: expected"),
        ({"bits": 2.5, "choices": "3,4"}, "--bits 2.5: 3,4 bits take at least 4.00 with scales"),
        ({"choices": "3,9"}, "--choices 3,9: expected"),
        ({"choices": "three"}, "--choices three: expected"),
        ({"quant": "int8"}, "--quant int8: expected a method that takes bits"),
        ({"quant": "rtn-w3-g16+dense=w4"}, "without layers that differ"),
        ({"quant": "rtn-w3-g16", "bits": 5.0}, "--by outputs with rtn-w3-g16: it looks at no inputs; use --by length"),
        ({"by": "trace"}, "--by trace: expected one of outputs, length, grid"),
    ],
)
def test_what_cannot_be_asked_for(run: Path, text_file: Path, tmp_path: Path, options: dict, words: str):
    with pytest.raises(LandscapeError, match=words.replace(".", r"\.").replace("+", r"\+")):
        allocate(run, text_file, tmp_path, **{"choices": "3,4", **options})


def test_the_command_prints_bits_and_the_name(landscape, run: Path, text_file: Path, tmp_path: Path):
    small = ["--seq-len", 32, "--tokens", 320, "--curvature-tokens", 128, "--max-probes", 10, "--out", tmp_path]
    asked = ["--bits", 4.3, "--by", "length", "--choices", "3,4", "--text", text_file]
    code, out, err = landscape("allocate", f"{run}@step30", "rtn-w3-g16", *asked, *small)
    assert code == 0, err
    assert "these bits" in out and "4 bits  " in out and "predicted ΔL" in out and "name    rtn-w" in out
