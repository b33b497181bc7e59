"""Rounding one matrix without looking at inputs: uniform grids, 4-bit codes, LLM.int8's rows, HQQ's offsets."""

from __future__ import annotations

import math

import pytest
import torch

from landscape.errors import QuantizerError
from landscape.quantize import CODES, fit, half_quadratic, round_to_code, round_to_nearest, vector_wise
from landscape.quantize.grid import check_group_size, finite

LEVELS = ("symmetric", "asym", "minmax")


def matrix(seed: int, rows: int = 12, columns: int = 64, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_symmetric_closed_form():
    # b = 2: s = 2·3/3 = 2, values −4, −2, 0, 2; ±3 lie half-way and go inward, −0.9 → 0, 1.1 → 2
    rounded = round_to_nearest(torch.tensor([[-3.0, -0.9, 1.1, 3.0]]), 2, 4)
    assert rounded.weight.tolist() == [[-2.0, 0.0, 2.0, 2.0]]
    assert rounded.step.tolist() == [[2.0] * 4]


def test_asymmetric_closed_forms():
    weight = torch.tensor([[1.0, 2.0, 4.0, 7.0]])
    # zero on the grid: span 1 … 7 widened to 0 … 7, s = 7/3, z = 0; between the extremes: s = 2 from 1 on
    assert round_to_nearest(weight, 2, 4, "asym").weight.tolist() == [pytest.approx([0, 7 / 3, 14 / 3, 7], rel=1e-6)]
    weight = torch.tensor([[1.0, 2.5, 4.5, 7.0]])
    assert round_to_nearest(weight, 2, 4, "minmax").weight.tolist() == [pytest.approx([1, 3, 5, 7], rel=1e-6)]


@pytest.mark.parametrize("bits", range(2, 9))
def test_symmetric_rounding_is_odd_so_ties_do_not_hang_on_a_division(bits: int):
    weight = matrix(bits, 200, 32, torch.float32)
    nearest = round_to_nearest(weight, bits, 32).weight
    assert torch.equal(round_to_nearest(-weight, bits, 32).weight, -nearest)
    assert torch.allclose(round_to_nearest(weight * 3.7, bits, 32).weight / 3.7, nearest, rtol=1e-5)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("bits", range(2, 9))
def test_rounding_properties(bits: int, levels: str, clip: bool):
    weight = matrix(bits)
    rounded = round_to_nearest(weight, bits, 16, levels, clip)
    for row, was in zip(rounded.weight.reshape(-1, 16), weight.reshape(-1, 16), strict=True):
        grid = fit(was[None], bits, levels, clip)
        steps = (row - grid.offset) / grid.scale[0, 0]
        assert torch.allclose(steps, steps.round(), atol=1e-9)  # on the grid
        assert torch.allclose(grid.round(row), row, atol=1e-12)  # idempotent
        assert len(row.unique()) <= 2**bits
        if not clip:
            assert float((row - was).abs().max()) <= float(grid.scale) / 2 * (1 + 1e-3)  # within half a step
    finer = round_to_nearest(weight, bits + 1, 16, levels, clip).weight if bits < 8 else weight
    assert (finer - weight).norm() < (rounded.weight - weight).norm()


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_clipping_finds_the_best_of_its_grids_for_every_group(bits: int, levels: str):
    weight = matrix(7, 30, 96)
    plain = round_to_nearest(weight, bits, 32, levels).weight
    clipped = round_to_nearest(weight, bits, 32, levels, clip=True).weight
    errors = [(rounded - weight).reshape(-1, 32).square().sum(1) for rounded in (plain, clipped)]
    assert (errors[1] <= errors[0]).all() and errors[1].sum() < 0.95 * errors[0].sum()


def test_one_grid_for_a_matrix_is_one_group_of_all_its_weights():
    weight = matrix(3)
    whole = round_to_nearest(weight, 4, None, "asym")
    assert torch.equal(
        whole.weight, round_to_nearest(weight.reshape(1, -1), 4, weight.numel(), "asym").weight.view(12, 64)
    )
    assert len(whole.weight.unique()) <= 16 and len(whole.step.unique()) == 1


@pytest.mark.parametrize("levels", LEVELS)
def test_zero_rows_stay_zero_and_a_short_last_group_has_a_grid_of_its_own(levels: str):
    weight = torch.zeros(2, 10)
    weight[1] = torch.tensor([1.0] * 7 + [-0.5, 0.01, 0.02])
    rounded = round_to_nearest(weight, 3, 8, levels).weight
    assert not rounded[0].any()
    assert torch.equal(rounded[1:, 8:], round_to_nearest(weight[1:, 8:], 3, 2, levels).weight)
    assert rounded[1, 9] == pytest.approx(0.02, abs=0.003)


def test_group_sizes_that_do_not_fit_are_refused():
    inputs = {"q": 64, "down": 172}
    check_group_size(32, inputs)
    for size in (100, 128, 48):
        with pytest.raises(QuantizerError, match=f"group size {size}: does not divide the 64 inputs of q; use -g16"):
            check_group_size(size, inputs)


# --- 4-bit codes ------------------------------------------------------------------------------------------------------


def test_nf4_is_the_published_code_and_comes_from_quantiles_of_the_normal_distribution():
    """Appendix E of arXiv 2305.14314; its construction: means of neighbouring quantiles, eight up and seven down."""
    published = """-1.0 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635
        -0.18477343022823334 -0.09105003625154495 0.0 0.07958029955625534 0.16093020141124725 0.24611230194568634
        0.33791524171829224 0.44070982933044434 0.5626170039176941 0.7229568362236023 1.0"""
    assert CODES["nf4"] == tuple(float(value) for value in published.split())
    normal = torch.distributions.Normal(0.0, 1.0)
    offset = (1 - 1 / 32 + 1 - 1 / 30) / 2
    positive = normal.icdf(torch.linspace(offset, 0.5, 9, dtype=torch.float64)[:-1])
    negative = normal.icdf(torch.linspace(offset, 0.5, 8, dtype=torch.float64)[:-1])
    made = torch.cat([-negative, torch.zeros(1), positive.flip(0)]) / positive.max()
    made = torch.sort(made).values
    assert torch.allclose(made, torch.tensor(CODES["nf4"], dtype=torch.float64), atol=5e-4)


@pytest.mark.parametrize("code", ["nf4", "fp4"])
def test_codes(code: str):
    assert len(CODES[code]) == (16 if code == "nf4" else 15)  # FP4 has two zeros
    weight = matrix(1, 6, 50)  # 300 weights: four blocks of 64 and a short one, across the ends of rows
    rounded = round_to_code(weight, code)
    values = torch.tensor(CODES[code], dtype=torch.float64)
    for block, was in zip(rounded.weight.flatten().split(64), weight.flatten().split(64), strict=True):
        largest = was.abs().max()
        distance = (block[:, None] / largest - values).abs()
        assert float(distance.min(dim=1).values.max()) < 1e-12  # on the code
        best = (was[:, None] / largest - values).abs().min(dim=1).values
        assert torch.allclose((block - was).abs() / largest, best)  # the nearest value of it
    assert torch.equal(round_to_code(rounded.weight, code).weight, rounded.weight)  # idempotent
    assert ((rounded.weight - weight).abs() <= rounded.step / 2 + 1e-12).all()  # inside a gap of the code
    assert not round_to_code(torch.zeros(2, 64), code).weight.any()


def test_double_quantization_moves_the_scales_by_less_than_a_percent():
    weight = matrix(2, 128, 256, torch.float32)
    one, two = round_to_code(weight, "nf4").weight, round_to_code(weight, "nf4", double=True).weight
    ratio = (two / one)[one != 0].view(-1)
    assert 0 < float((ratio - 1).abs().max()) < 0.01
    blocks = (two / one).nan_to_num(1.0).view(-1, 64)
    assert all(len(set(block[block != 1].tolist())) <= 8 for block in blocks[:4])  # one factor a block, in float32
    assert (two - weight).norm() < 1.01 * (one - weight).norm()


# --- LLM.int8 and HQQ -------------------------------------------------------------------------------------------------


def test_vector_wise_closed_form():
    rounded = vector_wise(torch.tensor([[-127.0, 0.4, 0.6, 63.2], [0.0, 0.0, 0.0, 0.0], [2.54, 0.011, -1.0, 0.0]]))
    expected = torch.tensor([[-127, 0, 1, 63], [0, 0, 0, 0], [2.54, 0.02, -1.0, 0]])
    assert torch.allclose(rounded.weight, expected, atol=1e-6)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_half_quadratic_offsets_lower_the_robust_error_of_every_group(bits: int):
    weight = matrix(5, 40, 100) * 0.05
    weight[:, ::17] *= 8  # outliers
    plain, fitted = round_to_nearest(weight, bits, 32, "minmax").weight, half_quadratic(weight, bits, 32).weight
    start, end = ((rounded - weight).abs().pow(0.7)[:, :96].reshape(-1, 32).sum(1) for rounded in (plain, fitted))
    assert (end <= start * (1 + 1e-12)).all() and end.sum() < 0.98 * start.sum()
    for row, was in zip(fitted[:, :32], weight[:, :32], strict=True):
        steps = (row - row.min()) / (was.max() - was.min()) * (2**bits - 1)
        assert torch.allclose(steps, steps.round(), atol=1e-9) and len(row.unique()) <= 2**bits


def test_beyond_its_extremes_a_symmetric_grid_has_one_level_more_below():
    grid = fit(torch.tensor([[-1.0, 1.0]]), 2)  # s = 2/3, levels −2s … s
    assert grid.round(torch.tensor([[-9.0, -1.0, 0.2, 1.0, 9.0]])).tolist() == [
        pytest.approx([-4 / 3, -2 / 3, 0, 2 / 3, 2 / 3])
    ]


@pytest.mark.parametrize(("entry", "expected"), [(1.0, True), (math.inf, False), (-math.inf, False), (math.nan, False)])
def test_what_is_finite(entry: float, expected: bool):
    assert finite(torch.tensor([[0.0, entry], [3.0, -2.0]])) is expected


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_hqq_by_its_formulas_one_group_at_a_time(bits: int):
    """In plain numbers: shrink the error, move the offset to the mean of what is left, 20 rounds, keep the best."""
    generator = torch.Generator().manual_seed(bits)
    rows = (torch.randn(6, 32, generator=generator) ** 3).double()
    rounded = half_quadratic(rows, bits, 32).weight
    improved = 0
    for row, found in zip(rows.tolist(), rounded.tolist(), strict=True):
        low, scale = min(row), (max(row) - min(row)) / (2**bits - 1)

        def codes(offset: float, row: list[float] = row, scale: float = scale) -> list[int]:
            return [min(max(round((w - offset) / scale * (1 - 2**-20)), 0), 2**bits - 1) for w in row]

        def cost(offset: float, row: list[float] = row, scale: float = scale) -> float:
            return sum(abs(w - offset - scale * q) ** 0.7 for w, q in zip(row, codes(offset), strict=True))

        best, offset, beta = low, low, 10.0
        for _ in range(20):
            left = []
            for w, q in zip(row, codes(offset), strict=True):
                error = w - offset - scale * q
                size = max(abs(error) - max(abs(error), 1e-12) ** -0.3 / beta, 0.0)
                left.append(w - math.copysign(size, error) - scale * q)
            offset = sum(left) / len(left)
            best = offset if cost(offset) < cost(best) else best
            beta *= 1.01
        improved += best != low
        assert found == pytest.approx([best + scale * q for q in codes(best)], abs=1e-9)
    assert improved >= 3
