"""Round to nearest: every weight to the closest value of its group's grid."""

from __future__ import annotations

from torch import Tensor

from landscape.quantize.grid import Rounded, fit, in_groups, on_grid


def round_to_nearest(
    weight: Tensor, bits: int, group: int | None, levels: str = "symmetric", clip: bool = False
) -> Rounded:
    """Ŵ for a matrix (outputs, inputs); `group` consecutive inputs share a scale per output, None: all weights do.

    Ŵ_ij = o + s·(clamp(round((W_ij − o)/s) + z, 0, 2^b − 1) − z), with s, z and o from the extremes of the group (see
    `grid`), or with `clip` from the part of its extent that leaves the smallest ‖Ŵ − W‖².
    """
    return in_groups(weight, group, lambda part, _: on_grid(part, fit(part, bits, levels, clip)))
