"""GPTQ on one matrix: round column by column, let the columns not yet rounded make up for the error.

Frantar et al. 2022, arXiv 2210.17323. With H = XᵀX + λI and U the upper Cholesky factor of H⁻¹ = UᵀU, column j is
rounded to q_j and the columns after it take  W_:,k ← W_:,k − (w_j − q_j)·U_jk / U_jj,  the exact minimizer of
‖X(W − Ŵ)ᵀ‖² over the columns that are still free.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from landscape.quantize.grid import Grid, Rounded, finite, fit
from landscape.quantize.rtn import round_to_nearest

DAMPING_STEP = 0.01  # added to the damping after each Cholesky factorization that fails
DAMPING_RETRIES = 10
_BLOCK = 128  # columns whose updates are applied to the rest of the matrix in one product
_BEYOND = 0.5 * (1 + 1e-3)  # steps between a weight and its level from which the weight was outside of its grid


@dataclass(frozen=True)
class GptqResult:
    """Ŵ with its grid, and what it took.

    Attributes:
        rounded: Ŵ and its steps.
        saturation: share of the weights that lay outside their grid when their turn came.
        damping, retries: the damping that worked, and the tries before it.
        fallback: no damping did; Ŵ is round-to-nearest.
    """

    rounded: Rounded
    saturation: float
    damping: float
    retries: int
    fallback: bool

    @property
    def weight(self) -> Tensor:
        """Ŵ."""
        return self.rounded.weight


def gptq(
    weight: Tensor,
    gram: Tensor,
    bits: int,
    group: int | None,
    levels: str = "symmetric",
    clip: bool = False,
    act_order: bool = True,
    static_groups: bool = False,
    damping: float = 0.05,
) -> GptqResult:
    """Ŵ for a matrix (outputs, inputs) and `gram` XᵀX (inputs, inputs), factorized in float64.

    `act_order` takes the inputs in order of falling (XᵀX)_jj. Groups are then formed in that order, their grids fitted
    to the weights as updated so far; `static_groups` fits them to the untouched matrix in its own order instead. One
    grid for the whole matrix (`group` None) is always fitted before. An input that is never active is rounded like any
    other, but takes no part in the updates.

    A factorization that fails is tried again with more damping; when all tries fail, Ŵ is round-to-nearest and
    `fallback` is set.
    """
    n = len(gram)
    seen = torch.where(gram.diagonal() == 0, 1.0, gram.diagonal())
    order = torch.argsort(seen, descending=True, stable=True) if act_order else torch.arange(n, device=gram.device)
    factor, used, retries = _inverse_factor(gram, seen, order, damping, weight.dtype)
    order = order.to(weight.device)
    if factor is None:
        nearest = round_to_nearest(weight, bits, group, levels, clip)
        beyond = (nearest.weight - weight).abs() > _BEYOND * nearest.step
        return GptqResult(nearest, float(beyond.double().mean()), used, retries, fallback=True)

    before = _grids_before(weight, bits, group, levels, clip) if static_groups or group is None else None
    size = group or n
    rest = weight.T[order].contiguous()  # (inputs, outputs): what a column of the matrix is lies together
    rounded, step = torch.empty_like(rest), torch.empty_like(rest)
    # Blocks end where groups end, so that a grid is always fitted to fully updated columns.
    block = size if _BLOCK < size < n else max(1, _BLOCK // size) * size if size < n else _BLOCK
    grid: Grid | None = None
    beyond = torch.zeros((), dtype=torch.int64, device=weight.device)
    places = order.tolist()
    for start in range(0, n, block):
        end = min(start + block, n)
        errors = torch.empty_like(rest[start:end])
        inside = factor[start:end, start:end]
        diagonal = inside.diagonal().tolist()
        for j in range(start, end):
            if before is not None:
                grid = before[places[j] // size]
            elif j % size == 0:
                grid = _transposed(fit(rest[j : j + size].T, bits, levels, clip))
            assert grid is not None
            i = j - start
            rounded[j], step[j] = grid.round(rest[j]), grid.scale
            torch.sub(rest[j], rounded[j], out=errors[i])
            errors[i] /= diagonal[i]
            rest[j + 1 : end].addr_(inside[i, i + 1 :], errors[i], alpha=-1)
        moved = errors * factor.diagonal()[start:end, None]
        beyond += (moved.abs() > _BEYOND * step[start:end]).sum()
        rest[end:] -= factor[start:end, end:].T @ errors
    back = torch.argsort(order)
    result = Rounded(rounded[back].T.contiguous(), step[back].T.contiguous())
    return GptqResult(result, int(beyond) / weight.numel(), used, retries, fallback=False)


def _transposed(grid: Grid) -> Grid:
    """The grid of each output as a vector over outputs."""
    offset = grid.offset.squeeze(1) if isinstance(grid.offset, Tensor) else grid.offset
    return Grid(grid.scale.squeeze(1), grid.zero.squeeze(1), grid.levels, offset)


def _grids_before(weight: Tensor, bits: int, group: int | None, levels: str, clip: bool) -> list[Grid]:
    if group is None:
        return [_transposed(fit(weight.reshape(1, -1), bits, levels, clip))]
    return [_transposed(fit(part, bits, levels, clip)) for part in weight.split(group, dim=1)]


def _inverse_factor(
    gram: Tensor, diagonal: Tensor, order: Tensor, damping: float, dtype: torch.dtype
) -> tuple[Tensor | None, float, int]:
    """(U with UᵀU = H⁻¹ in `dtype`, or None; the λ used last; retries). H = XᵀX + λ mean(diag) I, inputs in `order`.

    With J the reversal of the inputs and J H J = L Lᵀ, U = J L⁻¹ J: one factorization, and H⁻¹ is never formed. In
    float64, with two matrices beside XᵀX at any time.
    """
    backwards, mean = order.flip(0), diagonal.mean(dtype=torch.float64)
    for retry in range(DAMPING_RETRIES + 1):
        used = damping + retry * DAMPING_STEP
        damped = gram[backwards[:, None], backwards].double()
        damped.diagonal().copy_(diagonal[backwards] + used * mean)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            inverse = damped.zero_().fill_diagonal_(1)
            torch.linalg.solve_triangular(lower, inverse, upper=False, out=inverse)
            del lower
            if finite(inverse):
                return inverse.to(dtype).flip(0, 1), used, retry
    return None, used, DAMPING_RETRIES
