"""Quantize a whole model and say, layer by layer, what that did."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from landscape.errors import QuantizerError
from landscape.quantize.gptq import gptq
from landscape.quantize.grid import group_sizes
from landscape.quantize.layers import Layer, linear_layers
from landscape.quantize.names import Quantizer
from landscape.quantize.rtn import round_to_nearest
from landscape.quantize.sequential import quantize_sequentially
from landscape.tokens import Windows
from landscape.weights import Weights


@dataclass(frozen=True)
class LayerReport:
    """One layer, δ = Ŵ − W.

    Attributes:
        name: the layer, as in the model.
        inputs, bits, group_size: its inputs, and its grid; a group is the number of inputs that share a scale.
        step_norm: ‖δ‖.
        weight_error: ‖δ‖ / ‖W‖.
        output_error: ‖Xδᵀ‖² / ‖XWᵀ‖² on the calibration inputs; NaN for a method that looks at none.
        rtn_output_error: the same for round-to-nearest on the same grid.
        damping, retries: what the factorization took in the end.
        dead_inputs: inputs that were zero on every calibration token.
        fallback: rounded to nearest because no damping helped.
    """

    name: str
    inputs: int
    bits: int
    group_size: int
    step_norm: float
    weight_error: float
    output_error: float = math.nan
    rtn_output_error: float = math.nan
    damping: float = math.nan
    retries: int = 0
    dead_inputs: int = 0
    fallback: bool = False


@dataclass(frozen=True)
class Report:
    """What was quantized: a row per layer, and how many of the model's parameters they hold."""

    quantizer: str
    layers: tuple[LayerReport, ...]
    quantized_parameters: int
    total_parameters: int
    calibration_tokens: int

    @property
    def retries(self) -> int:
        """Factorizations that had to be tried again."""
        return sum(layer.retries for layer in self.layers)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The layers that were rounded to nearest instead."""
        return tuple(layer.name for layer in self.layers if layer.fallback)


def quantize(
    quantizer: Quantizer,
    model: nn.Module,
    calibration: Windows | None = None,
    batch_size: int = 8,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Weights, Report]:
    """(Θ̂, report) for the weights `model` holds; the model is left as it was, bit for bit.

    Θ̂ shares memory with the model for every tensor that is not quantized.

    Raises:
        QuantizerError: no calibration where the method needs it, a group size that does not fit, or a model
            without linear layers.
    """
    weights = Weights.of(model)
    layers = linear_layers(model)
    groups = group_sizes(quantizer.group_size, {layer.name: layer.inputs for layer in layers})
    reports: list[LayerReport] = []

    def advance() -> None:
        on_progress(len(reports), len(layers))

    if quantizer.method == "rtn":
        calibration = None
        quantized = {}
        for layer in layers:
            group = groups[layer.name]
            matrix = layer.as_matrix(weights[layer.weight_name])
            rounded = round_to_nearest(matrix, quantizer.bits, group, quantizer.symmetric)
            reports.append(_report(layer, quantizer, matrix, rounded, group))
            quantized[layer.weight_name] = layer.as_matrix(rounded).contiguous()
            advance()
    elif calibration is None or not len(calibration):
        raise QuantizerError(f"quantizer {quantizer}: needs calibration text, and there is none")
    else:

        def one(layer: Layer, gram: Tensor) -> Tensor:
            rounded, row = _gptq_layer(layer, quantizer, groups[layer.name], gram)
            reports.append(row)
            return rounded

        quantized = quantize_sequentially(model, calibration, one, batch_size, advance)
    return Weights({name: quantized.get(name, tensor) for name, tensor in weights.items()}), Report(
        quantizer=str(quantizer),
        layers=tuple(reports),
        quantized_parameters=sum(tensor.numel() for tensor in quantized.values()),
        total_parameters=weights.numel(),
        calibration_tokens=calibration.n_tokens if calibration is not None else 0,
    )


def _gptq_layer(layer: Layer, quantizer: Quantizer, group: int, gram: Tensor) -> tuple[Tensor, LayerReport]:
    matrix = layer.as_matrix(layer.weight.detach())
    bits, symmetric = quantizer.bits, quantizer.symmetric
    result = gptq(matrix, gram, bits, group, symmetric, quantizer.act_order, quantizer.static_groups, quantizer.damping)
    nearest = round_to_nearest(matrix, bits, group, symmetric)
    row = _report(
        layer,
        quantizer,
        matrix,
        result.weight,
        group,
        output_error=output_error(matrix, result.weight, gram),
        rtn_output_error=output_error(matrix, nearest, gram),
        damping=result.damping,
        retries=result.retries,
        dead_inputs=result.dead_inputs,
        fallback=result.fallback,
    )
    return result.weight, row


def output_error(weight: Tensor, rounded: Tensor, gram: Tensor) -> float:
    """‖X(Ŵ − W)ᵀ‖² / ‖XWᵀ‖² from XᵀX: tr(δ XᵀX δᵀ) / tr(W XᵀX Wᵀ), in float64."""
    gram, weight, step = gram.double(), weight.double(), (rounded - weight).double()
    return float(((step @ gram) * step).sum() / ((weight @ gram) * weight).sum())


def _report(
    layer: Layer, quantizer: Quantizer, weight: Tensor, rounded: Tensor, group: int, **rest: float | bool
) -> LayerReport:
    step = float((rounded - weight).double().norm())
    error = step / float(weight.double().norm()) if step else 0.0
    return LayerReport(layer.name, layer.inputs, quantizer.bits, group, step, error, **rest)  # type: ignore[arg-type]
