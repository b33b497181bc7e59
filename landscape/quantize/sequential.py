"""Run a model block by block over calibration windows and quantize each linear layer on the inputs it really gets.

Inputs come from a model whose earlier layers are quantized already, also within a block: the query, key and value
projections first, then the output projection on what they now produce, and so on (the "true sequential" order).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from landscape.errors import QuantizerError
from landscape.quantize.layers import Layer, decoder_blocks, linear_layers
from landscape.tokens import Windows

Advance = Callable[[], None]


def quantize_sequentially(
    model: nn.Module,
    calibration: Windows,
    quantize_layer: Callable[[Layer, Tensor], Tensor],
    batch_size: int,
    advance: Advance = lambda: None,
) -> dict[str, Tensor]:
    """Quantized tensors by parameter name; `quantize_layer(layer, gram)` gives one matrix from its XᵀX / tokens.

    The model is changed on the way and restored bit for bit before this returns or raises. `advance` is called once
    per layer. Activations of all calibration tokens entering one block are held at a time.
    """
    prefix, blocks = decoder_blocks(model)
    by_name = {layer.name: layer for layer in linear_layers(model)}
    originals: dict[str, Tensor] = {}
    quantized: dict[str, Tensor] = {}
    try:
        with torch.no_grad():
            calls = _capture(model, blocks, calibration, batch_size)
            for index, block in enumerate(blocks):
                inside = [layer for name, layer in by_name.items() if name.startswith(f"{prefix}.{index}.")]
                for group in _in_order(block, inside, calls[0], index):
                    grams = _grams(block, group, calls, index)
                    for layer in group:
                        parameter = layer.weight
                        originals[layer.weight_name] = parameter.detach().clone()
                        matrix = quantize_layer(layer, grams[layer.name])
                        parameter.copy_(layer.as_matrix(matrix))
                        quantized[layer.weight_name] = parameter.detach().clone()
                        advance()
                for call in calls:
                    call.hidden = _first(block(call.hidden, *call.args[index], **call.kwargs[index]))
    finally:
        with torch.no_grad():
            for layer in by_name.values():
                if layer.weight_name in originals:
                    layer.weight.copy_(originals[layer.weight_name])
    return quantized


class _SeenEnough(Exception):
    """Raised by a hook that has what it wants."""


class _Call:
    """One batch on its way through the blocks: the hidden states, and what else each block is called with."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths
        self.hidden: Any = None
        self.args: list[tuple[Any, ...]] = []
        self.kwargs: list[dict[str, Any]] = []

    def tokens(self, activations: Tensor) -> Tensor:
        """(windows, tokens, features) → (real tokens, features)."""
        position = torch.arange(activations.shape[1])
        real = (position[None, :] < self.lengths[:, None]).to(activations.device)
        return activations[real]


def _capture(model: nn.Module, blocks: nn.ModuleList, windows: Windows, batch_size: int) -> list[_Call]:
    """Run the model once per batch and note how it calls its blocks: masks and positions differ between blocks."""
    device = next(model.parameters()).device
    calls = []
    for ids, lengths in zip(windows.ids.split(batch_size), windows.lengths.split(batch_size), strict=True):
        call = _Call(lengths)

        def note(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], call: _Call = call) -> None:
            kwargs = dict(kwargs)
            hidden = args[0] if args else kwargs.pop("hidden_states")
            if call.hidden is None:
                call.hidden = hidden
            call.args.append(args[1:])
            call.kwargs.append(kwargs)

        hooks = [block.register_forward_pre_hook(note, with_kwargs=True) for block in blocks]
        try:
            model(input_ids=ids[:, : int(lengths.max())].to(device), use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        calls.append(call)
    return calls


def _in_order(block: nn.Module, layers: list[Layer], call: _Call, index: int) -> list[list[Layer]]:
    """The layers of a block in the order they run; those fed by one tensor together."""
    seen: list[tuple[int, Layer]] = []
    kept: list[Tensor] = []  # inputs stay alive, or another tensor could get the address of one that is gone

    def note(layer: Layer) -> Callable[..., None]:
        def hook(_module: nn.Module, args: tuple[Any, ...]) -> None:
            kept.append(args[0])
            seen.append((args[0].data_ptr(), layer))

        return hook

    _run_with_hooks(block, call, index, {layer: note(layer) for layer in layers})
    groups: list[tuple[int, list[Layer]]] = []
    for address, layer in seen:
        if groups and groups[-1][0] == address:
            groups[-1][1].append(layer)
        else:
            groups.append((address, [layer]))
    return [group for _, group in groups]


def _grams(block: nn.Module, layers: list[Layer], calls: list[_Call], index: int) -> dict[str, Tensor]:
    """XᵀX / tokens of each layer's inputs, accumulated in float64; layers of a group share one product."""
    first = layers[0]
    gram = torch.zeros(first.inputs, first.inputs, dtype=torch.float64, device=first.weight.device)
    count = 0

    for call in calls:

        def add(_module: nn.Module, args: tuple[Any, ...], call: _Call = call) -> None:
            nonlocal count
            inputs = call.tokens(args[0]).float()
            gram.add_(inputs.T @ inputs)
            count += len(inputs)
            raise _SeenEnough  # the rest of the block does not matter here

        _run_with_hooks(block, call, index, {first: add})
    if not bool(gram.isfinite().all()):
        raise QuantizerError(f"{first.name}: non-finite activations on the calibration text; the model overflows here")
    return {layer.name: gram / count for layer in layers}


def _run_with_hooks(block: nn.Module, call: _Call, index: int, hooks: dict[Layer, Callable[..., None]]) -> None:
    handles = [layer.module.register_forward_pre_hook(hook) for layer, hook in hooks.items()]
    try:
        with contextlib.suppress(_SeenEnough):
            block(call.hidden, *call.args[index], **call.kwargs[index])
    finally:
        for handle in handles:
            handle.remove()


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output
