"""Quantize a whole model and say, layer by layer, what that did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from landscape.errors import QuantizerError
from landscape.quantize.adapters import quantize_with
from landscape.quantize.grid import check_group_size
from landscape.quantize.layers import Layer, linear_layers, not_linear
from landscape.quantize.matrix import layer_report, quantize_matrices
from landscape.quantize.names import Quantizer, fits
from landscape.quantize.report import LayerReport, Report
from landscape.quantize.sequential import Hold, Inputs, quantize_in_order
from landscape.tokens import Windows
from landscape.weights import Weights

Progress = Callable[[int, int], None]


def quantize(
    quantizer: Quantizer,
    model: nn.Module,
    calibration: Windows | None = None,
    batch_size: int = 8,
    on_progress: Progress = lambda done, total: None,
) -> tuple[Weights, Report]:
    """(Θ̂, report) for the weights `model` holds; the model is left as it was, bit for bit.

    Θ̂ shares memory with the model for every tensor that is not quantized.

    Raises:
        ModelError: a model without blocks, or one that does not call them one after the other.
        QuantizerError: no calibration text or too little where the method needs it, a group size that does not fit,
            an override that fits no layer, weights or activations that are not finite, blocks without linear layers.
    """
    quantized: dict[str, Tensor] = {}
    if quantizer.engine:
        report = _by_engine(quantizer, model, calibration, batch_size, quantized)
    else:
        report = quantize_blocks(
            quantizer, model, calibration, lambda _, block: quantized.update(block), batch_size, on_progress
        )
    weights = Weights.of(model)
    return Weights({name: quantized.get(name, tensor) for name, tensor in weights.items()}), report


def quantize_blocks(
    quantizer: Quantizer,
    model: nn.Module,
    calibration: Windows | None,
    on_block: Callable[[int, dict[str, Tensor]], None],
    batch_size: int = 8,
    on_progress: Progress = lambda done, total: None,
    hold: Hold = lambda block: nullcontext(),
    keep: torch.device | str | None = None,
) -> Report:
    """`quantize` for whoever takes Θ̂ block by block: see `sequential.quantize_in_order` for `on_block`, `hold`, `keep`.

    Raises:
        ModelError, QuantizerError: as `quantize`; blocks were handed out before, where activations are not finite.
    """
    recipes = _recipes(quantizer, model)
    rows: list[LayerReport] = []

    def together(some: Sequence[Layer], inputs: Inputs | None) -> list[Tensor]:
        matrices = [layer.as_matrix(layer.weight.detach()) for layer in some]
        done = quantize_matrices([layer.name for layer in some], matrices, [recipes[layer] for layer in some], inputs)
        rows.extend(row for _, row in done)
        on_progress(len(rows), len(recipes))
        return [matrix for matrix, _ in done]

    windows = _checked(quantizer, calibration, list(recipes)) if quantizer.needs_calibration else None
    feeds_on = quantizer.method == "gptq"
    quantize_in_order(model, list(recipes), windows, together, on_block, batch_size, feeds_on, hold, keep)
    return _report(quantizer, model, rows, windows)


def _by_engine(
    quantizer: Quantizer, model: nn.Module, calibration: Windows | None, batch_size: int, into: dict[str, Tensor]
) -> Report:
    """Another package does it, on the whole model at once."""
    recipes = _recipes(quantizer, model)
    windows = _checked(quantizer, calibration, list(recipes))
    into.update(quantize_with(quantizer, model, list(recipes), windows, batch_size))
    rows = []
    for layer, recipe in recipes.items():
        matrices = (layer.as_matrix(layer.weight.detach()), layer.as_matrix(into[layer.weight_name]))
        rows.append(layer_report(layer.name, *matrices, recipe))
    return _report(quantizer, model, rows, windows if quantizer.needs_calibration else None)


def _report(quantizer: Quantizer, model: nn.Module, rows: Sequence[LayerReport], windows: Windows | None) -> Report:
    return Report(
        quantizer=str(quantizer),
        layers=tuple(rows),
        quantized_parameters=sum(row.parameters for row in rows),
        total_parameters=Weights.of(model).numel(),
        calibration_tokens=windows.n_tokens if windows is not None else 0,
        weight_half=quantizer.weight_half,
        not_linear=not_linear(model),
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
