"""Methods that round in another basis: AWQ, SmoothQuant, rotations, inputs that are kept, and sizes in bits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from landscape.errors import QuantizerError
from landscape.quantize import Rotation, gptq, output_error, parse, round_to_nearest, vector_wise
from landscape.quantize.awq import activation_scales, round_for_outputs
from landscape.quantize.matrix import quantize_matrices
from landscape.quantize.outliers import costly
from landscape.quantize.report import LayerReport
from landscape.quantize.sequential import Inputs
from landscape.quantize.smoothquant import migration_scales


def activations(n: int = 64, tokens: int = 600, seed: int = 0) -> Tensor:
    """Inputs of which a few are twenty times as large as the rest."""
    x = torch.randn(tokens, n, generator=torch.Generator().manual_seed(seed))
    x[:, ::21] *= 20
    return x


def summed(x: Tensor, after_norm: bool = True) -> Inputs:
    return Inputs((x.T @ x).double() / len(x), x.abs().mean(0), x.abs().amax(0), after_norm)


def weights(rows: int = 24, n: int = 64, seed: int = 1) -> Tensor:
    return torch.randn(rows, n, generator=torch.Generator().manual_seed(seed))


def quantized(name: str, x: Tensor, *matrices: Tensor, after_norm: bool = True) -> list[tuple[Tensor, LayerReport]]:
    names = [f"layer{i}" for i in range(len(matrices))]
    return quantize_matrices(names, matrices, [parse(name)] * len(matrices), summed(x, after_norm))


# --- rotations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 64, 172, 96, 43])
def test_a_rotation_is_orthogonal_and_undone(n: int):
    rotation, rows = Rotation.random(n), weights(5, n).double()
    dense = rotation.apply(torch.eye(n, dtype=torch.float64))
    assert torch.allclose(dense @ dense.T, torch.eye(n, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(rotation.apply(rows), rows @ dense, atol=1e-12)
    assert torch.allclose(rotation.undo(rows), rows @ dense.T, atol=1e-12)
    gram = rows.T @ rows
    assert torch.allclose(rotation.gram(gram), dense.T @ gram @ dense, atol=1e-10)


def test_the_odd_part_is_the_one_factor_with_a_positive_diagonal():
    """QR is unique up to signs, which differ between machines; these are fixed."""
    generator = torch.Generator().manual_seed(0)
    torch.randint(0, 2, (43,), generator=generator, dtype=torch.float64)  # the signs come first
    normal = torch.randn(43, 43, generator=generator, dtype=torch.float64)
    triangle = Rotation.random(43).odd.T @ normal
    assert torch.allclose(triangle, triangle.triu(), atol=1e-12) and bool((triangle.diagonal() > 0).all())


def test_a_power_of_two_gives_hadamard_with_random_signs():
    dense = Rotation.random(8).apply(torch.eye(8, dtype=torch.float64))
    assert torch.allclose(dense.abs(), torch.full((8, 8), 8**-0.5, dtype=torch.float64))
    other = Rotation.random(8, seed=1).apply(torch.eye(8, dtype=torch.float64))
    assert not torch.equal(dense, other) and torch.equal(dense, Rotation.random(8).apply(torch.eye(8).double()))


def test_a_rotation_spreads_an_outlier_so_that_rounding_errs_less():
    weight = weights()
    weight[:, 5] *= 30
    x = torch.randn(400, 64, generator=torch.Generator().manual_seed(2))
    plain, turned = (quantized(name, x, weight)[0][1] for name in ("rtn-w3-channel", "rtn-w3-channel-rot"))
    assert turned.weight_error < 0.6 * plain.weight_error
    assert turned.output_error < 0.4 * plain.output_error == 0.4 * plain.rtn_output_error


@pytest.mark.parametrize("method", ["rtn", "gptq"])
def test_rounding_in_a_rotated_basis_is_done_there_and_brought_back(method: str):
    x, weight = activations(), weights()
    turned = Rotation.random(64)
    inside = turned.apply(weight)
    if method == "rtn":
        expected = round_to_nearest(inside, 3, 16).weight
    else:
        expected = gptq(inside, turned.gram(summed(x).gram), 3, 16).weight
    assert torch.allclose(quantized(f"{method}-w3-g16-rot", x, weight)[0][0], turned.undo(expected), atol=1e-6)


# --- AWQ and SmoothQuant ----------------------------------------------------------------------------------------------


def test_awq_with_equal_activations_is_rounding_to_nearest():
    weight = weights()
    inputs = Inputs(torch.eye(64, dtype=torch.float64), torch.ones(64), torch.ones(64), True)
    rounded = quantize_matrices(["layer"], [weight], [parse("awq-w3-g16")], inputs)[0][0]
    assert torch.equal(rounded, round_to_nearest(weight, 3, 16).weight)


def test_awq_takes_the_exponent_with_the_smallest_error_over_all_its_layers():
    x, matrices = activations(), [weights(), weights(10, seed=4)]
    inputs = summed(x)

    def error(scales: Tensor) -> float:
        rounded = [round_to_nearest(matrix * scales, 3, 16).weight / scales for matrix in matrices]
        return sum(float(((x @ (r - m).T) ** 2).sum()) for r, m in zip(rounded, matrices, strict=True))

    tried = [inputs.mean_abs.pow(i / 20) for i in range(20)]
    tried = [scales / (scales.max() * scales.min()).sqrt() for scales in tried]
    best = min(tried, key=error)
    assert best is not tried[0]  # inputs this uneven want to be scaled
    done = quantized("awq-w3-g16", x, *matrices)
    for (rounded, report), matrix in zip(done, matrices, strict=True):
        assert torch.allclose(rounded, round_to_nearest(matrix * best, 3, 16).weight / best, atol=1e-6)
        assert report.bits_per_weight > 3 + 16 / 16  # the scales of the inputs count
    assert error(best) < 0.8 * error(tried[0])


def test_scales_of_awq_do_not_depend_on_the_unit_of_the_activations():
    x, matrix = activations(), weights()
    scales = []
    for unit in (1.0, 1e-3):
        inputs = summed(x * unit)
        rounds = [lambda weight: round_to_nearest(weight, 3, 16).weight]
        scales.append(activation_scales([matrix], inputs.mean_abs, inputs.gram, rounds))
    assert torch.allclose(*scales, rtol=1e-4)


@pytest.mark.parametrize("group", [16, 24, 64])
def test_clipping_for_outputs_lowers_the_error_of_the_outputs_of_every_group(group: int):
    x, weight = activations(), weights(n=64)
    gram = summed(x).gram
    plain = round_to_nearest(weight, 2, group).weight
    for_weights = round_to_nearest(weight, 2, group, clip=True).weight
    for_outputs = round_for_outputs(weight, gram, 2, group, "symmetric", True).weight
    for start in range(0, 64, group):
        some = slice(start, start + group)
        errors = [
            ((rounded - weight)[:, some] @ x[:, some].T).square().sum(1)
            for rounded in (plain, for_weights, for_outputs)
        ]
        assert (errors[2] <= errors[0] * (1 + 1e-4)).all()
        assert errors[2].sum() < errors[1].sum()


def test_awq_chooses_its_scales_before_it_clips():
    x, weight = activations(), weights()
    inputs = summed(x)
    rounds = [lambda matrix: round_to_nearest(matrix, 3, 16).weight]
    scales = activation_scales([weight], inputs.mean_abs, inputs.gram, rounds)
    clips = [lambda matrix: round_to_nearest(matrix, 3, 16, clip=True).weight]
    assert not torch.equal(scales, activation_scales([weight], inputs.mean_abs, inputs.gram, clips))
    there = inputs.gram / torch.outer(scales, scales)  # of X diag(s)⁻¹, which the scaled weights take
    expected = round_for_outputs(weight * scales, there, 3, 16, "symmetric", True).weight / scales
    assert torch.allclose(quantized("awq-w3-g16-clip", x, weight)[0][0], expected, atol=1e-6)


def test_smoothquant_closed_form_and_only_where_a_norm_can_absorb_it():
    matrices = [torch.tensor([[1.0, -4.0], [0.5, 2.0]]), torch.tensor([[-2.0, 0.1]])]
    scales = migration_scales(matrices, torch.tensor([8.0, 9.0]), 0.5)
    assert torch.allclose(scales, torch.tensor([math.sqrt(8 / 2), math.sqrt(9 / 4)]))
    assert torch.allclose(migration_scales(matrices, torch.tensor([8.0, 9.0]), 1.0), torch.tensor([8.0, 9.0]))
    x, weight = activations(), weights()
    chosen = migration_scales([weight], x.abs().amax(0), 0.5)
    rounded, report = quantized("smoothquant-w4-channel", x, weight)[0]
    assert torch.allclose(rounded, round_to_nearest(weight * chosen, 4, 64).weight / chosen, atol=1e-6)
    elsewhere = quantized("smoothquant-w4-channel", x, weight, after_norm=False)[0][0]
    assert torch.equal(elsewhere, round_to_nearest(weight, 4, 64).weight)
    assert report.rtn_output_error == pytest.approx(output_error(weight, elsewhere, summed(x).gram))


# --- inputs that are kept ---------------------------------------------------------------------------------------------


def test_the_inputs_that_cost_most_are_kept():
    weight, rounded = torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 2), torch.tensor([[1.0, 2.1, 3.1, 4.5]] * 2)
    gram = torch.diag(torch.tensor([100.0, 9.0, 1.0, 1.0]))
    # costs 0, 0.18, 0.02, 0.5
    assert costly(weight, rounded, gram, 0.5).tolist() == [False, True, False, True]
    assert costly(weight, rounded, gram, 0.01).tolist() == [False, False, False, True]


@pytest.mark.parametrize("name", ["rtn-w3-g16", "gptq-w3-g16", "awq-w3-g16", "rtn-w3-g16-rot", "hqq-w3-g16", "nf4"])
def test_kept_inputs_stay_as_they_are_and_the_error_falls(name: str):
    x, weight = activations(), weights()
    (rounded, report), (_, without) = quantized(f"{name}-outliers0.06", x, weight)[0], quantized(name, x, weight)[0]
    same = (rounded == weight).all(0)
    assert report.kept_inputs == 4 and int(same.sum()) == 4 and same[::21].all()
    assert report.output_error < 0.5 * without.output_error
    assert report.bits_per_weight == pytest.approx(
        without.bits_per_weight + 4 / 64 * (16 - report.bits) + 4 * 32 / weight.numel()
    )


def test_gptq_pushes_no_error_into_kept_inputs():
    x, weight = activations(), weights()
    gram = summed(x).gram
    mask = costly(weight, round_to_nearest(weight, 3, 16).weight, gram, 0.06)
    rest = gram.masked_fill(mask[:, None] | mask, 0)
    expected = torch.where(mask, weight, gptq(weight.masked_fill(mask, 0), rest, 3, 16).weight)
    assert torch.allclose(quantized("gptq-w3-g16-outliers0.06", x, weight)[0][0], expected, atol=1e-6)


def test_matrices_together_are_as_each_alone():
    """What several matrices share, of one X, is shared only between recipes that agree on it."""
    names = ("", "-rot", "-noact", "-damp0.2", "-outliers0.05", "-noact-rot", "-outliers0.1", "", "-damp0.2")
    recipes = [parse(f"gptq-w3-g16{name}") for name in names]
    x, matrices = activations(), [weights(seed=i) for i in range(len(names))]
    for order in (1, -1):
        some, chosen = matrices[::order], recipes[::order]
        together = quantize_matrices(list(map(str, chosen)), some, chosen, summed(x))
        for matrix, recipe, (rounded, report) in zip(some, chosen, together, strict=True):
            alone, own = quantize_matrices([str(recipe)], [matrix], [recipe], summed(x))[0]
            assert torch.equal(rounded, alone) and report == own, recipe


def test_llm_int8_keeps_the_inputs_whose_activations_reach_the_threshold():
    x, weight = activations().clamp(-5, 5), weights()
    x[3, 7], x[9, 30] = -6.0, 5.999
    rounded, report = quantized("int8", x, weight)[0]
    assert torch.equal(rounded[:, 7], weight[:, 7]) and report.kept_inputs == 1
    rest = weight.clone()
    rest[:, 7] = 0  # takes no part in the scale
    expected = vector_wise(rest).weight
    assert torch.equal(rounded[:, 8:], expected[:, 8:]) and torch.equal(rounded[:, :7], expected[:, :7])
    assert quantized("int8-t6.01", x, weight)[0][1].kept_inputs == 0


# --- what is reported -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("rtn-w4-channel", 4 + 16 / 64),
        ("rtn-w4-g16", 4 + 16 / 16),
        ("rtn-w4-g16-asym", 4 + 20 / 16),
        ("rtn-w4-g16-minmax", 4 + 32 / 16),
        ("hqq-w4-g16", 4 + 32 / 16),
        ("rtn-w4-tensor", 4 + 16 / (24 * 64)),
        ("gptq-w3-g24", 3 + 3 * 16 / 64),  # two groups of 24 and one of 16
        ("awq-w4-g16", 4 + 16 / 16 + 16 / 24),
        ("nf4", 4.5),
        ("nf4-dq", 4 + 8 / 64 + 32 / 64 / 256),
        ("int8-t1000", 8 + 16 / 64),
    ],
)
def test_sizes_count_scales_and_offsets(name: str, bits: float):
    assert quantized(name, activations(), weights())[0][1].bits_per_weight == pytest.approx(bits)


def test_the_shape_of_the_weights_and_how_they_lie_on_the_grid():
    x, weight = activations(), torch.randn(400, 64, generator=torch.Generator().manual_seed(0))
    report = quantized("rtn-w8-channel", x, weight)[0][1]
    assert report.excess_kurtosis == pytest.approx(0, abs=0.1)  # of a normal distribution
    assert report.max_over_median == pytest.approx(float(weight.abs().max() / weight.abs().median()))
    assert report.misalignment == pytest.approx((63 / 12 + 1 / 4) ** 0.5 / 8, rel=0.01)  # one in 64 is the extreme
    assert report.saturation == 0
    assert report.step_norm == pytest.approx(report.weight_error * float(weight.norm()))
    on_it = quantized("rtn-w4-channel-minmax", x, round_to_nearest(weight, 4, 64, "minmax").weight)[0][1]
    assert on_it.misalignment < 1e-4 and on_it.weight_error < 1e-6
    clipped = quantized("rtn-w3-channel-clip", x, weight)[0]
    grid = round_to_nearest(weight, 3, 64, clip=True)
    outside = ((clipped[0] - weight).abs() > 0.5005 * grid.step).double().mean()
    assert clipped[1].saturation == pytest.approx(float(outside)) and 0.005 < outside < 0.1
    uniform = quantized("rtn-w4-channel", x, torch.rand(400, 64, generator=torch.Generator().manual_seed(0)))[0][1]
    assert uniform.excess_kurtosis == pytest.approx(-1.2, abs=0.02)  # of a uniform one


def test_weights_that_are_not_finite_are_refused_by_name():
    weight = weights()
    weight[3, 3] = math.nan
    with pytest.raises(QuantizerError, match="layer0: its weights are not finite"):
        quantized("rtn-w4-g16", activations(), weight)
