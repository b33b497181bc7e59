"""Uniform b-bit grids: a scale and an origin for every row of a group of weights.

A grid holds the values o + s·(q − z) for q = 0 … 2^b − 1.

* `symmetric`: z = 2^(b−1) and s = 2·max|w| / (2^b − 1), the full-range convention of GPTQModel and llm-compressor. No
  weight moves by more than half a step, and the extreme one by just that: its quotient w/s is exactly half a step
  between two levels, where the last bit of a division would decide. Quotients are therefore shrunk by a millionth,
  which sends extremes of either sign to the inner level, on every machine.
* `asym`: the grid spans [min(w, 0), max(w, 0)], s = span / (2^b − 1), z = round(−min / s); zero is on the grid.
* `minmax`: the grid spans [min(w), max(w)] and begins at o = min(w), a real number: both extremes are on the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from landscape.errors import QuantizerError

_INWARD = 1 - 2**-20
_AT_ONCE = 1 << 18  # entries of a matrix looked at together
_SHRINKS = torch.linspace(1.0, 0.2, 81).tolist()  # of a grid, tried in search of the smallest error

Cost = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Rounded:
    """Ŵ, and at each weight the distance between neighbouring levels; the same shape."""

    weight: Tensor
    step: Tensor


@dataclass(frozen=True)
class Grid:
    """`scale` s, `zero` z and `offset` o of shape (…, 1), one row each; `levels` 2^b."""

    scale: Tensor
    zero: Tensor
    levels: int
    offset: Tensor | float = 0.0

    def round(self, weight: Tensor) -> Tensor:
        """The nearest values on the grid, (…, anything) → the same shape; dense, in the dtype of `weight`."""
        return self.offset + self.scale * (self.codes(weight) - self.zero)

    def codes(self, weight: Tensor) -> Tensor:
        """The q of those values."""
        steps = torch.round((weight - self.offset) / self.scale * _INWARD)
        return torch.clamp(steps + self.zero, 0, self.levels - 1)


def squares(error: Tensor) -> Tensor:
    """Σ e² over the last axis, which stays as one of length 1."""
    return error.square().sum(dim=-1, keepdim=True)


def fit(weight: Tensor, bits: int, levels: str = "symmetric", clip: bool = False, cost: Cost = squares) -> Grid:
    """The grid of each row of `weight` (…, group). A row of one value gets scale 1, which leaves it as it is.

    `clip` shrinks each row's grid to where `cost`(Ŵ − W) (…, 1) is smallest, among 81 factors from 1 to 0.2.
    """
    grid = _spanning(weight, bits, levels, 1.0)
    if not clip:
        return grid
    best, scale, zero, offset = cost(grid.round(weight) - weight), grid.scale, grid.zero, grid.offset
    for shrink in _SHRINKS[1:]:
        tried = _spanning(weight, bits, levels, shrink)
        error = cost(tried.round(weight) - weight)
        better = error < best
        best, scale = torch.where(better, error, best), torch.where(better, tried.scale, scale)
        zero, offset = torch.where(better, tried.zero, zero), _where(better, tried.offset, offset)
    return Grid(scale, zero, grid.levels, offset)


def _where(condition: Tensor, one: Tensor | float, other: Tensor | float) -> Tensor | float:
    return torch.where(condition, one, other) if isinstance(one, Tensor) else one


def _spanning(weight: Tensor, bits: int, levels: str, shrink: float) -> Grid:
    """The grid over `shrink` times the extent of each row, about zero or, for `minmax`, about the middle."""
    n = 2**bits
    if levels == "symmetric":
        scale = _not_zero(2 * shrink * weight.abs().amax(dim=-1, keepdim=True) / (n - 1))
        return Grid(scale, torch.full_like(scale, n // 2), n)
    low, high = weight.amin(dim=-1, keepdim=True), weight.amax(dim=-1, keepdim=True)
    if levels == "asym":
        low, high = shrink * low.clamp(max=0), shrink * high.clamp(min=0)
        scale = _not_zero((high - low) / (n - 1))
        return Grid(scale, torch.round(-low / scale), n)
    scale = _not_zero(shrink * (high - low) / (n - 1))
    offset = low + (1 - shrink) * (high - low) / 2
    return Grid(scale, torch.zeros_like(scale), n, offset)


def _not_zero(scale: Tensor) -> Tensor:
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def in_groups(weight: Tensor, group: int | None, solve: Callable[[Tensor, slice], Rounded]) -> Rounded:
    """`solve` over the groups of a matrix (outputs, inputs), each of `group` consecutive inputs of one output.

    It is handed (outputs, groups, group) and the columns these are: for some outputs after the other, all whole groups,
    then the last one if it is short. A `group` of None is the whole matrix, handed over as (1, 1, outputs · inputs).
    """
    if group is None:
        whole = solve(weight.reshape(1, 1, -1), slice(None))
        return Rounded(whole.weight.reshape(weight.shape), whole.step.reshape(weight.shape))
    inputs = weight.shape[1]
    even = inputs - inputs % group
    result = Rounded(torch.empty_like(weight), torch.empty_like(weight))
    for some, into, steps in by_rows(weight, result.weight, result.step):
        for start, end, size in ((0, even, group), (even, inputs, inputs - even)):
            if start < end:
                done = solve(some[:, start:end].unflatten(1, (-1, size)), slice(start, end))
                into[:, start:end] = done.weight.flatten(1)
                steps[:, start:end] = done.step.flatten(1)
    return result


def by_rows(*matrices: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Views of some rows of each matrix after the other, few enough to stay in a processor's cache."""
    rows = max(1, _AT_ONCE // matrices[0].shape[1]) if matrices[0].device.type == "cpu" else len(matrices[0])
    yield from zip(*(matrix.split(max(1, rows)) for matrix in matrices), strict=True)


def finite(tensor: Tensor) -> bool:
    """Whether every entry is; without a copy of the tensor, as `isfinite` makes."""
    return all(bool(extreme.isfinite()) for extreme in tensor.aminmax())


def on_grid(weight: Tensor, grid: Grid) -> Rounded:
    """The nearest values on a grid."""
    return Rounded(grid.round(weight), grid.scale.expand_as(weight))


def check_group_size(group_size: int, inputs: dict[str, int]) -> None:
    """Raise unless groups of this size fit the layers `inputs` names, with their numbers of inputs.

    A layer that the group size does not divide gets a shorter last group, as long as the size fits the model: it must
    divide the inputs of some layer and exceed those of none.

    Raises:
        QuantizerError: it does not fit.
    """
    narrowest = min(inputs, key=lambda name: inputs[name])
    if group_size > inputs[narrowest] or not any(n % group_size == 0 for n in inputs.values()):
        fitting = [g for g in (16, 32, 64, 128, 256) if inputs[narrowest] % g == 0]
        options = f"-g{', -g'.join(map(str, fitting))} or -channel" if fitting else "-channel"
        raise QuantizerError(
            f"group size {group_size}: does not divide the {inputs[narrowest]} inputs of {narrowest}; use {options}"
        )


def bits_of_scales(levels: str, bits: int) -> int:
    """What one group takes beside its weights: a scale of 16 bits, and of `asym` a level, of `minmax` 16 bits more."""
    return 16 + {"symmetric": 0, "asym": bits, "minmax": 16}[levels]
