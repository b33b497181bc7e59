"""All that a run needs to go on as if it had never stopped: weights, optimizer, random numbers, one file.

safetensors, so that the state of a stranger's run is data and no program. Written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from landscape.errors import TrainingError
from landscape.storage.files import disk_errors
from landscape.training.optimizers import Updater

STATE = "state.safetensors"


def save(path: Path, model: nn.Module, updater: Updater, facts: Mapping[str, Any]) -> None:
    """Write the state, with `facts` (JSON) beside the tensors.

    Raises:
        StoreError: the disk is full, or the place cannot be written.
    """
    tensors = {f"model/{name}": tensor for name, tensor in _model(model).items()}
    moments = _moments(model, updater)
    tensors |= {name: torch.as_tensor(value) for name, value in moments.items()}
    numbers = [name for name, value in moments.items() if not isinstance(value, Tensor)]
    tensors["random/cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random/cuda"] = torch.cuda.get_rng_state()
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors(path):
        try:
            whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            about = {"facts": json.dumps(dict(facts)), "numbers": json.dumps(numbers)}
            save_file(whole, partial, about | {"digest": _digest(whole, about)})
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def load(path: Path, model: nn.Module, updater: Updater) -> dict[str, Any]:
    """Put the state into `model`, `updater` and the random numbers; the facts it was saved with.

    A state without moments of this optimizer's (a fork that changes it) leaves the optimizer as it is: fresh.

    Raises:
        TrainingError: damaged, or of another model.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata()
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts: dict[str, Any] = json.loads(about["facts"])
        numbers: list[str] = json.loads(about["numbers"])
        random = stored["random/cpu"]
        if (digest := about.pop("digest", None)) is not None and digest != _digest(stored, about):
            raise ValueError("its content is not what was written")
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise TrainingError(f"{path.name} of {path.parent.name}: cannot be read ({error}); remove it") from error
    own = _model(model)
    theirs = {name.removeprefix("model/"): tensor for name, tensor in stored.items() if name.startswith("model/")}
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in theirs.items()}:
        raise TrainingError(f"{path.name} of {path.parent.name}: the state of another model; expected the same model")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(theirs[name])
    for number, part in enumerate(updater.parts):
        moments = {}
        for index, prefix in enumerate(_prefixes(model, number, part)):
            found = {key: value for key, value in stored.items() if key.startswith(prefix)}
            if found:
                moments[index] = {
                    key.removeprefix(prefix): value.item() if key in numbers else value for key, value in found.items()
                }
        part.load_state_dict({**part.state_dict(), "state": moments})
    torch.set_rng_state(random)
    if "random/cuda" in stored and torch.cuda.is_available():
        torch.cuda.set_rng_state(stored["random/cuda"])
    return facts


def _digest(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    """SHA-256 over names, types, shapes and bytes, and the words beside them."""
    found = hashlib.sha256(json.dumps(sorted(about.items())).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return found.hexdigest()


def _model(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, a tied one once, and the buffers that checkpoints hold."""
    kept = model.state_dict()
    return dict(model.named_parameters()) | {name: each for name, each in model.named_buffers() if name in kept}


def _moments(model: nn.Module, updater: Updater) -> dict[str, Any]:
    return {
        f"{prefix}{key}": value
        for number, part in enumerate(updater.parts)
        for prefix, state in zip(_prefixes(model, number, part), _by_index(part), strict=True)
        for key, value in state.items()
        if value is not None
    }


def _by_index(part: Any) -> list[dict[str, Any]]:
    """State of each parameter, in the order of the groups; empty before the first update."""
    state = part.state_dict()["state"]
    return [state.get(index, {}) for index in range(sum(len(group["params"]) for group in part.param_groups))]


def _prefixes(model: nn.Module, number: int, part: Any) -> list[str]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    held = [parameter for group in part.param_groups for parameter in group["params"]]
    return [f"optimizer{number}.{type(part).__name__}/{names[parameter]}/" for parameter in held]
