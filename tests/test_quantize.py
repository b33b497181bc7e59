"""Quantizers: the grammar, closed forms, GPTQ against its own definition, whole models of every architecture."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import ARCHITECTURES, build, prose
from torch import Tensor

from landscape.errors import QuantizerError
from landscape.quantize import Quantizer, gptq, linear_layers, parse, quantize, round_to_nearest
from landscape.quantize.engine import output_error
from landscape.quantize.grid import fit, group_sizes
from landscape.tokens import WindowReader, Windows
from landscape.weights import Weights


@pytest.fixture(scope="module")
def calibration(tokenizer) -> Windows:
    return WindowReader([prose(2500, seed=5)], tokenizer, 32).take(40)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rtn-w4-g128", Quantizer("rtn", 4, 128)),
        ("rtn-w4-g128-asym", Quantizer("rtn", 4, 128, symmetric=False)),
        ("rtn-w8-channel", Quantizer("rtn", 8, None)),
        ("gptq-w3-g128", Quantizer("gptq", 3, 128)),
        ("gptq-w2-channel-asym-noact", Quantizer("gptq", 2, None, symmetric=False, act_order=False)),
        ("gptq-w3-g64-static-damp0.01", Quantizer("gptq", 3, 64, static_groups=True, damping=0.01)),
    ],
)
def test_names_parse_and_print_back(name: str, expected: Quantizer):
    assert parse(name) == expected
    assert str(expected) == name


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("awq-w4-g128", "awq is not implemented yet"),
        ("nf4", "nf4 is not implemented yet"),
        ("gtpq-w3-g128", "unknown method 'gtpq'"),
        ("", "unknown method ''"),
        ("rtn", "bits must be w2 to w8"),
        ("rtn-w1-g128", "bits must be w2 to w8"),
        ("rtn-w9-channel", "bits must be w2 to w8"),
        ("rtn-w4", "no g{size} or channel"),
        ("rtn-w4-g0", "no g{size} or channel"),
        ("rtn-w4-g128-sym", "'sym' does not fit"),
        ("rtn-w4-g128-noact", "'noact' does not fit"),
        ("gptq-w3-g128-noact-asym", "'asym' does not fit"),
    ],
)
def test_other_names_are_refused_with_the_grammar(name: str, complaint: str):
    with pytest.raises(QuantizerError) as error:
        parse(name)
    assert complaint in str(error.value)
    assert "rtn-w{2..8}-(g{size}|channel)" in str(error.value)


# --- grids ------------------------------------------------------------------------------------------------------------


def test_symmetric_closed_form():
    # b = 2: s = 2·3/3 = 2, values −4, −2, 0, 2; ±3 lie half-way and go inward, −0.9 → 0, 1.1 → 2
    weight = torch.tensor([[-3.0, -0.9, 1.1, 3.0]])
    assert round_to_nearest(weight, 2, 4, symmetric=True).tolist() == [[-2.0, 0.0, 2.0, 2.0]]


@pytest.mark.parametrize("bits", range(2, 9))
def test_symmetric_rounding_is_odd_so_ties_do_not_hang_on_a_division(bits: int):
    torch.manual_seed(bits)
    weight = torch.randn(200, 32)
    assert torch.equal(round_to_nearest(-weight, bits, 32, True), -round_to_nearest(weight, bits, 32, True))
    scaled = round_to_nearest(weight * 3.7, bits, 32, True) / 3.7
    assert torch.allclose(scaled, round_to_nearest(weight, bits, 32, True), rtol=1e-5)


def test_asymmetric_closed_form():
    # b = 2: span 1 … 7 widened to 0 … 7, s = 7/3, z = 0
    weight = torch.tensor([[1.0, 2.0, 4.0, 7.0]])
    assert round_to_nearest(weight, 2, 4, symmetric=False).tolist() == [
        pytest.approx([0.0, 7 / 3, 14 / 3, 7.0], rel=1e-6)
    ]


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", range(2, 9))
def test_rounding_properties(bits: int, symmetric: bool):
    torch.manual_seed(bits)
    weight = torch.randn(12, 64, dtype=torch.float64)
    rounded = round_to_nearest(weight, bits, 16, symmetric)
    groups = (matrix.unflatten(1, (4, 16)).flatten(0, 1) for matrix in (rounded, weight))
    for row, was in zip(*groups, strict=True):
        grid = fit(was[None], bits, symmetric)
        steps = row / grid.scale[0, 0]
        assert torch.allclose(steps, steps.round(), atol=1e-9)  # on the grid
        assert len(row.unique()) <= 2**bits
        assert float((row - was).abs().max()) <= float(grid.scale) / 2 * (1 + 1e-3)  # within half a step
    finer = round_to_nearest(weight, bits + 1, 16, symmetric) if bits < 8 else weight
    assert (finer - weight).norm() < (rounded - weight).norm()


def test_zero_rows_stay_zero_and_a_short_last_group_has_a_grid_of_its_own():
    weight = torch.zeros(2, 10)
    weight[1] = torch.tensor([1.0] * 8 + [0.01, 0.02])
    rounded = round_to_nearest(weight, 3, 8, symmetric=False)
    assert not rounded[0].any()
    alone = round_to_nearest(weight[1:, 8:], 3, 2, symmetric=False)
    assert torch.equal(rounded[1:, 8:], alone)
    assert rounded[1, 9] == pytest.approx(0.02)


def test_group_sizes_that_do_not_fit_are_refused():
    inputs = {"q": 64, "down": 172}
    assert group_sizes(32, inputs) == {"q": 32, "down": 32}
    assert group_sizes(None, inputs) == inputs
    for size in (100, 128, 48):
        with pytest.raises(QuantizerError, match=f"group size {size}: does not divide the 64 inputs of q; use -g16"):
            group_sizes(size, inputs)


# --- GPTQ on one matrix -----------------------------------------------------------------------------------------------


def correlated(inputs: int, seed: int = 0, tokens: int = 400) -> Tensor:
    """XᵀX of correlated inputs with very different scales."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(inputs, inputs, generator=generator, dtype=torch.float64)
    x = torch.randn(tokens, inputs, generator=generator, dtype=torch.float64) @ mix
    x = x * torch.logspace(-1, 1, inputs, dtype=torch.float64)
    return x.T @ x / tokens


def by_definition(weight: Tensor, gram: Tensor, bits: int, group: int, order: Tensor, damping: float) -> Tensor:
    """Optimal brain quantization in a fixed order, with the inverse over the free columns computed anew each time."""
    damped = gram + damping * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    rest, rounded = weight.clone(), torch.zeros_like(weight)
    free = order.tolist()
    for position, column in enumerate(order.tolist()):
        if position % group == 0:
            grid = fit(rest[:, order[position : position + group]], bits, symmetric=True)
        inverse = torch.linalg.inv(damped[free][:, free])
        rounded[:, column] = grid.round(rest[:, [column]])[:, 0]
        error = (rest[:, column] - rounded[:, column]) / inverse[0, 0]
        rest[:, free] -= error[:, None] * inverse[0][None, :]
        free = free[1:]
    return rounded


@pytest.mark.parametrize("act_order", [True, False])
@pytest.mark.parametrize(("inputs", "group"), [(48, 16), (48, 48), (150, 150), (160, 40), (300, 150), (70, 32)])
def test_gptq_equals_the_dense_column_recursion(inputs: int, group: int, act_order: bool):
    torch.manual_seed(inputs + group)
    weight, gram = torch.randn(9, inputs, dtype=torch.float64), correlated(inputs)
    order = torch.argsort(gram.diagonal(), descending=True, stable=True) if act_order else torch.arange(inputs)
    expected = by_definition(weight, gram, 3, group, order, 0.05)
    result = gptq(weight, gram, 3, group, act_order=act_order, damping=0.05)
    assert (result.weight - expected).abs().max() < 1e-6
    assert (result.retries, result.fallback, result.dead_inputs) == (0, False, 0)


def test_static_groups_keep_the_grid_of_their_columns():
    torch.manual_seed(0)
    weight, gram = torch.randn(6, 64, dtype=torch.float64), correlated(64)
    rounded = gptq(weight, gram, 3, 16, static_groups=True).weight
    for start in range(0, 64, 16):
        grid = fit(weight[:, start : start + 16], 3, symmetric=True)
        steps = rounded[:, start : start + 16] / grid.scale
        assert torch.allclose(steps, steps.round(), atol=1e-9)


@pytest.mark.parametrize("symmetric", [True, False])
def test_with_uncorrelated_inputs_gptq_is_rounding_to_nearest(symmetric: bool):
    torch.manual_seed(1)
    weight = torch.randn(8, 64, dtype=torch.float64)
    nearest = round_to_nearest(weight, 3, 16, symmetric)
    assert torch.equal(gptq(weight, torch.eye(64, dtype=torch.float64), 3, 16, symmetric).weight, nearest)


@pytest.mark.parametrize("seed", range(5))
def test_gptq_beats_rounding_in_output_error(seed: int):
    torch.manual_seed(seed)
    weight, gram = torch.randn(16, 96), correlated(96, seed)
    ours, nearest = gptq(weight, gram, 3, 32).weight, round_to_nearest(weight, 3, 32, True)
    assert output_error(weight, ours, gram) < 0.9 * output_error(weight, nearest, gram)


def test_output_error_is_what_it_says():
    torch.manual_seed(0)
    weight, rounded, x = torch.randn(4, 8), torch.randn(4, 8), torch.randn(50, 8)
    expected = (x @ (rounded - weight).T).norm() ** 2 / (x @ weight.T).norm() ** 2
    assert output_error(weight, rounded, x.T @ x) == pytest.approx(float(expected), rel=1e-5)


def test_damping_is_retried_and_a_hopeless_layer_falls_back_and_says_so():
    weight = torch.randn(4, 8, dtype=torch.float64)
    # eigenvalue −0.08 of the mean diagonal: positive definite only from damping 0.09 on
    values = torch.ones(8, dtype=torch.float64)
    values[0] = -0.08
    rotation = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    gram = rotation @ torch.diag(values) @ rotation.T
    gram = gram / gram.diagonal().mean()
    retried = gptq(weight, gram, 3, 8, damping=0.05)
    assert 1 <= retried.retries <= 10
    assert retried.damping == pytest.approx(0.05 + 0.01 * retried.retries)
    assert not retried.fallback
    hopeless = gptq(weight, gram - 2 * torch.eye(8), 3, 8)
    assert hopeless.fallback
    assert torch.equal(hopeless.weight, round_to_nearest(weight, 3, 8, True))


def test_dead_inputs_are_counted_and_rounded_like_any_other():
    torch.manual_seed(0)
    weight, gram = torch.randn(5, 32, dtype=torch.float64), correlated(32)
    gram[:, 7] = gram[7, :] = 0.0
    result = gptq(weight, gram, 4, 32, act_order=False)
    assert result.dead_inputs == 1
    assert not result.fallback
    assert float((result.weight[:, 7] - weight[:, 7]).abs().max()) <= float(fit(weight, 4, True).scale.max()) / 2


# --- whole models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_and_the_model_comes_back_bit_for_bit(name: str, calibration: Windows):
    model = build(name)
    before = Weights.of(model).clone()
    embeddings = [model.get_input_embeddings(), model.get_output_embeddings()]
    for quantizer in ("rtn-w3-g16", "gptq-w3-g16"):
        rounded, report = quantize(parse(quantizer), model, calibration)
        assert Weights.of(model).equal(before)
        inside = {f"{layer.name}.weight" for layer in report.layers}
        assert len(inside) == len(linear_layers(model)) >= 8
        for key, tensor in rounded.items():
            assert torch.equal(tensor, before[key]) == (key not in inside), key
        for module in embeddings:
            assert all(module.weight is not dict(model.named_parameters()).get(key) for key in inside)
        assert report.quantized_parameters == sum(before[key].numel() for key in inside)
        assert report.total_parameters == before.numel()
        assert report.fallbacks == ()
        if quantizer.startswith("gptq"):
            for layer in report.layers:
                assert layer.output_error < layer.rtn_output_error, layer.name


def test_matrices_of_conv1d_are_grouped_along_their_inputs(calibration: Windows):
    model = build("gpt2")
    rounded, _ = quantize(parse("rtn-w2-channel"), model)
    weight = rounded["transformer.h.0.mlp.c_fc.weight"]  # (inputs, outputs)
    assert max(len(column.unique()) for column in weight.T) <= 4
    assert max(len(row.unique()) for row in weight) > 4


def test_layers_see_the_inputs_of_the_quantized_model(calibration: Windows):
    """The second block's XᵀX must come from the quantized first block: compare with a run that says so."""
    model = build("llama-tied-gqa")
    rounded, report = quantize(parse("gptq-w2-g16"), model, calibration)
    captured: dict[str, Tensor] = {}
    layer = model.model.layers[1].mlp.down_proj
    original = layer.weight.detach().clone()
    hook = layer.register_forward_pre_hook(lambda module, args: captured.update(x=args[0].detach()))
    with torch.no_grad():
        for key, tensor in rounded.items():
            if key != "model.layers.1.mlp.down_proj.weight":
                model.get_parameter(key).copy_(tensor)
        model(input_ids=calibration.ids, use_cache=False)
    hook.remove()
    x = captured["x"].flatten(0, 1)
    expected = output_error(original, rounded["model.layers.1.mlp.down_proj.weight"], x.T @ x)
    row = next(row for row in report.layers if row.name == "model.layers.1.mlp.down_proj")
    assert row.output_error == pytest.approx(expected, rel=1e-4)


def test_padding_is_no_calibration_data(tokenizer):
    texts = [prose(n, seed=n) for n in (30, 4, 18, 9)]
    ragged = WindowReader(texts, tokenizer, 48, "documents").take(10)
    changed = Windows(ragged.ids.clone(), ragged.lengths)
    for row, length in zip(changed.ids, changed.lengths.tolist(), strict=True):
        row[length:] = 123
    model = build("gpt_neox")
    one, _ = quantize(parse("gptq-w3-g16"), model, ragged)
    two, _ = quantize(parse("gptq-w3-g16"), model, changed)
    assert one.equal(two)


def test_is_deterministic_and_independent_of_the_batch_size(calibration: Windows):
    model = build("gpt_neox")
    one, two = (quantize(parse("gptq-w4-g16"), model, calibration)[0] for _ in range(2))
    assert one.equal(two)
    other, _ = quantize(parse("gptq-w4-g16"), model, calibration, batch_size=3)
    assert (other - one).norm() < 0.05 * (one - Weights.of(model)).norm()


def test_what_cannot_be_quantized(calibration: Windows):
    model = build("gpt_neox")
    with pytest.raises(QuantizerError, match="group size 100: does not divide the 32 inputs"):
        quantize(parse("rtn-w4-g100"), model)
    with pytest.raises(QuantizerError, match="needs calibration text"):
        quantize(parse("gptq-w4-g16"), model)
    with pytest.raises(QuantizerError, match="no stack of blocks"):
        quantize(parse("rtn-w4-g16"), torch.nn.Linear(16, 16))
    before = Weights.of(model).clone()
    broken = build("gpt_neox")
    with torch.no_grad():
        broken.gpt_neox.layers[1].mlp.dense_h_to_4h.weight.fill_(math.inf)
    kept = Weights.of(broken).clone()
    with pytest.raises(QuantizerError, match="non-finite activations"):
        quantize(parse("gptq-w4-g16"), broken, calibration)
    assert Weights.of(broken).equal(kept), "an error must leave the model as it was"
    assert Weights.of(model).equal(before)
