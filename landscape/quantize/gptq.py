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
_SMALL = 512  # inputs up to which a triangle is inverted at once
_BEYOND = 0.5 * (1 + 1e-3)  # steps between a weight and its level from which the weight was outside of its grid


@dataclass(frozen=True)
class Factor:
    """U with UᵀU = H⁻¹, H = XᵀX + λ mean(diag) I with the inputs in `order`; all that GPTQ needs of the inputs.

    Attributes:
        order: the inputs as they are rounded.
        upper: U, float64; None if no λ helped.
        damping, retries: the λ used last, and the tries before it.
    """

    order: Tensor
    upper: Tensor | None
    damping: float
    retries: int

    @classmethod
    def of(cls, gram: Tensor, act_order: bool = True, damping: float = 0.05) -> Factor:
        """Factorize XᵀX, with more damping as long as that fails; inputs that are never active take no part.

        With J the reversal of the inputs and J H J = L Lᵀ, U = J L⁻¹ J: one factorization, and H⁻¹ is never formed. In
        float64, with two matrices beside XᵀX at any time.
        """
        diagonal = torch.where(gram.diagonal() == 0, 1.0, gram.diagonal())
        order = torch.arange(len(gram), device=gram.device)
        if act_order:
            order = torch.argsort(diagonal, descending=True, stable=True)
        backwards, mean = order.flip(0), diagonal.mean(dtype=torch.float64)
        for retry in range(DAMPING_RETRIES + 1):
            used = damping + retry * DAMPING_STEP
            damped = gram[backwards[:, None], backwards].double()
            damped.diagonal().copy_(diagonal[backwards] + used * mean)
            lower, failed = torch.linalg.cholesky_ex(damped)
            del damped
            if not failed and finite(_invert(lower)):
                return cls(order, lower.flip(0, 1), used, retry)
        return cls(order, None, used, DAMPING_RETRIES)


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
    """Ŵ for a matrix (outputs, inputs) and `gram` XᵀX (inputs, inputs); see `Factor`, which several matrices can share.

    `act_order` takes the inputs in order of falling (XᵀX)_jj. Groups are then formed in that order, their grids fitted
    to the weights as updated so far; `static_groups` fits them to the untouched matrix in its own order instead. One
    grid for the whole matrix (`group` None) is always fitted before. An input that is never active is rounded like any
    other, but takes no part in the updates.

    A factorization that fails is tried again with more damping; when all tries fail, Ŵ is round-to-nearest and
    `fallback` is set.
    """
    return gptq_with(weight, Factor.of(gram, act_order, damping), bits, group, levels, clip, static_groups)


def gptq_with(
    weight: Tensor, factor: Factor, bits: int, group: int | None, levels: str, clip: bool, static_groups: bool
) -> GptqResult:
    """`gptq`, for the XᵀX that `factor` was made of."""
    order, upper, n = factor.order.to(weight.device), factor.upper, weight.shape[1]
    if upper is None:
        nearest = round_to_nearest(weight, bits, group, levels, clip)
        beyond = (nearest.weight - weight).abs() > _BEYOND * nearest.step
        return GptqResult(nearest, float(beyond.double().mean()), factor.damping, factor.retries, fallback=True)
    upper = upper.to(weight.dtype)
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
        inside = upper[start:end, start:end]
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
        moved = errors * upper.diagonal()[start:end, None]
        beyond += (moved.abs() > _BEYOND * step[start:end]).sum()
        rest[end:] -= upper[start:end, end:].T @ errors
    back = torch.argsort(order)
    result = Rounded(rounded[back].T.contiguous(), step[back].T.contiguous())
    return GptqResult(result, int(beyond) / weight.numel(), factor.damping, factor.retries, fallback=False)


def _transposed(grid: Grid) -> Grid:
    """The grid of each output as a vector over outputs."""
    offset = grid.offset.squeeze(1) if isinstance(grid.offset, Tensor) else grid.offset
    return Grid(grid.scale.squeeze(1), grid.zero.squeeze(1), grid.levels, offset)


def _grids_before(weight: Tensor, bits: int, group: int | None, levels: str, clip: bool) -> list[Grid]:
    if group is None:
        return [_transposed(fit(weight.reshape(1, -1), bits, levels, clip))]
    return [_transposed(fit(part, bits, levels, clip)) for part in weight.split(group, dim=1)]


def _invert(lower: Tensor) -> Tensor:
    """L⁻¹ in the place of L, by halves: 2n³/3 operations, in matrix products where those of a solver take n³.

    [[A, 0], [B, C]]⁻¹ = [[A⁻¹, 0], [−C⁻¹ B A⁻¹, C⁻¹]].
    """
    n = len(lower)
    if n <= _SMALL:
        one = torch.eye(n, dtype=lower.dtype, device=lower.device)
        return lower.copy_(torch.linalg.solve_triangular(lower, one, upper=False))
    half = n // 2
    first, last = _invert(lower[:half, :half]), _invert(lower[half:, half:])
    lower[half:, :half] = -(last @ lower[half:, :half]) @ first
    return lower
