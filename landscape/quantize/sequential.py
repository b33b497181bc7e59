"""Run a model block by block over calibration windows and show each linear layer's inputs to whoever quantizes it.

For GPTQ the inputs come from a model whose earlier layers are quantized already, also within a block: the query, key
and value projections first, then the output projection on what they now produce, and so on (the "true sequential"
order). For methods that only look at activations they come from the model as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from landscape.decoder.blocks import Walk, decoder_blocks
from landscape.errors import QuantizerError
from landscape.quantize.grid import by_rows, finite
from landscape.quantize.layers import Layer
from landscape.tokens import Windows

_COLUMNS = 1024  # of XᵀX summed together
Hold = Callable[[nn.Module], AbstractContextManager[None]]


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


def quantize_in_order(
    model: nn.Module,
    layers: Sequence[Layer],
    calibration: Windows | None,
    quantize_layers: Callable[[Sequence[Layer], Inputs | None], Sequence[Tensor]],
    on_block: Callable[[int, dict[str, Tensor]], None],
    batch_size: int = 8,
    feeds_on: bool = True,
    hold: Hold = lambda block: nullcontext(),
    keep: torch.device | str | None = None,
) -> None:
    """Quantize `layers` block by block; every block is as it was before the next one begins, and after an error.

    `quantize_layers(some, inputs)` gives the matrices of layers that the same X feeds; without `calibration`, of one
    layer at a time and without inputs. With `feeds_on` what comes after sees what quantized layers put out. While
    `on_block(index, quantized)` runs, block `index` holds its quantized tensors, here by parameter name.

    `hold(block)` is where a block is brought into memory. The activations of all calibration tokens that enter a block
    are held meanwhile, on the device `keep` if one is named.
    """
    prefix, blocks = decoder_blocks(model)
    walk, real = None, []
    if calibration is not None:
        cut = list(zip(calibration.ids.split(batch_size), calibration.lengths.split(batch_size), strict=True))
        device = next(model.parameters()).device
        walk = Walk(model, [ids[:, : int(lengths.max())].to(device) for ids, lengths in cut], keep)
        real = [torch.arange(int(lengths.max())) < lengths[:, None] for _, lengths in cut]
    for index, block in enumerate(blocks):
        inside = [layer for layer in layers if layer.name.startswith(f"{prefix}.{index}.")]
        with torch.no_grad(), hold(block), _changing(inside):
            quantized: dict[Layer, Tensor] = {}
            groups = [([layer], False) for layer in inside] if walk is None else _in_order(walk, inside, index)
            known = [] if walk is None or feeds_on else _inputs(walk, real, groups, index, advance=True)
            for group, after_norm in groups:
                inputs = None
                if walk is not None:
                    inputs = (known or _inputs(walk, real, [(group, after_norm)], index, advance=False)).pop(0)
                matrices = quantize_layers(group, inputs)
                quantized |= {layer: layer.as_matrix(m).contiguous() for layer, m in zip(group, matrices, strict=True)}
                if feeds_on:
                    _put(quantized)
            if walk is not None and feeds_on:
                walk.step(index)
            _put(quantized)
            on_block(index, {layer.weight_name: tensor for layer, tensor in quantized.items()})


class _SeenEnough(Exception):
    """Raised by a hook that has what it wants."""


@contextmanager
def _changing(layers: Sequence[Layer]) -> Iterator[None]:
    """Behind it, layers hold the very tensors they held before."""
    before = [layer.weight.data for layer in layers]
    try:
        yield
    finally:
        for layer, tensor in zip(layers, before, strict=True):
            layer.weight.data = tensor


def _put(quantized: Mapping[Layer, Tensor]) -> None:
    for layer, tensor in quantized.items():
        layer.weight.data = tensor


def _in_order(walk: Walk, layers: list[Layer], index: int) -> list[tuple[list[Layer], bool]]:
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

    norms = [m.register_forward_hook(note_norm) for m in walk.blocks[index].modules() if _is_norm(m)]
    try:
        with _hooked({layer: note(layer) for layer in layers}):
            walk.run(index, 0)
    finally:
        for handle in norms:
            handle.remove()
    if silent := set(layers) - {layer for _, layer in seen}:
        name = min(layer.name for layer in silent)
        raise QuantizerError(f"{name}: no calibration token reaches it; leave it as it is with +{name}=float")
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


def _inputs(
    walk: Walk, real: Sequence[Tensor], groups: Sequence[tuple[list[Layer], bool]], index: int, advance: bool
) -> list[Inputs]:
    """What feeds each group, over all batches; `real[i]`, a mask (windows, tokens), leaves padding out.

    With `advance` the batches are taken through the block on the way; without, a pass ends where the last group begins.
    """
    every = [_Sums(group[0], after_norm) for group, after_norm in groups]
    for batch, mask in enumerate(real):

        def hook(sums: _Sums, args: tuple[Any, ...], mask: Tensor = mask) -> None:
            sums.add(args[0], mask)
            if sums is every[-1] and not advance:
                raise _SeenEnough

        hooks = {sums.layer: lambda _, args, sums=sums, hook=hook: hook(sums, args) for sums in every}
        with _hooked(hooks):
            (walk.advance if advance else walk.run)(index, batch)
    return [sums.inputs() for sums in every]


class _Sums:
    """What `Inputs` holds, batch by batch, in float64."""

    def __init__(self, layer: Layer, after_norm: bool) -> None:
        self.layer, self.after_norm, n, device = layer, after_norm, layer.inputs, layer.weight.device
        self.gram = torch.zeros(n, n, dtype=torch.float64, device=device)
        self.total = torch.zeros(n, dtype=torch.float64, device=device)
        self.largest = torch.zeros(n, device=device)
        self.count = 0

    def add(self, activations: Tensor, real: Tensor) -> None:
        inputs = _tokens(activations, real, self.layer.name).float()
        for start in range(0, len(self.gram), _COLUMNS):  # the other half mirrors it
            own = slice(start, start + _COLUMNS)
            for into, products in by_rows(self.gram[own, start:], inputs[:, own].T @ inputs[:, start:]):
                into += products
        for (some,) in by_rows(inputs):
            size = some.abs()
            self.total += size.sum(dim=0, dtype=torch.float64)
            self.largest = torch.maximum(self.largest, size.amax(dim=0))
        self.count += len(inputs)

    def inputs(self) -> Inputs:
        if not finite(self.gram):
            name = self.layer.name
            raise QuantizerError(f"{name}: non-finite activations on the calibration text; the model overflows here")
        for start in range(_COLUMNS, len(self.gram), _COLUMNS):
            own = slice(start, start + _COLUMNS)
            self.gram[own, :start] = self.gram[:start, own].T
        mean = (self.total / self.count).float()
        return Inputs(self.gram.div_(self.count), mean, self.largest, self.after_norm)


def _tokens(activations: Tensor, real: Tensor, name: str) -> Tensor:
    """(windows, tokens, features) or (windows · tokens, features) → (real tokens, features).

    Without padding all of any shape are real: experts see some tokens only, in an order of their own.
    """
    if bool(real.all()):
        return activations.flatten(0, -2)
    for mask in (real, real.flatten()):
        if activations.shape[:-1] == mask.shape:
            return activations[mask.to(activations.device)]
    raise QuantizerError(
        f"{name}: takes tokens in an order of its own, padding among them; use windows of one length, as "
        "--calibration-packing joined gives them"
    )


@contextmanager
def _hooked(hooks: Mapping[Layer, Callable[..., None]]) -> Iterator[None]:
    """Each hook sees what its layer takes; one that has seen enough ends what runs within."""
    handles = [layer.module.register_forward_pre_hook(hook) for layer, hook in hooks.items()]
    try:
        with suppress(_SeenEnough):
            yield
    finally:
        for handle in handles:
            handle.remove()
