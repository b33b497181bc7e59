"""One set of matrices that the same inputs feed: there, rounded, and back.

Every method goes the same way: set aside the inputs that are kept, scale and rotate the others, round, rotate and scale
back. Ŵ lies in the coordinates of W, whatever the basis it was rounded in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from landscape.errors import QuantizerError
from landscape.quantize.awq import activation_scales, round_for_outputs
from landscape.quantize.codebook import bits_of_scale, round_to_code
from landscape.quantize.gptq import Factor, gptq_with
from landscape.quantize.grid import Rounded, bits_of_scales, finite
from landscape.quantize.hqq import half_quadratic
from landscape.quantize.int8 import outlying, vector_wise
from landscape.quantize.names import Quantizer
from landscape.quantize.outliers import costly
from landscape.quantize.report import LayerReport, energy, fit_of, redundant, shape_of
from landscape.quantize.rotation import Rotation
from landscape.quantize.rtn import round_to_nearest
from landscape.quantize.sequential import Inputs
from landscape.quantize.smoothquant import migration_scales

_FLOAT_BITS = 16  # of what is not rounded, when sizes are counted


def quantize_matrices(
    names: Sequence[str], matrices: Sequence[Tensor], recipes: Sequence[Quantizer], inputs: Inputs | None
) -> list[tuple[Tensor, LayerReport]]:
    """(Ŵ, report) for each matrix (outputs, inputs), by its own recipe; `inputs` is what feeds them all.

    Raises:
        QuantizerError: weights that are not finite.
    """
    for name, matrix in zip(names, matrices, strict=True):
        if not finite(matrix):
            raise QuantizerError(f"{name}: its weights are not finite; expected a trained model")
    kept = [_kept(matrix, recipe, inputs) for matrix, recipe in zip(matrices, recipes, strict=True)]
    scales = _scales(matrices, recipes, inputs)
    singular = redundant(inputs.gram) if inputs is not None else 0
    shared: dict[bool, _Basis] = {}
    done = []
    for name, matrix, recipe, mask in zip(names, matrices, recipes, kept, strict=True):
        basis = _Basis(mask, scales, Rotation.random(matrix.shape[1]) if recipe.rotate else None, inputs)
        if mask is None:
            basis = shared.setdefault(recipe.rotate, basis)
        weight = basis.there(matrix)
        rounded, took = _round(recipe, weight, basis)
        saturation, misalignment = fit_of(weight, rounded)
        result = basis.back(rounded.weight, matrix)
        told = {
            "grid_step": basis.grid_step(rounded.step, matrix),
            "saturation": saturation,
            "misalignment": misalignment,
            "redundant_inputs": singular,
            **took,
        }
        done.append((result, layer_report(name, matrix, result, recipe, inputs, mask, told)))
    return done


@dataclass
class _Basis:
    """W ↦ W' = (W without the kept inputs) diag(scales) R."""

    kept: Tensor | None
    scales: Tensor | None
    rotation: Rotation | None
    inputs: Inputs | None
    factors: dict[tuple[bool, float], Factor] = field(default_factory=dict)

    def there(self, matrix: Tensor) -> Tensor:
        matrix = matrix if self.kept is None else matrix.masked_fill(self.kept, 0)
        matrix = matrix if self.scales is None else matrix * self.scales
        return matrix if self.rotation is None else self.rotation.apply(matrix)

    @cached_property
    def gram(self) -> Tensor:
        """XᵀX of the inputs that W' takes."""
        assert self.inputs is not None
        gram = self.inputs.gram
        gram = gram if self.kept is None else gram.masked_fill(self.kept[:, None] | self.kept, 0)
        gram = gram if self.scales is None else gram / torch.outer(self.scales, self.scales).double()
        return gram if self.rotation is None else self.rotation.gram(gram)

    def factor(self, act_order: bool, damping: float) -> Factor:
        """What GPTQ needs of it, made once."""
        if (act_order, damping) not in self.factors:
            self.factors[act_order, damping] = Factor.of(self.gram, act_order, damping)
        return self.factors[act_order, damping]

    def grid_step(self, step: Tensor, matrix: Tensor) -> float:
        """The root mean square step, as long as it is in the coordinates of W: scales undone, a rotation keeps it."""
        step = step.expand(matrix.shape)
        step = step if self.scales is None else step / self.scales
        step = step if self.kept is None else step.masked_fill(self.kept, 0)
        return float(step.square().mean(dtype=torch.float64)) ** 0.5

    def back(self, rounded: Tensor, matrix: Tensor) -> Tensor:
        rounded = rounded if self.rotation is None else self.rotation.undo(rounded)
        rounded = rounded if self.scales is None else rounded / self.scales
        return rounded if self.kept is None else torch.where(self.kept, matrix, rounded)


def _kept(matrix: Tensor, recipe: Quantizer, inputs: Inputs | None) -> Tensor | None:
    if recipe.method == "int8":
        assert inputs is not None
        mask = outlying(inputs.max_abs, recipe.threshold)
        return mask if bool(mask.any()) else None
    if recipe.outliers:
        assert inputs is not None
        return costly(matrix, _round(_plain(recipe), matrix, None)[0].weight, inputs.gram, recipe.outliers)
    return None


def _scales(matrices: Sequence[Tensor], recipes: Sequence[Quantizer], inputs: Inputs | None) -> Tensor | None:
    """One vector for all, as it takes the place of X: of AWQ, or of SmoothQuant where a norm can absorb it."""
    method = recipes[0].method
    if method == "awq":
        assert inputs is not None
        unclipped = [replace(recipe, clip=False) for recipe in recipes]  # scales first, then what to clip
        rounds = [lambda weight, recipe=recipe: _round(recipe, weight, None)[0].weight for recipe in unclipped]
        return activation_scales(matrices, inputs.mean_abs, inputs.gram, rounds)
    if method == "smoothquant":
        assert inputs is not None
        return migration_scales(matrices, inputs.max_abs, recipes[0].migration) if inputs.after_norm else None
    return None


def _plain(recipe: Quantizer) -> Quantizer:
    """Round to nearest on the same kind of grid, which the method has to beat."""
    method = "rtn" if recipe.method in ("gptq", "awq", "smoothquant", "hqq") else recipe.method
    return replace(recipe, method=method, clip=False, rotate=False, outliers=0.0)


def _round(recipe: Quantizer, weight: Tensor, basis: _Basis | None) -> tuple[Rounded, dict[str, Any]]:
    """Ŵ' with its steps, and what there is to tell of it; `basis` for methods that look at inputs."""
    uniform = (recipe.bits, _group(recipe, weight), recipe.levels, recipe.clip)
    match recipe.method:
        case "gptq":
            assert basis is not None
            factor = basis.factor(recipe.act_order, recipe.damping)
            result = gptq_with(weight, factor, *uniform, recipe.static_groups)
            return result.rounded, {
                "saturation": result.saturation,
                "damping": result.damping,
                "retries": result.retries,
                "fallback": result.fallback,
            }
        case "awq" if recipe.clip:
            assert basis is not None
            return round_for_outputs(weight, basis.gram, *uniform), {}
        case "hqq":
            return half_quadratic(weight, *uniform[:2]), {}
        case "int8":
            return vector_wise(weight), {}
        case "nf4" | "fp4":
            return round_to_code(weight, recipe.method, recipe.block, recipe.double), {}
    return round_to_nearest(weight, *uniform), {}


def _group(recipe: Quantizer, weight: Tensor) -> int | None:
    return None if recipe.per_tensor else recipe.group_size or weight.shape[1]


def layer_report(
    name: str,
    matrix: Tensor,
    result: Tensor,
    recipe: Quantizer,
    inputs: Inputs | None = None,
    kept: Tensor | None = None,
    told: Mapping[str, Any] = MappingProxyType({}),
) -> LayerReport:
    """The row of a matrix, whoever rounded it; `told` is what only the method knows."""
    step = float((result - matrix).double().norm())
    kurtosis, over_median = shape_of(matrix)
    if inputs is not None:
        nearest = _round(_plain(recipe), matrix, None)[0].weight
        whole = energy(matrix, inputs.gram) or math.nan
        told = {
            **told,
            "output_shift": energy(result - matrix, inputs.gram) / (float(inputs.gram.trace()) or math.nan),
            "output_error": energy(result - matrix, inputs.gram) / whole,
            "rtn_output_error": energy(nearest - matrix, inputs.gram) / whole,
            "dead_inputs": int((inputs.gram.diagonal() == 0).sum()),
        }
    return LayerReport(
        name=name,
        quantizer=str(recipe),
        inputs=matrix.shape[1],
        parameters=matrix.numel(),
        bits=recipe.bits,
        group_size=_sharing(recipe, matrix),
        bits_per_weight=_size(recipe, matrix, 0 if kept is None else int(kept.sum())) / matrix.numel(),
        step_norm=step,
        weight_error=step / float(matrix.double().norm()) if step else 0.0,
        excess_kurtosis=kurtosis,
        max_over_median=over_median,
        kept_inputs=0 if kept is None else int(kept.sum()),
        **told,
    )


def _sharing(recipe: Quantizer, weight: Tensor) -> int:
    """Weights that share a scale."""
    if recipe.method in ("nf4", "fp4"):
        return recipe.block
    return _group(recipe, weight) or weight.numel()


def _size(recipe: Quantizer, weight: Tensor, kept: int) -> float:
    """Bits that storing Ŵ takes: its levels, scales and offsets, the inputs kept at 16 bits, and scales of inputs."""
    outputs, inputs = weight.shape
    rounded = outputs * (inputs - kept)
    levels = "minmax" if recipe.method == "hqq" else recipe.levels
    if recipe.method in ("nf4", "fp4"):
        scales = -(-weight.numel() // recipe.block) * bits_of_scale(recipe.double)
    else:
        group = _group(recipe, weight)
        scales = bits_of_scales(levels, recipe.bits) * (outputs * -(-inputs // group) if group else 1)
    kept_bits = kept * (_FLOAT_BITS * outputs + 32)  # and the index of each
    per_input = _FLOAT_BITS * inputs if recipe.method in ("awq", "smoothquant") else 0
    return rounded * recipe.bits + scales + kept_bits + per_input
