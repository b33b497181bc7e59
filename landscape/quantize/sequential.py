"""Run a model block by block over calibration windows and show each linear layer's inputs to whoever quantizes it.

For GPTQ the inputs come from a model whose earlier layers are quantized already, also within a block: the query, key
and value projections first, then the output projection on what they now produce, and so on (the "true sequential"
order). For methods that only look at activations they come from the model as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from landscape.errors import QuantizerError
from landscape.quantize.layers import Layer, decoder_blocks
from landscape.tokens import Windows


@dataclass(frozen=True)
class Inputs:
    """The activations X (tokens, inputs) that feed some layers, summed up.

    Attributes:
        gram: XᵀX / tokens, float64.
        mean_abs, max_abs: mean and largest |x_j|, float32.
        after_norm: X is what a normalization layer puts out.
    """

    gram: Tensor
    mean_abs: Tensor
    max_abs: Tensor
    after_norm: bool


def quantize_sequentially(
    model: nn.Module,
    layers: Sequence[Layer],
    calibration: Windows,
    quantize_layers: Callable[[Sequence[Layer], Inputs], Sequence[Tensor]],
    batch_size: int,
    feeds_on: bool = True,
) -> dict[str, Tensor]:
    """Quantized tensors of `layers` by parameter name.

    `quantize_layers(some, inputs)` gives the matrices of layers that the same X feeds. With `feeds_on` what comes
    after sees their outputs. The model is changed on the way and restored bit for bit before this returns or raises.
    Activations of all calibration tokens entering one block are held at a time.
    """
    prefix, blocks = decoder_blocks(model)
    originals: dict[Layer, Tensor] = {}  # of what the model holds in quantized form
    quantized: dict[str, Tensor] = {}
    try:
        with torch.no_grad():
            calls = _capture(model, blocks, calibration, batch_size)
            for index, block in enumerate(blocks):
                inside = [layer for layer in layers if layer.name.startswith(f"{prefix}.{index}.")]
                for group, after_norm in _in_order(block, inside, calls[0], index):
                    inputs = _inputs(block, group, calls, index, after_norm)
                    for layer, matrix in zip(group, quantize_layers(group, inputs), strict=True):
                        if feeds_on:
                            originals[layer] = layer.weight.detach().clone()
                            layer.weight.copy_(layer.as_matrix(matrix))
                        else:
                            quantized[layer.weight_name] = layer.as_matrix(matrix).contiguous()
                for call in calls:
                    call.hidden = _first(block(call.hidden, *call.args[index], **call.kwargs[index]))
    finally:
        with torch.no_grad():
            for layer in list(originals):  # one at a time: Θ̂ never exists twice
                quantized[layer.weight_name] = layer.weight.detach().clone()
                layer.weight.copy_(originals.pop(layer))
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


def _in_order(block: nn.Module, layers: list[Layer], call: _Call, index: int) -> list[tuple[list[Layer], bool]]:
    """The layers of a block in the order they run, those fed by one tensor together, and whether a norm made it."""
    seen: list[tuple[int, Layer]] = []
    normalized: set[int] = set()
    kept: list[Tensor] = []  # tensors stay alive, or another could get the address of one that is gone

    def note(layer: Layer) -> Callable[..., None]:
        def hook(_module: nn.Module, args: tuple[Any, ...]) -> None:
            kept.append(args[0])
            seen.append((args[0].data_ptr(), layer))

        return hook

    def note_norm(_module: nn.Module, _args: Any, output: Any) -> None:
        kept.append(output)
        normalized.add(output.data_ptr())

    norms = [module.register_forward_hook(note_norm) for module in block.modules() if _is_norm(module)]
    try:
        _run_with_hooks(block, call, index, {layer: note(layer) for layer in layers})
    finally:
        for handle in norms:
            handle.remove()
    groups: list[tuple[int, list[Layer]]] = []
    for address, layer in seen:
        if groups and groups[-1][0] == address:
            groups[-1][1].append(layer)
        else:
            groups.append((address, [layer]))
    return [(group, address in normalized) for address, group in groups]


def _is_norm(module: nn.Module) -> bool:
    """A module whose only weights are gains, one per feature."""
    own = list(module.parameters())
    return bool(own) and all(parameter.dim() == 1 for parameter in own)


def _inputs(block: nn.Module, layers: list[Layer], calls: list[_Call], index: int, after_norm: bool) -> Inputs:
    """What feeds `layers`, over all calls, accumulated in float64."""
    first = layers[0]
    device = first.weight.device
    gram = torch.zeros(first.inputs, first.inputs, dtype=torch.float64, device=device)
    total = torch.zeros(first.inputs, dtype=torch.float64, device=device)
    largest = torch.zeros(first.inputs, device=device)
    count = 0

    for call in calls:

        def add(_module: nn.Module, args: tuple[Any, ...], call: _Call = call) -> None:
            nonlocal count
            inputs = call.tokens(args[0]).float()
            size = inputs.abs()
            gram.add_(inputs.T @ inputs)
            total.add_(size.sum(dim=0, dtype=torch.float64))
            torch.maximum(largest, size.amax(dim=0), out=largest)
            count += len(inputs)
            raise _SeenEnough  # the rest of the block does not matter here

        _run_with_hooks(block, call, index, {first: add})
    if not bool(gram.isfinite().all()):
        raise QuantizerError(f"{first.name}: non-finite activations on the calibration text; the model overflows here")
    return Inputs(gram / count, (total / count).float(), largest, after_norm)


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
