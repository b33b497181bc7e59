"""What quantization did, layer by layer: the figures that later explain a quantization error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from landscape.quantize.grid import Rounded, by_rows

_SMALL = 512  # inputs up to which XᵀX is taken whole
_BEYOND = 0.5 * (1 + 1e-3)  # steps; the extremes of a symmetric grid lie half a step outside


@dataclass(frozen=True)
class LayerReport:
    """One layer, δ = Ŵ − W.

    Attributes:
        name: the layer, as in the model.
        quantizer: what rounded it, or `float`.
        inputs, parameters: its inputs, and its weights.
        bits: of one weight's level; 0 for a layer that is not quantized.
        group_size: weights that share a scale.
        bits_per_weight: what storing it takes, scales and offsets and what was kept included.
        step_norm: ‖δ‖.
        grid_step: root mean square distance between neighbouring levels, over the weights; NaN where it is not known.
        output_shift: ‖Xδᵀ‖² / ‖X‖², which is ‖δ‖²/inputs for errors that know nothing of X; NaN without inputs.
        weight_error: ‖δ‖ / ‖W‖.
        output_error: ‖Xδᵀ‖² / ‖XWᵀ‖² on the calibration inputs; NaN for a method that looks at none.
        rtn_output_error: the same for round-to-nearest with the same bits, groups and levels.
        excess_kurtosis: of the entries of W: E(w − μ)⁴ / σ⁴ − 3.
        max_over_median: max|w| / median|w|.
        saturation: share of the weights that lay more than half a step outside their grid.
        misalignment: root mean square distance of a weight from the lattice of its grid, in steps; 1/√12 = 0.289 when
            weights lie anywhere between levels, 0 when they lie on them already.
        kept_inputs: inputs whose weights stay as they are.
        dead_inputs: inputs that were zero on every calibration token.
        redundant_inputs: inputs that are combinations of others on the calibration tokens, so that XᵀX is singular.
        damping, retries: what GPTQ's factorization took in the end.
        fallback: rounded to nearest because no damping helped.
    """

    name: str
    quantizer: str
    inputs: int
    parameters: int
    bits: int
    group_size: int
    bits_per_weight: float
    step_norm: float
    weight_error: float
    grid_step: float = math.nan
    output_shift: float = math.nan
    output_error: float = math.nan
    rtn_output_error: float = math.nan
    excess_kurtosis: float = math.nan
    max_over_median: float = math.nan
    saturation: float = math.nan
    misalignment: float = math.nan
    kept_inputs: int = 0
    dead_inputs: int = 0
    redundant_inputs: int = 0
    damping: float = math.nan
    retries: int = 0
    fallback: bool = False


@dataclass(frozen=True)
class Report:
    """What was quantized: a row per layer, and how many of the model's parameters they hold.

    Attributes:
        weight_half: the method would quantize activations too, at run time.
        not_linear: parameters in matrices of the blocks that no linear layer holds, such as fused experts.
    """

    quantizer: str
    layers: tuple[LayerReport, ...]
    quantized_parameters: int
    total_parameters: int
    calibration_tokens: int
    weight_half: bool = False
    not_linear: int = 0

    @property
    def bits(self) -> float:
        """What the whole model takes, with 16 bits for every parameter that is not quantized."""
        rounded = sum(layer.bits_per_weight * layer.parameters for layer in self.layers)
        return rounded + 16 * (self.total_parameters - self.quantized_parameters)

    @property
    def bits_per_weight(self) -> float:
        """What a quantized weight takes on average, scales included."""
        return sum(layer.bits_per_weight * layer.parameters for layer in self.layers) / self.quantized_parameters

    @property
    def retries(self) -> int:
        """Factorizations that had to be tried again."""
        return sum(layer.retries for layer in self.layers)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The layers that were rounded to nearest instead."""
        return tuple(layer.name for layer in self.layers if layer.fallback)

    @property
    def notes(self) -> tuple[str, ...]:
        """What nobody should overlook, a sentence each."""
        notes = []
        if self.weight_half:
            notes.append("the weight half alone; at run time the method rounds activations too")
        if self.not_linear:
            share = self.not_linear / self.total_parameters
            notes.append(f"{share:.0%} of the parameters lie in blocks but in no linear layer, and stay as they are")
        if self.retries:
            notes.append(f"{self.retries} factorizations needed more damping")
        if self.fallbacks:
            some = ", ".join(self.fallbacks[:4])
            notes.append(f"GPTQ failed on {len(self.fallbacks)} layers, which are rounded to nearest: {some}")
        if dead := [layer.name for layer in self.layers if layer.dead_inputs]:
            notes.append(f"{len(dead)} layers have inputs that are zero on all calibration text: {', '.join(dead[:4])}")
        return tuple(notes)

    @property
    def singular(self) -> tuple[str, ...]:
        """The layers whose inputs do not span all directions, so that their XᵀX is singular."""
        return tuple(layer.name for layer in self.layers if layer.dead_inputs or layer.redundant_inputs)


def output_error(weight: Tensor, rounded: Tensor, gram: Tensor) -> float:
    """‖X(Ŵ − W)ᵀ‖² / ‖XWᵀ‖² from XᵀX; NaN if X Wᵀ is zero."""
    whole = energy(weight, gram)
    return energy(rounded - weight, gram) / whole if whole else math.nan


def energy(matrix: Tensor, gram: Tensor) -> float:
    """‖XMᵀ‖² = tr(M XᵀX Mᵀ): products in the dtype of the matrix, summed in float64.

    By halves, as XᵀX is symmetric: tr(M₁ G₁₁ M₁ᵀ) + tr(M₂ G₂₂ M₂ᵀ) + 2 tr(M₁ G₁₂ M₂ᵀ).
    """
    n = len(gram)
    if n <= _SMALL:
        return _inner(matrix @ gram.to(matrix.dtype), matrix)
    half = n // 2
    first, last = matrix[:, :half], matrix[:, half:]
    across = _inner(first @ gram[:half, half:].to(matrix.dtype), last)
    return energy(first, gram[:half, :half]) + energy(last, gram[half:, half:]) + 2 * across


def _inner(one: Tensor, other: Tensor) -> float:
    """Σ ab; `one` ends as the products."""
    return float(one.mul_(other).sum(dtype=torch.float64))


def shape_of(weight: Tensor) -> tuple[float, float]:
    """(excess kurtosis, max|w| / median|w|) of the entries of a matrix; NaN where they are undefined."""
    mean, n = weight.mean(dtype=torch.float64), weight.numel()
    second = fourth = 0.0
    for (part,) in by_rows(weight):
        squares = (part.double() - mean).square_()
        second += float(squares.sum()) / n
        fourth += float(squares.square_().sum()) / n
    size = weight.abs().flatten()
    median, largest = _median(size), float(size.max())
    kurtosis = fourth / second**2 - 3 if second else math.nan
    return kurtosis, largest / median if median else math.nan


def _median(values: Tensor) -> float:
    """The lower one of an even number; `values` end in another order."""
    if values.device.type != "cpu":
        return float(values.median())
    middle, own = (len(values) - 1) // 2, values.numpy()
    own.partition(middle)  # three times as fast as torch
    return float(own[middle])


def fit_of(weight: Tensor, rounded: Rounded) -> tuple[float, float]:
    """(saturation, misalignment) of what was rounded, where it was rounded."""
    beyond, squares = 0, 0.0
    for part, part_rounded, step in by_rows(weight, rounded.weight, rounded.step):
        steps = (part - part_rounded).div_(step)
        beyond += int((steps.abs() > _BEYOND).sum())
        squares += float(steps.sub_(steps.round()).square_().sum(dtype=torch.float64))
    return beyond / weight.numel(), (squares / weight.numel()) ** 0.5


def redundant(gram: Tensor) -> int:
    """Inputs that are linear combinations of others on the calibration tokens: n − rank XᵀX, dead ones not counted.

    Eigenvalues of the normalized XᵀX, whose diagonal is one, count as zero below 1e-6·√n: what sums in float32 leave.
    """
    alive = gram.diagonal() > 0
    normalized = gram[alive][:, alive].double() if not bool(alive.all()) else gram.double().clone()
    scale = normalized.diagonal().rsqrt()
    normalized.mul_(scale[:, None]).mul_(scale)
    zero = 1e-6 * len(scale) ** 0.5
    normalized.diagonal().sub_(zero)
    if not torch.linalg.cholesky_ex(normalized).info:  # all eigenvalues are above, at a fraction of the price
        return 0
    return int((torch.linalg.eigvalsh(normalized) < 0).sum())
