"""LLM.int8(): eight bits with a scale per output, and the inputs with large activations left as they are.

Dettmers et al. 2022, arXiv 2208.07339. The method rounds activations too, at run time, and finds the outlying inputs in
every batch anew; Θ̂ holds the weight half, with the inputs that reach the threshold on the calibration text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from landscape.quantize.grid import Grid, Rounded, on_grid


def vector_wise(weight: Tensor) -> Rounded:
    """Ŵ for a matrix (outputs, inputs): W_ij ↦ c·round(W_ij / c), c = max_j |W_ij| / 127."""
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return on_grid(weight, Grid(scale, torch.full_like(scale, 127), 255))


def outlying(max_abs: Tensor, threshold: float = 6.0) -> Tensor:
    """Which inputs reach the threshold, a mask (inputs,)."""
    return max_abs >= threshold
