"""Optimizers of torch, with the rules for weight decay that the papers compare.

With λ the decay, η the rate of a step and η_max the peak rate, a step begins with Θ ← (1 − c)Θ, where c is

    adamw   ηλ          (arXiv 1711.05101, as torch has it)
    adamlh  ηλ/η_max    (decoupled from the peak rate)
    adamc   η²λ/η_max   (arXiv 2506.02285)

so that the last two are AdamW with a decay of λ/η_max and of λη/η_max. SGD adds λΘ to the gradient, as torch has it,
so that its decay goes through the momentum. Matrices decay; norms and biases never do.
Defaults are those of arXiv 2510.06213.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from landscape.errors import OptionError, TrainingError

_ADAM: dict[str, Any] = {"peak": 3e-3, "weight_decay": 0.1, "betas": [0.9, 0.95], "eps": 1e-8, "fused": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "adamw": _ADAM,
    "adamlh": _ADAM,
    "adamc": _ADAM,
    "sgd": {"peak": 0.1, "weight_decay": 0.0, "momentum": 0.9, "nesterov": False},
    "muon": _ADAM | {"momentum": 0.95},
}
DECAYS: dict[str, Callable[[float, float, float], float]] = {  # (λ, η, η_max) → decay as torch takes it
    "adamlh": lambda decay, rate, peak: decay / peak,
    "adamc": lambda decay, rate, peak: decay * rate / peak,
}


def check(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with what they leave out.

    Raises:
        OptionError: no such kind, or a setting that it does not have, or a value that cannot be.
    """
    kind = settings["kind"]
    if not isinstance(kind, str) or kind not in SETTINGS:
        raise OptionError(f"optimizer {kind}: expected one of {', '.join(SETTINGS)}")
    for name, value in settings.items():
        if name == "kind":
            continue
        if name not in SETTINGS[kind]:
            raise OptionError(f"optimizer {kind}: has no {name}; expected some of {', '.join(SETTINGS[kind])}")
        if not _fits(name, value):
            raise OptionError(f"optimizer {kind}: {name}={value}; expected {_EXPECTED.get(name, 'a number above 0')}")
    chosen = SETTINGS[kind] | dict(settings)
    if chosen.get("nesterov") and not chosen["momentum"]:
        raise OptionError(f"optimizer {kind}: momentum={chosen['momentum']}; expected one above 0 with nesterov")
    return chosen


_EXPECTED = {
    "weight_decay": "a number of at least 0",
    "momentum": "a number from 0 to below 1",
    "betas": "two numbers from 0 to below 1",
    "fused": "true or false",
    "nesterov": "true or false",
}


def _fits(name: str, value: Any) -> bool:
    if name in ("fused", "nesterov"):
        return isinstance(value, bool)
    if name == "betas":
        return isinstance(value, list | tuple) and len(value) == 2 and all(_fits("momentum", each) for each in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if name == "momentum":
        return 0 <= value < 1
    return (value >= 0 if name == "weight_decay" else value > 0) and value <= sys.float_info.max


@dataclass(frozen=True)
class Updater:
    """Optimizers that together hold all trainable parameters, and how they follow the rate."""

    parts: list[Any]
    decay: Callable[[float], float]  # rate → decay as torch takes it

    def step(self, rate: float) -> None:
        """One update at this rate; gradients are gone afterwards."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate
                if group["decays"]:
                    group["weight_decay"] = self.decay(rate)
            part.step()
            part.zero_grad(set_to_none=True)


def build(model: Any, settings: Mapping[str, Any]) -> Updater:
    """The optimizers over the trainable parameters of a transformers model.

    Raises:
        OptionError: as `check`.
        TrainingError: this torch has no such optimizer.
    """
    import torch

    chosen = check(settings)
    kind, peak, decay = chosen["kind"], float(chosen["peak"]), float(chosen["weight_decay"])
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if kind == "sgd":
        momentum = {"momentum": chosen["momentum"], "nesterov": chosen["nesterov"]}
        parts: list[Any] = [torch.optim.SGD(_groups(trainable, decay), lr=peak, **momentum)]
    else:
        matrices = _hidden_matrices(model) if kind == "muon" else set()
        rest = [parameter for parameter in trainable if parameter not in matrices]
        adam: dict[str, Any] = {"betas": tuple(map(float, chosen["betas"])), "eps": float(chosen["eps"])}
        if chosen["fused"]:  # where it is false, torch chooses
            adam["fused"] = True
        parts = [torch.optim.AdamW(_groups(rest, decay), lr=peak, **adam)]
        if kind == "muon":
            if not hasattr(torch.optim, "Muon"):
                raise TrainingError(f"optimizer muon: torch {torch.__version__} has none; expected 2.9 or newer")
            own: dict[str, Any] = {"momentum": chosen["momentum"]}
            own["adjust_lr_fn"] = "match_rms_adamw"  # one rate serves both
            groups = _groups([parameter for parameter in trainable if parameter in matrices], decay)
            parts.append(torch.optim.Muon(groups, lr=peak, **own))  # type: ignore[no-untyped-call]
    return Updater(parts, lambda rate: DECAYS[kind](decay, rate, peak) if kind in DECAYS else decay)


@contextmanager
def ascended(parameters: list[Any], radius: float) -> Iterator[None]:
    """Within, the parameters lie at Θ + ρ g/‖g‖ and have no gradient; afterwards at Θ, to the bit.

    Sharpness-aware minimization (arXiv 2010.01412) takes the gradient there and the step from Θ.
    """
    import torch

    with torch.no_grad():
        moved = [parameter for parameter in parameters if parameter.grad is not None]
        before = [parameter.clone() for parameter in moved]
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in moved])
        for parameter in moved:
            parameter.add_(parameter.grad * (radius / (norm + 1e-12)))
            parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, old in zip(moved, before, strict=True):
                parameter.copy_(old)


def _groups(parameters: list[Any], decay: float) -> list[dict[str, Any]]:
    decayed = [parameter for parameter in parameters if parameter.ndim >= 2]
    plain = [parameter for parameter in parameters if parameter.ndim < 2]
    groups = [
        {"params": decayed, "weight_decay": decay, "decays": True},
        {"params": plain, "weight_decay": 0.0, "decays": False},
    ]
    return [group for group in groups if group["params"]]


def _hidden_matrices(model: Any) -> set[Any]:
    """Matrices between the embeddings (of tokens and of places) and the head: what Muon is for."""
    from torch import nn

    head = model.get_output_embeddings()
    ends = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding) or each is head}
    return {p for p in model.parameters() if p.requires_grad and p.ndim == 2 and id(p) not in ends}
