"""AWQ: scale the inputs of a layer by how active they are before rounding, and take that back after.

Lin et al. 2023, arXiv 2306.00978. Ŵ = Q(W diag(s)) diag(s)⁻¹ rounds the columns of busy inputs more finely; s_j is
(mean |x_j|)^α with the α out of twenty in [0, 1) that leaves the smallest error of what the layers fed by X give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from landscape.quantize.grid import Rounded, fit, in_groups, on_grid

_TRIES = 20


def activation_scales(
    matrices: Sequence[Tensor], mean_abs: Tensor, gram: Tensor, rounds: Sequence[Callable[[Tensor], Tensor]]
) -> Tensor:
    """The scales s (inputs,) shared by `matrices` (outputs, inputs), which one X feeds.

    `mean_abs` is mean |x_j|, `gram` XᵀX, and `rounds[i]` rounds matrix i, scaled. The error is
    Σ tr(δ XᵀX δᵀ) over the matrices; α = 0, all scales one, is among those tried, so that it is never larger than that
    of rounding alone.
    """
    gram = gram.to(mean_abs.dtype)
    best, chosen = float("inf"), torch.ones_like(mean_abs)
    for i in range(_TRIES):
        scales = mean_abs.clamp(min=1e-12).pow(i / _TRIES).clamp(min=1e-4)
        scales = scales / (scales.max() * scales.min()).sqrt()
        error = 0.0
        for matrix, rounded in zip(matrices, rounds, strict=True):
            step = (rounded(matrix * scales) / scales).sub_(matrix)
            error += float((step @ gram).mul_(step).sum(dtype=torch.float64))
        if error < best:
            best, chosen = error, scales
    return chosen


def round_for_outputs(weight: Tensor, gram: Tensor, bits: int, group: int | None, levels: str, clip: bool) -> Rounded:
    """Round to nearest; `clip` shrinks each grid to where the error of the *outputs* is smallest, δ_g (XᵀX)_gg δ_gᵀ.

    Only with a scale per group or channel: of one grid for the whole matrix, the error of the weights decides.
    """
    gram = gram.to(weight.dtype)

    def solve(part: Tensor, columns: slice) -> Rounded:
        size = part.shape[-1]
        n = len(gram[columns]) // size
        if group is None:
            return on_grid(part, fit(part, bits, levels, clip))
        blocks = gram[columns, columns].unflatten(0, (n, size)).unflatten(2, (n, size))
        own = blocks[torch.arange(n), :, torch.arange(n), :]  # (groups, size, size)

        def cost(error: Tensor) -> Tensor:
            return (torch.einsum("ogi,gij->ogj", error, own) * error).sum(dim=-1, keepdim=True)

        return on_grid(part, fit(part, bits, levels, clip, cost))

    return in_groups(weight, group, solve)
