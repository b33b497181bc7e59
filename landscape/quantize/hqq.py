"""Half-quadratic quantization: the offset of each group's grid chosen to make a robust error small, without any text.

Badri and Shaji 2023, https://mobiusml.github.io/hqq_blog: minimize ‖W − Ŵ‖_p^p with p < 1, which lets a few weights go
far astray so that most are close. A second variable E stands for the error, and the two are solved for in turn:

    E ← shrink(W − Ŵ),  shrink(x) = sign(x)·max(|x| − |x|^(p−1)/β, 0)
    z ← mean over the group of  q − (W − E)/s

with β growing by 1 % in each round; the scale s stays that of the group's extremes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from landscape.quantize.grid import Grid, Rounded, fit, in_groups, on_grid

_P, _BETA, _GROWTH, _ROUNDS = 0.7, 10.0, 1.01, 20


def half_quadratic(weight: Tensor, bits: int, group: int | None) -> Rounded:
    """Ŵ for a matrix (outputs, inputs): of all rounds, for each group the offset with the smallest Σ|W − Ŵ|^0.7."""
    return in_groups(weight, group, lambda part, _: on_grid(part, _fitted(part, bits)))


def _fitted(weight: Tensor, bits: int) -> Grid:
    grid = fit(weight, bits, "minmax")
    best, kept = _cost(weight, grid), grid.offset
    beta = _BETA
    for _ in range(_ROUNDS):
        codes = grid.codes(weight)
        error = weight - grid.round(weight)
        size = error.abs()
        error = error.sign() * (size - size.clamp(min=1e-12).pow(_P - 1) / beta).clamp(min=0)
        offset = (weight - error - grid.scale * codes).mean(dim=-1, keepdim=True)
        grid = Grid(grid.scale, grid.zero, grid.levels, offset)
        cost = _cost(weight, grid)
        better = cost < best
        best, kept = torch.where(better, cost, best), torch.where(better, offset, kept)
        beta *= _GROWTH
    return Grid(grid.scale, grid.zero, grid.levels, kept)


def _cost(weight: Tensor, grid: Grid) -> Tensor:
    return (weight - grid.round(weight)).abs().pow(_P).sum(dim=-1, keepdim=True)
