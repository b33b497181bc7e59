"""compressed-tensors, which llm-compressor writes: packed or plain integers, scales per group, channel or tensor."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from landscape.errors import ModelError
from landscape.packed.stored import Dense, Parts, Settings, TensorFiles, layer_by_layer, load_package

_FORMATS = ("pack-quantized", "int-quantized", "naive-quantized", "float-quantized")
_WEIGHT = ("weight", "weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")
_RUN_TIME = ("input_scale", "input_zero_point", "output_scale", "output_zero_point", "k_scale", "v_scale")
_PURPOSE = "a compressed-tensors checkpoint"
_CONFIGURATION = ("config_groups", "format", "ignore", "kv_cache_scheme", "quant_method", "quantization_status")


def read(folder: Path, settings: Settings, model: nn.Module) -> Iterator[Dense]:
    """Every tensor of a compressed-tensors checkpoint, dense, by the package's own decompression.

    Raises:
        MissingExtraError: compressed-tensors is not installed.
        ModelError: a format that does not say what every weight is, or weights that live in a rotated space.
    """
    library = load_package("compressed_tensors.quantization", _PURPOSE)
    match = load_package("compressed_tensors.utils", _PURPOSE).match_targets
    if (settings.get("transform_config") or {}).get("config_groups"):
        raise ModelError("compressed-tensors checkpoint with transforms: its weights are rotated, Θ's are not")
    if (settings.get("sparsity_config") or {}).get("format", "dense") != "dense":
        raise ModelError("compressed-tensors checkpoint of sparse weights: expected quantized ones only")
    config = library.QuantizationConfig.model_validate(_without_order(settings))
    schemes = {target: scheme for scheme in config.config_groups.values() for target in scheme.targets}

    def scheme_of(layer: str) -> Any:
        try:
            found = match(layer, model.get_submodule(layer), list(schemes))  # the most specific first
        except AttributeError as error:
            raise ModelError(f"layer {layer}: not in the float model; expected the same architecture") from error
        if not found:
            raise ModelError(f"layer {layer}: it is quantized, but no group of the configuration says how")
        return schemes[found[0]]

    def one(layer: str, parts: Parts) -> tuple[Tensor, int]:
        scheme = scheme_of(layer)
        return _decompress(layer, parts, scheme, scheme.format or config.format), scheme.weights.num_bits

    def activations(layer: str) -> bool:
        scheme = scheme_of(layer)
        return bool(scheme.input_activations or scheme.output_activations or config.kv_cache_scheme)

    for dense in layer_by_layer(TensorFiles(folder), "weight_scale", (*_WEIGHT, *_RUN_TIME), one, activations):
        if not dense.name.endswith(_RUN_TIME):  # scales of a quantized cache belong to no layer with weights
            yield dense


def _decompress(layer: str, parts: Parts, scheme: Any, form: str) -> Tensor:
    """(outputs, inputs) in float32, whatever the dtype of the scales."""
    form = getattr(form, "value", form)
    if form not in _FORMATS:
        raise ModelError(f"layer {layer}: compressed-tensors in the format {form}; expected {', '.join(_FORMATS)}")
    parts = {**parts, "weight_scale": parts["weight_scale"].float()}
    group = parts.pop("weight_g_idx", None)
    if "weight_packed" in parts:
        bits, columns = scheme.weights.num_bits, int(parts["weight_shape"][-1])
        if parts["weight_packed"].shape[-1] != math.ceil(columns * bits / 32):
            raise ModelError(f"layer {layer}: {bits}-bit codes with gaps, as older compressed-tensors packed them")
        if group is not None and int(group.min()) >= 0:
            return _scattered(parts, bits, group.long())
    compressors = load_package("compressed_tensors.compressors", _PURPOSE)
    return compressors.BaseCompressor.get_value_from_registry(form).decompress(parts, scheme)["weight"]


def _scattered(parts: Parts, bits: int, group: Tensor) -> Tensor:
    """W = s[g]·(q − z[g]): an activation order, which the package no longer knows; it would take groups in a row."""
    unpack = load_package("compressed_tensors.compressors.pack_quantized.helpers", _PURPOSE).unpack_from_int32
    shape, scale = parts["weight_shape"].tolist(), parts["weight_scale"]
    codes = unpack(parts["weight_packed"], bits, shape).float()
    if "weight_zero_point" in parts:
        codes -= unpack(parts["weight_zero_point"], bits, (shape[0], scale.shape[1]), packed_dim=0)[:, group]
    return codes * scale[:, group]


def _without_order(settings: Settings) -> dict[str, Any]:
    """The configuration that the package reads, without activation orders: it refuses those it no longer makes."""
    found = {key: copy.deepcopy(settings[key]) for key in _CONFIGURATION if key in settings}
    for group in found.get("config_groups", {}).values():
        if isinstance(group, dict) and group.get("weights"):
            group["weights"].pop("actorder", None)
    return found
