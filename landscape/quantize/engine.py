"""Quantize a whole model and say, layer by layer, what that did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from landscape.errors import QuantizerError
from landscape.quantize.adapters import quantize_with
from landscape.quantize.grid import check_group_size
from landscape.quantize.layers import Layer, linear_layers
from landscape.quantize.matrix import layer_report, quantize_matrices
from landscape.quantize.names import Quantizer, fits
from landscape.quantize.report import LayerReport, Report
from landscape.quantize.sequential import Inputs, quantize_sequentially
from landscape.tokens import Windows
from landscape.weights import Weights


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
        QuantizerError: no calibration text or too little where the method needs it, a group size that does not fit,
            an override that fits no layer, weights or activations that are not finite, a model without linear layers.
    """
    weights = Weights.of(model)
    recipes = _recipes(quantizer, model)
    layers = list(recipes)
    reports: list[LayerReport] = []

    def together(some: Sequence[Layer], inputs: Inputs | None) -> list[Tensor]:
        matrices = [layer.as_matrix(layer.weight.detach()) for layer in some]
        done = quantize_matrices([layer.name for layer in some], matrices, [recipes[layer] for layer in some], inputs)
        reports.extend(row for _, row in done)
        on_progress(len(reports), len(layers))
        return [matrix for matrix, _ in done]

    if quantizer.engine:
        windows = _checked(quantizer, calibration, layers)
        quantized = quantize_with(quantizer, model, layers, windows, batch_size)
        for layer in layers:
            matrices = (layer.as_matrix(layer.weight.detach()), layer.as_matrix(quantized[layer.weight_name]))
            reports.append(layer_report(layer.name, *matrices, recipes[layer]))
    elif quantizer.needs_calibration:
        windows = _checked(quantizer, calibration, layers)
        feeds_on = quantizer.method == "gptq"
        quantized = quantize_sequentially(model, layers, windows, together, batch_size, feeds_on)
    else:
        quantized = {}
        for layer in layers:
            quantized[layer.weight_name] = layer.as_matrix(together([layer], None)[0]).contiguous()
    return Weights({name: quantized.get(name, tensor) for name, tensor in weights.items()}), Report(
        quantizer=str(quantizer),
        layers=tuple(reports),
        quantized_parameters=sum(tensor.numel() for tensor in quantized.values()),
        total_parameters=weights.numel(),
        calibration_tokens=calibration.n_tokens if calibration is not None and quantizer.needs_calibration else 0,
        weight_half=quantizer.weight_half,
    )


def _recipes(quantizer: Quantizer, model: nn.Module) -> dict[Layer, Quantizer]:
    """What holds for each layer that is quantized."""
    layers = linear_layers(model)
    for pattern, words in quantizer.overrides:
        if any(fits(pattern, layer.name) for layer in layers):
            continue
        elsewhere = [name for name, _ in model.named_modules() if fits(pattern, name)]
        if elsewhere:
            raise QuantizerError(
                f"quantizer {quantizer}: {pattern}={words} is about {elsewhere[0]}; only linear layers inside the "
                "decoder blocks are quantized, embeddings and output head stay as they are"
            )
        raise QuantizerError(
            f"quantizer {quantizer}: {pattern} fits no layer; expected parts of a name such as {layers[0].name}"
        )
    resolved = {layer: quantizer.at(layer.name) for layer in layers}
    recipes = {layer: recipe for layer, recipe in resolved.items() if recipe is not None}
    if not recipes:
        raise QuantizerError(f"quantizer {quantizer}: leaves every layer in float; nothing to quantize")
    for size in {recipe.group_size for recipe in recipes.values()} - {None}:
        assert size is not None
        check_group_size(
            size, {layer.name: layer.inputs for layer, recipe in recipes.items() if recipe.group_size == size}
        )
    return recipes


def _checked(quantizer: Quantizer, calibration: Windows | None, layers: Sequence[Layer]) -> Windows:
    if calibration is None or not len(calibration):
        raise QuantizerError(f"quantizer {quantizer}: needs calibration text, and there is none")
    widest = max(layers, key=lambda layer: layer.inputs)
    if quantizer.method == "gptq" and calibration.n_tokens < widest.inputs:
        raise QuantizerError(
            f"quantizer {quantizer}: {calibration.n_tokens} calibration tokens for the {widest.inputs} inputs of "
            f"{widest.name}; expected at least as many tokens as inputs, give more text or more --calibration-windows"
        )
    return calibration
