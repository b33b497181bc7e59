"""Θ̂ out of a packed checkpoint, in the coordinates of Θ, and what it has in common with Θ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from landscape.errors import LandscapeError, ModelError
from landscape.models.checkpoint import Checkpoint
from landscape.packed import awq, bitsandbytes, compressed_tensors, gguf, gptq, scales, torchao
from landscape.packed.formats import is_packed, settings_of
from landscape.packed.places import Places
from landscape.packed.report import PackedLayer, PackedReport
from landscape.packed.stored import Dense, Settings, read_json
from landscape.weights import Weights, check_same_space

_READERS: dict[str, Callable[[Path, Settings, nn.Module], Iterator[Dense]]] = {
    "gptq": gptq.read,
    "awq": awq.read,
    "bitsandbytes": bitsandbytes.read,
    "compressed-tensors": compressed_tensors.read,
    "torchao": torchao.read,
    "gguf": gguf.read,
}
FORMATS = tuple(_READERS)

_FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)  # to fewer bits it is quantization
_ANOTHER = 1.2  # times ‖W‖; independent matrices of one norm lie √2 apart, a rounding to two bits about 0.6
_SLACK = 2.0**-20  # of the largest entry: arithmetic in float32 on the way, as for norms stored as 1 + w


def load_dense(checkpoint: Checkpoint, theta: Weights, model: nn.Module) -> tuple[Weights, PackedReport]:
    """Θ̂: what the codes of a packed `checkpoint` stand for, in float32, with the names, order and shapes of Θ.

    Tensors that are not quantized come as they are stored, and must be those of Θ up to the rounding of their dtype.
    Nothing that came with the checkpoint is executed.

    Args:
        checkpoint: the packed one.
        theta: Θ, of the float model.
        model: the float model that Θ belongs to, for its architecture, layers and tied names.

    Raises:
        ModelError: not packed, in a format that is not in `FORMATS`, damaged, or of another model or checkpoint.
        MissingExtraError: the package that unpacks the format is not installed.
    """
    check_same_space(theta, Weights.of(model))
    form = is_packed(checkpoint)
    if form not in _READERS:
        what = f"packed in the format {form}" if form else "not packed"
        raise ModelError(f"model {checkpoint}: {what}; expected a checkpoint in one of {', '.join(FORMATS)}")
    found = _read(form, checkpoint, theta, model)
    values = {name: dense.tensor.to(theta[name].device, torch.float32) for name, dense in found.items()}
    rest = {name for name, dense in found.items() if dense.bits is None}
    changed: dict[str, Tensor] = {}
    if any(not _is_rounding(found[name].tensor, theta[name]) for name in rest):
        changed = scales.undo(values, theta, rest, model)
    for name in theta:
        if name in rest and name not in changed and not _is_rounding(found[name].tensor, theta[name]):
            raise ModelError(
                f"model {checkpoint}: {name} is not quantized, yet differs from Θ's by "
                f"{_apart(values, theta, name):.1e} of its largest entry, more than rounding to {_dtype(found[name])} "
                "explains; expected a quantization of this very checkpoint"
            )
    values |= changed
    dense = Weights({name: values[name] for name in theta})
    layers = tuple(_layer(name, found[name], theta, dense) for name in theta if name not in rest)
    for layer in layers:
        if not layer.weight_error < _ANOTHER:
            raise ModelError(
                f"model {checkpoint}: {layer.name} lies {layer.weight_error:.2f}·‖W‖ away from Θ's, as far as another "
                "matrix would; expected a quantization of this very checkpoint"
            )
    report = PackedReport(
        format=form,
        layers=layers,
        quantized_parameters=sum(theta[layer.name].numel() for layer in layers),
        total_parameters=theta.numel(),
        rest_difference=max((_apart(dense, theta, name) for name in rest), default=0.0),
        rest_dtypes=tuple(sorted({_dtype(found[name]) for name in rest})),
        rescaled=tuple(name for name in theta if name in changed),
    )
    return dense, report


def _read(form: str, checkpoint: Checkpoint, theta: Weights, model: nn.Module) -> dict[str, Dense]:
    """Every tensor of Θ from the checkpoint, by its name in Θ and in its layout."""
    _check_type(checkpoint, model)
    places = Places(model, theta)
    found: dict[str, Dense] = {}
    try:
        for dense in _READERS[form](checkpoint.folder, settings_of(checkpoint.folder), model):
            placed = places.place(dense)
            if placed is None:
                continue
            name, tensor = placed
            if name in found and not torch.equal(found[name].tensor.float(), tensor.float()):
                raise ModelError(
                    f"tensors {found[name].name} and {dense.name} are one in the float model, and differ here; "
                    "expected a model with tied weights"
                )
            found[name] = replace(dense, tensor=tensor)
    except ModelError as error:
        raise ModelError(f"model {checkpoint}: {error}") from error
    except LandscapeError:
        raise
    except Exception as error:  # the packages that unpack raise many kinds; each means that these files do not fit
        raise ModelError(
            f"model {checkpoint}: cannot be unpacked ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    if missing := [name for name in theta if name not in found]:
        raise ModelError(
            f"model {checkpoint}: {len(missing)} tensors of Θ are not in the files ({missing[0]}, …); expected a "
            "complete checkpoint of the same model"
        )
    return found


def _check_type(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Name the architectures where they differ, before some tensor does."""
    stored = read_json(checkpoint.folder / "config.json").get("model_type")
    own = getattr(getattr(model, "config", None), "model_type", None)
    if stored and own and stored != own:
        raise ModelError(f"model {checkpoint}: a {stored}, and Θ is of a {own}; expected the same architecture")


def _is_rounding(stored: Tensor, weight: Tensor) -> bool:
    """Whether a tensor is Θ's, rounded to the dtype it is stored in, and perhaps to 16 bits on the way."""
    if stored.dtype not in _FLOATS:
        return False
    slack = _SLACK * float(weight.abs().max())
    for first in (weight, weight.bfloat16(), weight.half()):
        if bool(((stored.to(weight) - first.to(stored.dtype).to(weight)).abs() <= slack).all()):
            return True
    return False


def _apart(a: Mapping[str, Tensor], b: Mapping[str, Tensor], name: str) -> float:
    """max|a − b| / max|b|."""
    largest = float(b[name].abs().max())
    return float((a[name] - b[name]).abs().max()) / largest if largest else float(a[name].abs().max())


def _layer(name: str, stored: Dense, theta: Weights, dense: Weights) -> PackedLayer:
    step = float(torch.linalg.vector_norm(dense[name] - theta[name], dtype=torch.float64))
    whole = float(torch.linalg.vector_norm(theta[name], dtype=torch.float64))
    return PackedLayer(
        name=name,
        bits=stored.bits or 0,
        bits_per_weight=stored.stored_bits / theta[name].numel(),
        step_norm=step,
        weight_error=step / whole if whole else 0.0 if not step else math.inf,
        activations=stored.activations,
    )


def _dtype(dense: Dense) -> str:
    return str(dense.tensor.dtype).removeprefix("torch.")
