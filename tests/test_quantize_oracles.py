"""Our quantizers beside the packages that made them known; skipped where these are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from landscape.losses import compare, window_losses
from landscape.models import load_model, load_tokenizer
from landscape.models.references import resolve
from landscape.objective import TokenCrossEntropy, batches
from landscape.quantize import half_quadratic, parse, quantize, round_to_code, vector_wise
from landscape.texts import documents
from landscape.tokens import WindowReader
from landscape.weights import Weights

pytestmark = pytest.mark.oracle


def matrix(rows: int = 96, columns: int = 256, seed: int = 0) -> torch.Tensor:
    return 0.05 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("code", ["nf4", "fp4"])
@pytest.mark.parametrize("block", [64, 128])
def test_codes_of_bitsandbytes(code: str, double: bool, block: int):
    functional = pytest.importorskip("bitsandbytes.functional")
    weight = matrix()  # rows of whole blocks: with others bitsandbytes' CPU kernel gives back something else
    packed, state = functional.quantize_4bit(weight, blocksize=block, quant_type=code, compress_statistics=double)
    theirs = functional.dequantize_4bit(packed, state)
    ours = round_to_code(weight, code, block, double).weight
    off = (ours - theirs).abs() > 1e-6 * weight.abs().max()
    # weights half-way between two values; with double quantization, scales half-way between two of theirs
    assert off.double().mean() < (0.02 if double else 2e-4)
    if double:
        assert torch.allclose(ours, theirs, rtol=5e-3, atol=1e-6)


def test_rows_of_llm_int8():
    functional = pytest.importorskip("bitsandbytes.functional")
    weight = matrix()
    try:
        codes, scales, _ = functional.int8_vectorwise_quant(weight.half())
    except (NotImplementedError, RuntimeError) as error:
        pytest.skip(f"bitsandbytes has no such kernel here: {error}")
    theirs = codes.float() * scales.float()[:, None] / 127
    ours = vector_wise(weight.half().float()).weight
    off = (ours - theirs).abs() > 1e-6
    assert off.double().mean() < 1e-3  # half-way in float16: theirs go outward, ours inward
    half_way = (weight.half().float() / scales.float()[:, None] * 127)[off]
    assert torch.allclose((half_way - half_way.floor() - 0.5), torch.zeros(1), atol=1e-3)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_errors_of_hqq(bits: int):
    """The two choose among iterates differently; the ℓ_0.7 error they aim at must not be larger here."""
    core = pytest.importorskip("hqq.core.quantize")
    weight = matrix()
    packed, meta = core.Quantizer.quantize(
        weight, nbits=bits, group_size=64, axis=1, optimize=True, compute_dtype=torch.float32, device="cpu"
    )
    theirs = core.Quantizer.dequantize(packed, meta).float()
    ours = half_quadratic(weight, bits, 64).weight
    errors = [float((rounded - weight).abs().pow(0.7).sum()) for rounded in (ours, theirs)]
    assert errors[0] <= errors[1] * 1.001
    assert errors[0] >= errors[1] * 0.8  # and it is the same method


@pytest.mark.parametrize("engine", ["llmcompressor", "gptqmodel"])
@pytest.mark.parametrize("name", ["gptq-w4-g64-static", "gptq-w3-g64-noact", "gptq-w4-channel"])
def test_gptq_of_other_engines_costs_the_same(engine: str, name: str):
    """The bundled model, the same calibration windows: ΔQ within the paired interval, steps of the same length."""
    pytest.importorskip(engine)
    folder = Path(__file__).parents[1] / "data" / "reference"
    checkpoint = resolve(str(folder / "mini-pythia"))
    model, tokenizer = load_model(checkpoint), load_tokenizer(checkpoint)
    calibration = WindowReader(documents(str(folder / "corpus" / "train.jsonl.xz")), tokenizer, 256).take(64)
    windows = WindowReader(documents(str(folder / "corpus" / "validation.jsonl.xz")), tokenizer, 256).take(64)
    objective, before = TokenCrossEntropy(model, batches(windows, 8)), Weights.of(model).clone()
    losses = {}
    for way in (name, f"{name}@{engine}"):
        weights, report = quantize(parse(way), model, calibration)
        assert Weights.of(model).equal(before) and len(report.layers) == 12
        losses[way] = window_losses(objective, weights)
        steps = sum(layer.step_norm**2 for layer in report.layers) ** 0.5
        if way == name:
            ours = steps
    assert steps == pytest.approx(ours, rel=0.05)
    difference = compare(losses[name], losses[f"{name}@{engine}"]).change
    # two solutions of one problem, found in another order of rounding: they differ as two seeds of data would
    cost = compare(window_losses(objective, before), losses[name]).change
    assert cost.low <= cost.value + difference.value <= cost.high
