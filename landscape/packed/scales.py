"""Scales that a quantizer moved from one layer into another, moved back.

AWQ (arXiv 2306.00978) and SmoothQuant (arXiv 2211.10438) multiply the inputs of a layer by s before they round it, and
divide what produces these inputs by s: the norm before it, or the rows of a linear layer. The function stays as it is,
Θ̂ does not: it lies far from Θ along a symmetry of the network, by a distance that has nothing to do with rounding. So
the scales are moved back, which leaves the function of Θ̂ as it is, too, and what remains of Θ̂ − Θ is the rounding.

A norm with weights n in Θ and n̂ in the checkpoint tells its scales, s = n / n̂. Between two linear layers both sides are
rounded; there t_i = ⟨W_i, Ŵ_i⟩ / ‖Ŵ_i‖² of the first one's rows estimates s, and any s gives the same function. Which
layers a norm feeds is watched in a forward pass, so no architecture is named. What does not bring layers nearer to Θ
beyond all chance is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from landscape.models import vocabulary_size
from landscape.packed.places import is_transposed
from landscape.weights import Weights

_SURE = 6.0  # the change must be this many times the rounding of one entry: fewer are chance once in a thousand
_ALIKE = 0.9  # correlation of two estimates of the same scales; of unrelated ones it is about 1/√inputs
_SAME = 1e-2  # relative distance of logits: norms are stored in half precision
_HALF = 2.0**-7  # relative rounding of a norm and a bias in bfloat16, and some


def undo(found: Mapping[str, Tensor], theta: Weights, rest: set[str], model: nn.Module) -> dict[str, Tensor]:
    """The tensors of `found` that are other ones with every moved scale moved back; none if the function would change.

    Args:
        found: Θ̂ as stored, float32.
        theta: Θ.
        rest: the names that were not quantized.
        model: the float model, run on a few tokens.
    """
    ids = torch.randint(vocabulary_size(model), (1, 16), generator=torch.Generator().manual_seed(0))
    ids = ids.to(next(model.parameters()).device)
    changed: dict[str, Tensor] = {}
    for norm, layers in _fed_by_norms(model, ids).items():
        if f"{norm}.weight" in rest and not any(name in rest for name in layers):
            changed |= _from_norm(norm, layers, found, theta, model)
    if not changed:
        return {}
    quantized = [name for name in found if name not in rest]
    changed |= _between_layers(quantized, {**found, **changed}, theta, model)
    before, after = (_logits(model, tensors, ids) for tensors in (dict(found), {**found, **changed}))
    same = torch.linalg.vector_norm(after - before) <= _SAME * torch.linalg.vector_norm(before)
    return changed if same else {}


def _from_norm(
    norm: str, layers: list[str], found: Mapping[str, Tensor], theta: Weights, model: nn.Module
) -> dict[str, Tensor]:
    """Θ's norm, and the layers behind it with n̂ / n taken into their inputs; empty where that does not explain n̂."""
    stored, own = found[f"{norm}.weight"], theta[f"{norm}.weight"]
    ratio = torch.where(own == stored, 1.0, stored / own)  # 1/s
    if not bool(ratio.isfinite().all()) or not bool((ratio > 0).all()):
        return {}
    moved = {name: found[name] * (ratio[:, None] if _is_transposed(model, name) else ratio) for name in layers}
    if not all(_is_nearer(moved[name], found[name], theta[name]) for name in layers):
        return {}
    moved[f"{norm}.weight"] = own
    if (bias := f"{norm}.bias") in theta:
        if not torch.allclose(found[bias] / ratio, theta[bias], rtol=_HALF, atol=0):
            return {}
        moved[bias] = theta[bias]
    return moved


def _between_layers(names: list[str], now: Mapping[str, Tensor], theta: Weights, model: nn.Module) -> dict[str, Tensor]:
    """Pairs of linear layers of one block, the rows of the first and the inputs of the second scaled back."""
    changed: dict[str, Tensor] = {}
    matrices = [name for name in names if theta[name].ndim == 2]
    for first in matrices:
        rows, own = (_by_output(model, first, tensor) for tensor in (now[first], theta[first]))
        scale = (rows * own).sum(1) / rows.square().sum(1)
        bias = f"{first.removesuffix('.weight')}.bias"
        if bias in theta:  # divided by the same scales, and not rounded to a grid: it knows them better
            scale = torch.where(now[bias] == 0, scale, theta[bias] / now[bias])
        if not bool(scale.isfinite().all()) or not bool((scale > 0).all()):
            continue
        for second in matrices:
            inputs = _by_output(model, second, now[second])
            if second == first or _block(second) != _block(first) or inputs.shape[1] != len(scale):
                continue
            if _explains(1 / scale, inputs, _by_output(model, second, theta[second])):
                changed[first] = _by_output(model, first, rows * scale[:, None])
                changed[second] = _by_output(model, second, inputs / scale)
                if bias in theta:
                    changed[bias] = theta[bias]
                break
    return changed


def _explains(factors: Tensor, inputs: Tensor, own: Tensor) -> bool:
    """Whether these factors are the ones that bring the inputs of a matrix back to `own`, by their correlation.

    Distances would not do: a factor that all inputs share brings many a matrix nearer.
    """
    best = (inputs * own).sum(0) / inputs.square().sum(0).clamp_min(torch.finfo(inputs.dtype).tiny)
    alike = float(torch.corrcoef(torch.stack([factors, best]).double())[0, 1])
    return alike > _ALIKE and _square(inputs * factors - own) < _square(inputs - own)


def _is_nearer(moved: Tensor, stored: Tensor, own: Tensor) -> bool:
    """Whether the move goes towards `own`, and far enough that the rounding of entries cannot feign it."""
    after = _square(moved - own)
    return after < _square(stored - own) and _square(moved - stored) > _SURE**2 * after / own.numel()


def _fed_by_norms(model: nn.Module, ids: Tensor) -> dict[str, list[str]]:
    """The weights of the linear layers whose input is what a norm gives out, by the norm's name."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}  # tied ones go under one name
    outputs: list[tuple[str, Tensor]] = []
    fed: dict[str, list[str]] = {}

    def leaves(norm: str) -> Any:
        return lambda module, inputs, output: outputs.append((norm, output))

    def enters(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        for norm, output in outputs:
            if inputs and inputs[0] is output:
                fed.setdefault(norm, []).append(first[id(module.weight)])

    with ExitStack() as hooks, torch.no_grad():
        for name, module in model.named_modules():
            weight = getattr(module, "weight", None)
            if isinstance(weight, nn.Parameter) and weight.ndim == 1:
                hooks.callback(module.register_forward_hook(leaves(name)).remove)
            elif isinstance(weight, nn.Parameter) and weight.ndim == 2:
                hooks.callback(module.register_forward_pre_hook(enters).remove)
        model(input_ids=ids, use_cache=False)
    return fed


def _logits(model: nn.Module, tensors: dict[str, Tensor], ids: Tensor) -> Tensor:
    with torch.no_grad():
        return functional_call(model, tensors, (), {"input_ids": ids, "use_cache": False}).logits.double()


def _square(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) ** 2


def _block(name: str) -> str:
    """A tensor's name up to the number of its block."""
    parts = name.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else name


def _by_output(model: nn.Module, name: str, tensor: Tensor) -> Tensor:
    return tensor.T if _is_transposed(model, name) else tensor


def _is_transposed(model: nn.Module, name: str) -> bool:
    return is_transposed(model.get_submodule(name.rpartition(".")[0]))
