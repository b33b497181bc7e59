"""Uniform b-bit grids: a scale and a zero point per row of a group of weights.

A grid holds the values s·(q − z) for q = 0 … 2^b − 1.

* symmetric: z = 2^(b−1) and s = 2·max|w| / (2^b − 1), the full-range convention of GPTQModel and llm-compressor. No
  weight moves by more than half a step, and the extreme one by just that: its quotient w/s is exactly half a step
  between two levels, where the last bit of a division would decide. Quotients are therefore shrunk by a millionth,
  which sends extremes of either sign to the inner level, on every machine.
* asymmetric: the grid spans [min(w, 0), max(w, 0)], s = span / (2^b − 1), z = round(−min / s); zero is on the grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from landscape.errors import QuantizerError

_INWARD = 1 - 2**-20


@dataclass(frozen=True)
class Grid:
    """`scale` s and `zero` z of shape (…, 1), one row each; `levels` 2^b."""

    scale: Tensor
    zero: Tensor
    levels: int

    def round(self, weight: Tensor) -> Tensor:
        """The nearest values on the grid, (…, anything) → the same shape; dense, in the dtype of `weight`."""
        q = torch.clamp(torch.round(weight / self.scale * _INWARD) + self.zero, 0, self.levels - 1)
        return self.scale * (q - self.zero)

    def __getitem__(self, index: int) -> Grid:
        """The grid of group `index`, for a grid with a group axis first."""
        return Grid(self.scale[index], self.zero[index], self.levels)


def fit(weight: Tensor, bits: int, symmetric: bool) -> Grid:
    """The grid of each row of `weight` (…, group). A row of zeros gets scale 1, which leaves it zero."""
    levels = 2**bits
    if symmetric:
        scale = 2 * weight.abs().amax(dim=-1, keepdim=True) / (levels - 1)
        zero = torch.full_like(scale, levels // 2)
    else:
        low = weight.amin(dim=-1, keepdim=True).clamp(max=0)
        high = weight.amax(dim=-1, keepdim=True).clamp(min=0)
        scale = (high - low) / (levels - 1)
        zero = torch.round(-low / torch.where(scale == 0, 1.0, scale))
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return Grid(scale, zero, levels)


def grouped(weight: Tensor, group: int) -> Tensor:
    """(outputs, inputs) → (groups, outputs, group); a last group that is short is filled up with zeros.

    Zeros never change a grid: the symmetric one depends on max|w|, the asymmetric one spans zero anyway.
    """
    missing = -weight.shape[1] % group
    return torch.nn.functional.pad(weight, (0, missing)).unflatten(1, (-1, group)).transpose(0, 1)


def ungrouped(groups: Tensor, inputs: int) -> Tensor:
    """(groups, outputs, group) → (outputs, inputs), without the filling."""
    return groups.transpose(0, 1).flatten(1)[:, :inputs]


def group_sizes(group_size: int | None, inputs: dict[str, int]) -> dict[str, int]:
    """For each layer, by name, the inputs that share a scale; `inputs` says how many it has.

    A layer that the group size does not divide gets a shorter last group, as long as the size fits the model: it must
    divide the inputs of some layer and exceed those of none.

    Raises:
        QuantizerError: it does not fit.
    """
    if group_size is None:
        return dict(inputs)
    narrowest = min(inputs, key=lambda name: inputs[name])
    divided = any(n % group_size == 0 for n in inputs.values())
    if group_size > inputs[narrowest] or not divided:
        fitting = [g for g in (16, 32, 64, 128, 256) if inputs[narrowest] % g == 0]
        options = f"-g{', -g'.join(map(str, fitting))} or -channel" if fitting else "-channel"
        raise QuantizerError(
            f"group size {group_size}: does not divide the {inputs[narrowest]} inputs of {narrowest}; use {options}"
        )
    return dict.fromkeys(inputs, group_size)
