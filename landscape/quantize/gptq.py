"""GPTQ on one matrix: round column by column, let the columns not yet rounded make up for the error.

Frantar et al. 2022, arXiv 2210.17323. With H = XᵀX + λI and U the upper Cholesky factor of H⁻¹ = UᵀU, column j is
rounded to q_j and the columns after it take  W_:,k ← W_:,k − (w_j − q_j)·U_jk / U_jj,  the exact minimizer of
‖X(W − Ŵ)ᵀ‖² over the columns that are still free.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from landscape.quantize.grid import Grid, fit, grouped
from landscape.quantize.rtn import round_to_nearest

DAMPING_STEP = 0.01  # added to the damping after each Cholesky factorization that fails
DAMPING_RETRIES = 10
_BLOCK = 128  # columns whose updates are applied to the rest of the matrix in one product


@dataclass(frozen=True)
class GptqResult:
    """Ŵ, and what it took: the damping that worked, retries before it, inputs never active, fallback to rounding."""

    weight: Tensor
    damping: float
    retries: int
    dead_inputs: int
    fallback: bool


def gptq(
    weight: Tensor,
    gram: Tensor,
    bits: int,
    group: int,
    symmetric: bool = True,
    act_order: bool = True,
    static_groups: bool = False,
    damping: float = 0.05,
) -> GptqResult:
    """Ŵ for a matrix (outputs, inputs) and `gram` XᵀX (inputs, inputs), computed in float64 or the dtype of `weight`.

    `act_order` takes the inputs in order of falling (XᵀX)_jj. Groups are then formed in that order, their grids fitted
    to the weights as updated so far; `static_groups` fits them to the untouched matrix in its own order instead. An
    input that is never active is rounded like any other, but takes no part in the updates.

    A factorization that fails is tried again with more damping; when all tries fail, Ŵ is round-to-nearest and
    `fallback` is set.
    """
    dead = gram.diagonal() == 0
    gram = gram.clone()
    gram.diagonal()[dead] = 1.0
    order = torch.argsort(gram.diagonal(), descending=True, stable=True) if act_order else torch.arange(len(gram))
    order = order.to(weight.device)
    factor, used, retries = _inverse_factor(gram[order][:, order], damping)
    n_dead = int(dead.sum())
    if factor is None:
        rounded = round_to_nearest(weight, bits, group, symmetric)
        return GptqResult(rounded, used, retries, n_dead, fallback=True)

    factor = factor.to(weight.dtype)
    static = fit(grouped(weight, group), bits, symmetric) if static_groups else None
    rest = weight[:, order].clone()
    rounded = torch.empty_like(rest)
    inputs = rest.shape[1]
    # Blocks end where groups end, so that a grid is always fitted to fully updated columns.
    block = group if _BLOCK < group < inputs else max(1, _BLOCK // group) * group if group < inputs else _BLOCK
    grid: Grid | None = None
    for start in range(0, inputs, block):
        end = min(start + block, inputs)
        errors = torch.empty_like(rest[:, start:end])
        for j in range(start, end):
            if static is not None:
                grid = static[int(order[j]) // group]
            elif j % group == 0:
                grid = fit(rest[:, j : j + group], bits, symmetric)
            assert grid is not None
            column = rest[:, j : j + 1]
            rounded[:, j : j + 1] = grid.round(column)
            error = (column - rounded[:, j : j + 1]) / factor[j, j]
            errors[:, j - start : j - start + 1] = error
            rest[:, j + 1 : end] -= error * factor[j, j + 1 : end]
        rest[:, end:] -= errors @ factor[start:end, end:]
    restored = torch.empty_like(rounded)
    restored[:, order] = rounded
    return GptqResult(restored, used, retries, n_dead, fallback=False)


def _inverse_factor(gram: Tensor, damping: float) -> tuple[Tensor | None, float, int]:
    """(U with UᵀU = (XᵀX + λ mean(diag) I)⁻¹ or None, the λ used last, retries), in float64."""
    gram = gram.double()
    mean = gram.diagonal().mean()
    for retry in range(DAMPING_RETRIES + 1):
        used = damping + retry * DAMPING_STEP
        damped = gram.clone()
        damped.diagonal().add_(used * mean)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed and bool(upper.isfinite().all()):
                return upper, used, retry
    return None, used, DAMPING_RETRIES
