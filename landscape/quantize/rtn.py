"""Round to nearest: every weight to the closest value of its group's grid."""

from __future__ import annotations

from torch import Tensor

from landscape.quantize.grid import fit, grouped, ungrouped


def round_to_nearest(weight: Tensor, bits: int, group: int, symmetric: bool) -> Tensor:
    """Ŵ for a matrix (outputs, inputs); groups of `group` consecutive inputs share a scale per output.

    Ŵ_ij = s·(clamp(round(W_ij / s) + z, 0, 2^b − 1) − z), with s and z from the extremes of the group (see `grid`).
    """
    groups = grouped(weight, group)
    return ungrouped(fit(groups, bits, symmetric).round(groups), weight.shape[1])
