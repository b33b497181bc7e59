"""Our quantizers beside the packages that made them known; skipped where these are not installed."""

from __future__ import annotations

import pytest
import torch

from landscape.quantize import half_quadratic, output_error, parse, quantize, round_to_code, vector_wise

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


@pytest.mark.parametrize("name", ["gptq-w4-g32", "gptq-w3-g32"])
def test_gptq_of_llm_compressor(name: str, tmp_path, tokenizer):
    """The same model, windows, grid, order and damping: output errors of all layers together within 5 %."""
    compressor = pytest.importorskip("llmcompressor")
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from conftest import build, prose
    from datasets import Dataset
    from llmcompressor.modifiers.quantization import GPTQModifier

    from landscape.tokens import WindowReader
    from landscape.weights import Weights

    windows = WindowReader([prose(4000, seed=5)], tokenizer, 64).take(64)
    model, quantizer = build("llama-tied-gqa", hidden_size=64, intermediate_size=128), parse(name)
    before = Weights.of(model).clone()
    ours, report = quantize(parse(f"{name}-static"), model, windows)
    modifier = GPTQModifier(
        dampening_frac=0.05,
        actorder="static",
        block_size=128,
        config_groups={
            "all": QuantizationScheme(
                targets=["Linear"],
                weights=QuantizationArgs(num_bits=quantizer.bits, group_size=32, strategy="group", symmetric=True),
            )
        },
        ignore=["lm_head"],
    )
    rows = [{"input_ids": ids.tolist(), "attention_mask": [1] * len(ids)} for ids in windows.ids]
    compressor.oneshot(
        model=model, dataset=Dataset.from_list(rows), recipe=modifier, max_seq_length=64, num_calibration_samples=64
    )
    theirs = {name: tensor.detach().float() for name, tensor in model.named_parameters()}
    mine = other = 0.0
    for row in report.layers:
        key = f"{row.name}.weight"
        mine += row.output_error
        # both errors are measured on our inputs, which are those of our Θ̂ up to this layer
        other += row.output_error * float((theirs[key] - before[key]).norm() / (ours[key] - before[key]).norm()) ** 2
    assert mine == pytest.approx(other, rel=0.05)
    assert output_error is not None
