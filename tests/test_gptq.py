"""GPTQ on one matrix, against its own definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from landscape.quantize import fit, gptq, output_error, round_to_nearest
from landscape.quantize.gptq import Factor
from landscape.quantize.report import redundant


def correlated(inputs: int, seed: int = 0, tokens: int = 400) -> Tensor:
    """XᵀX of correlated inputs with very different scales."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(inputs, inputs, generator=generator, dtype=torch.float64)
    x = torch.randn(tokens, inputs, generator=generator, dtype=torch.float64) @ mix
    x = x * torch.logspace(-1, 1, inputs, dtype=torch.float64)
    return x.T @ x / tokens


def by_definition(
    weight: Tensor, gram: Tensor, bits: int, group: int, order: Tensor, damping: float, levels: str, clip: bool
) -> Tensor:
    """Optimal brain quantization in a fixed order, with the inverse over the free columns computed anew each time."""
    damped = gram + damping * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    rest, rounded = weight.clone(), torch.zeros_like(weight)
    free = order.tolist()
    for position, column in enumerate(order.tolist()):
        if position % group == 0:
            grid = fit(rest[:, order[position : position + group]], bits, levels, clip)
        inverse = torch.linalg.inv(damped[free][:, free])
        rounded[:, column] = grid.round(rest[:, [column]])[:, 0]
        error = (rest[:, column] - rounded[:, column]) / inverse[0, 0]
        rest[:, free] -= error[:, None] * inverse[0][None, :]
        free = free[1:]
    return rounded


@pytest.mark.parametrize("act_order", [True, False])
@pytest.mark.parametrize(
    ("inputs", "group", "levels", "clip"),
    [
        (48, 16, "symmetric", False),
        (48, 48, "asym", False),
        (150, 150, "symmetric", True),
        (160, 40, "minmax", False),
        (300, 150, "symmetric", False),
        (70, 32, "asym", True),
    ],
)
def test_gptq_equals_the_dense_column_recursion(inputs: int, group: int, levels: str, clip: bool, act_order: bool):
    torch.manual_seed(inputs + group)
    weight, gram = torch.randn(9, inputs, dtype=torch.float64), correlated(inputs)
    order = torch.argsort(gram.diagonal(), descending=True, stable=True) if act_order else torch.arange(inputs)
    expected = by_definition(weight, gram, 3, group, order, 0.05, levels, clip)
    result = gptq(weight, gram, 3, group, levels, clip, act_order=act_order, damping=0.05)
    assert (result.weight - expected).abs().max() < 1e-6
    assert (result.retries, result.fallback) == (0, False)


@pytest.mark.parametrize("levels", ["symmetric", "asym", "minmax"])
def test_static_groups_keep_the_grid_of_their_columns(levels: str):
    torch.manual_seed(0)
    weight, gram = torch.randn(6, 72, dtype=torch.float64), correlated(72)
    result = gptq(weight, gram, 3, 16, levels, static_groups=True)
    for start in range(0, 72, 16):
        grid = fit(weight[:, start : start + 16], 3, levels)
        rounded = result.weight[:, start : start + 16]
        steps = (rounded - grid.offset) / grid.scale
        assert torch.allclose(steps, steps.round(), atol=1e-9)
        assert torch.equal(result.rounded.step[:, start : start + 16], grid.scale.expand_as(rounded))


def test_one_grid_for_the_whole_matrix():
    torch.manual_seed(0)
    weight, gram = torch.randn(6, 40, dtype=torch.float64), correlated(40)
    result = gptq(weight, gram, 3, None)
    assert len(result.weight.unique()) <= 8
    assert torch.equal(result.rounded.step, fit(weight.reshape(1, -1), 3).scale.expand_as(weight))
    nearest = round_to_nearest(weight, 3, None).weight
    assert output_error(weight, result.weight, gram) < output_error(weight, nearest, gram)


@pytest.mark.parametrize("levels", ["symmetric", "asym", "minmax"])
def test_with_uncorrelated_inputs_gptq_is_rounding_to_nearest(levels: str):
    torch.manual_seed(1)
    weight = torch.randn(8, 64, dtype=torch.float64)
    nearest = round_to_nearest(weight, 3, 16, levels)
    result = gptq(weight, torch.eye(64, dtype=torch.float64), 3, 16, levels)
    assert torch.equal(result.weight, nearest.weight) and torch.equal(result.rounded.step, nearest.step)
    assert result.saturation == 0


@pytest.mark.parametrize("seed", range(5))
def test_gptq_beats_rounding_in_output_error(seed: int):
    torch.manual_seed(seed)
    weight, gram = torch.randn(16, 96), correlated(96, seed)
    ours, nearest = gptq(weight, gram, 3, 32).weight, round_to_nearest(weight, 3, 32).weight
    assert output_error(weight, ours, gram) < 0.9 * output_error(weight, nearest, gram)


@pytest.mark.parametrize("inputs", [8, 513, 1100])
def test_output_error_is_what_it_says(inputs: int):
    torch.manual_seed(0)
    weight, rounded, x = torch.randn(4, inputs), torch.randn(4, inputs), torch.randn(50, inputs)
    expected = (x @ (rounded - weight).T).norm() ** 2 / (x @ weight.T).norm() ** 2
    assert output_error(weight, rounded, x.T @ x) == pytest.approx(float(expected), rel=1e-5)


def test_weights_that_were_pushed_out_of_their_grid_are_counted():
    """Two inputs that are nearly one: what rounding the first leaves goes into the second, beyond its static grid."""
    weight = torch.tensor([[0.5, 1.0]], dtype=torch.float64)
    gram = torch.tensor([[1.0, 0.999], [0.999, 1.0]], dtype=torch.float64)
    result = gptq(weight, gram, 2, 1, act_order=False, static_groups=True, damping=0.0)
    # the grid of 0.5 has step 1/3 and levels up to 1/3, so 1/6 moves on: 1.1667 on a grid up to 2/3, step 2/3
    assert result.weight.tolist() == [pytest.approx([1 / 3, 2 / 3])]
    assert result.saturation == 0.5
    assert gptq(weight, torch.eye(2, dtype=torch.float64), 2, 1, static_groups=True).saturation == 0


@pytest.mark.parametrize("inputs", [3, 512, 513, 1300])
def test_the_factor_is_that_of_the_inverse(inputs: int):
    gram = correlated(inputs, seed=inputs)
    for act_order in (True, False):
        factor = Factor.of(gram, act_order, damping=0.03)
        damped = gram + 0.03 * gram.diagonal().mean() * torch.eye(inputs, dtype=gram.dtype)
        ordered = damped[factor.order[:, None], factor.order]
        assert torch.equal(factor.upper, factor.upper.triu())
        error = factor.upper.T @ factor.upper @ ordered - torch.eye(inputs, dtype=gram.dtype)
        assert float(error.abs().max()) < 1e-9
        assert (factor.damping, factor.retries) == (0.03, 0)
        falling = gram.diagonal()[factor.order].diff() <= 0
        assert bool(falling.all()) is act_order


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
    assert torch.equal(hopeless.weight, round_to_nearest(weight, 3, 8).weight)


def test_dead_inputs_are_rounded_like_any_other():
    torch.manual_seed(0)
    weight, gram = torch.randn(5, 32, dtype=torch.float64), correlated(32)
    gram[:, 7] = gram[7, :] = 0.0
    result = gptq(weight, gram, 4, 32, act_order=False)
    assert not result.fallback
    assert float((result.weight[:, 7] - weight[:, 7]).abs().max()) <= float(fit(weight, 4).scale.max()) / 2


def test_dead_inputs_need_no_damping():
    gram = correlated(24)
    gram[:, 7] = gram[7, :] = 0.0
    factor = Factor.of(gram, act_order=True, damping=0.0)
    assert factor.upper is not None and (factor.damping, factor.retries) == (0.0, 0)


def test_inputs_of_different_units_are_not_redundant():
    x = torch.randn(500, 20, generator=torch.Generator().manual_seed(3)).double() * torch.logspace(-6, 6, 20)
    assert redundant(x.T @ x) == 0


def test_redundant_inputs_are_counted_beside_dead_ones():
    x = torch.randn(500, 20, generator=torch.Generator().manual_seed(3))
    x[:, 4] = 0  # dead, not redundant
    x[:, 9] = 1e-3 * (x[:, 1] + x[:, 2])
    x[:, 15] = -x[:, 1]
    assert redundant((x.T @ x).double()) == 2
    assert redundant((x[:, 5:8].T @ x[:, 5:8]).double()) == 0
    assert redundant((x[:12].T @ x[:12]).double()) == 19 - 12  # fewer tokens than inputs
