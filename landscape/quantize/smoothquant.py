"""SmoothQuant: move the range of activations over to the weights, so that both can be rounded.

Xiao et al. 2022, arXiv 2211.10438, equation 4: X diag(s)⁻¹ and W diag(s) with
s_j = max|x_j|^α / (max_i |W_ij|)^(1 − α). The activations are rounded at run time; Θ̂ holds the weight half,
Q(W diag(s)) diag(s)⁻¹.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def migration_scales(matrices: Sequence[Tensor], max_abs: Tensor, migration: float = 0.5) -> Tensor:
    """The scales s (inputs,) of layers that one X feeds; `max_abs` is max |x_j|, `migration` α."""
    weights = torch.stack([matrix.abs().amax(dim=0) for matrix in matrices]).amax(dim=0).clamp(min=1e-5)
    return (max_abs.to(weights).clamp(min=1e-5).pow(migration) / weights.pow(1 - migration)).clamp(min=1e-5)
