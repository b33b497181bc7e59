"""GPTQ and AWQ: layouts written here from codes of the test's own choice, against their closed form."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conftest import build
from landscape.packed import awq, gptq, load_dense
from landscape.packed.bits import unpack
from landscape.weights import Weights
from test_packed import (
    apart,
    checkpoint,
    edit,
    gptq_parts,
    linear_names,
    logits,
    matrix,
    pack_gptq,
    refusal,
    rounded,
    save_packed,
    words,
)

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # what a word holds, from its lowest bits upward


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def scattered(inputs: int, group: int) -> Tensor:
    """The groups of an activation order: of equal size, spread over the inputs."""
    order = torch.randperm(inputs, generator=torch.Generator().manual_seed(3))
    g_idx = torch.empty(inputs, dtype=torch.long)
    g_idx[order] = torch.arange(inputs) // group
    return g_idx


def awq_parts(weight: Tensor, group: int) -> tuple[dict[str, Tensor], Tensor]:
    """A layer as AWQ's GEMM layout stores it, and the values that it stands for."""
    codes, zeros, scales, values = rounded(weight, 4, torch.arange(weight.shape[1]) // group)

    def shuffled(rows: Tensor) -> Tensor:
        return words(rows.unflatten(1, (-1, 8))[:, :, AWQ_ORDER].flatten(1), 4)

    return {"qweight": shuffled(codes.T), "qzeros": shuffled(zeros.T), "scales": scales.T.half().contiguous()}, values


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_come_out_of_words_as_they_went_in(bits: int):
    codes = torch.randint(2**bits, (3, 96), generator=torch.Generator().manual_seed(bits))
    assert torch.equal(unpack(words(codes, bits), bits)[:, :96], codes.int())


def test_words_written_by_hand():
    one = lambda number: torch.tensor([[number - (1 << 32) if number >> 31 else number]], dtype=torch.int32)  # noqa: E731
    assert unpack(one(0xFEDCBA98), 4).tolist() == [[8, 9, 10, 11, 12, 13, 14, 15]]
    # ten codes of three bits and two bits of the eleventh, whose third is the lowest of the next word
    long = 0o76543210_76543210_76543210_76543210
    three = torch.cat([one(long >> 32 * k & 0xFFFFFFFF) for k in range(3)], 1)
    assert unpack(three, 3).tolist() == [list(range(8)) * 4]
    parts = {"qweight": one(0x75316420), "qzeros": one(0), "scales": torch.ones(1, 8)}
    assert awq.dequantize(parts).flatten().tolist() == list(range(8))


@pytest.mark.parametrize("scatter", [False, True])
@pytest.mark.parametrize("one_less", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_gptq(bits: int, one_less: bool, scatter: bool):
    weight = draw(32, 64)
    g_idx = scattered(64, 16) if scatter else torch.arange(64) // 16
    parts, values = gptq_parts(weight, bits, g_idx, one_less)
    assert torch.equal(gptq.dequantize(parts, bits, one_less, 16), values)
    if not scatter:
        del parts["g_idx"]
        assert torch.equal(gptq.dequantize(parts, bits, one_less, 16), values)


@pytest.mark.parametrize("group_size", [-1, 64])
def test_gptq_with_one_group(group_size: int):
    parts, values = gptq_parts(draw(32, 64), 4, torch.zeros(64, dtype=torch.long))
    del parts["g_idx"]
    assert torch.equal(gptq.dequantize(parts, 4, True, group_size), values)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_gptq_zero_point_of_zero_borrows_from_its_neighbour(bits: int):
    zeros = torch.tensor([[0, 1, 0, 2, 3, 0, 0, 1] * 4])
    ones = words(torch.ones_like(zeros), bits)
    scales, codes = torch.ones(1, 32), words(torch.zeros(32, 32, dtype=torch.long), bits).T
    parts = {"qweight": codes, "qzeros": words(zeros, bits) - ones, "scales": scales}
    assert torch.equal(gptq.dequantize(parts, bits, True, -1), -zeros.T.expand(32, 32).float())


def test_gptq_with_words_filled_up():
    """60 inputs need seven and a half words."""
    parts, values = gptq_parts(draw(32, 60), 4, torch.arange(60) // 20)
    assert parts["qweight"].shape == (8, 32)
    assert torch.equal(gptq.dequantize(parts, 4, True, 20), values)
    three, values = gptq_parts(draw(28, 60), 3, torch.arange(60) // 20)  # zero points fill words up, too
    assert torch.equal(gptq.dequantize(three, 3, True, 20), values)


@pytest.mark.parametrize("settings", [{}, {"checkpoint_format": "gptq_v2"}, {"desc_act": True, "sym": False}])
def test_gptq_checkpoints(settings: dict[str, object], tmp_path: Path):
    model = build("llama-tied-gqa")
    parts, values = {}, {}
    for layer in linear_names(model):
        weight = matrix(model, layer)
        g_idx = scattered(weight.shape[1], 16)
        parts[layer], values[f"{layer}.weight"] = gptq_parts(weight, 4, g_idx, "checkpoint_format" not in settings)
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 16, **settings}
    save_packed(tmp_path / "packed", model, parts, settings, torch.float32)
    dense, report = load_dense(checkpoint(tmp_path / "packed"), Weights.of(model), model)
    assert all(torch.equal(dense[name], value) for name, value in values.items())
    assert report.rest_difference == 0
    reference = build("llama-tied-gqa")
    reference.load_state_dict(values, strict=False)
    assert torch.equal(logits(model, dense), logits(reference))
    assert apart(logits(model, dense), logits(model)) > 0.01


def test_gptq_layers_of_their_own_bits(tmp_path: Path):
    """As GPTQModel's `dynamic` makes them: the configuration says four."""
    model = build("llama-tied-gqa")
    values = pack_gptq(tmp_path / "packed", model)
    own, value = gptq_parts(matrix(model, "model.layers.0.mlp.up_proj"), 8, torch.arange(32) // 16)
    edit(tmp_path / "packed", lambda t: t.update({f"model.layers.0.mlp.up_proj.{k}": v for k, v in own.items()}))
    values["model.layers.0.mlp.up_proj.weight"] = value
    dense, report = load_dense(checkpoint(tmp_path / "packed"), Weights.of(model), model)
    assert all(torch.equal(dense[name], value) for name, value in values.items())
    assert report.bits == (4, 8)


def test_gpt2_keeps_square_matrices_transposed(tmp_path: Path):
    model = build("gpt2")
    values = pack_gptq(tmp_path / "packed", model)
    dense, _ = load_dense(checkpoint(tmp_path / "packed"), Weights.of(model), model)
    name = "transformer.h.0.attn.c_proj.weight"
    assert dense[name].shape == (32, 32)
    assert torch.equal(dense[name], values[name])
    assert not torch.equal(dense[name], values[name].T)


@pytest.mark.parametrize("group", [16, 64])
def test_awq(group: int):
    parts, values = awq_parts(draw(24, 64), group)
    assert torch.equal(awq.dequantize(parts), values)


def test_awq_takes_a_zero_point_of_zero_as_it_is():
    parts, values = awq_parts(draw(8, 32).abs() + 1, 32)  # `rounded` makes it one
    parts["qzeros"] = torch.zeros_like(parts["qzeros"])
    assert torch.equal(awq.dequantize(parts), values + parts["scales"].float().T)


@pytest.mark.parametrize("name", ["llama-tied-gqa", "gpt_neox", "gpt2"])
def test_awq_checkpoints(name: str, tmp_path: Path):
    model = build(name)
    parts, values = {}, {}
    for layer in linear_names(model):
        parts[layer], value = awq_parts(matrix(model, layer), 16)
        transposed = type(model.get_submodule(layer)).__name__ == "Conv1D"
        values[f"{layer}.weight"] = value.T if transposed else value
    settings = {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "GEMM", "zero_point": True}
    save_packed(tmp_path / "packed", model, parts, settings)
    dense, report = load_dense(checkpoint(tmp_path / "packed"), Weights.of(model), model)
    assert all(torch.equal(dense[name], value) for name, value in values.items())
    assert (report.format, report.bits) == ("awq", (4,))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "GPTQ checkpoint in the format marlin"),
        ({"quant_method": "gptq", "bits": 5}, "5 bits; expected one of 2, 3, 4, 8"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "AWQ checkpoint in the layout gemv: expected gemm"),
        ({"quant_method": "awq", "w_bit": 3}, "AWQ checkpoint of 3 bits: expected 4"),
    ],
)
def test_other_layouts_are_refused(settings: dict[str, object], message: str, tmp_path: Path):
    model: nn.Module = build("llama-tied-gqa")
    own, _ = gptq_parts(matrix(model, "model.layers.0.mlp.up_proj"), 4, torch.arange(32) // 16)
    del own["g_idx"]
    save_packed(tmp_path / "packed", model, {"model.layers.0.mlp.up_proj": own}, settings)
    assert message in refusal(tmp_path / "packed", model)
