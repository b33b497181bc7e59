"""The diagonal by which Adam divides, for `Preconditioned`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from landscape.curvature.parameters import ParameterSpace
from landscape.errors import CurvatureError
from landscape.machine.ranks import ALONE, Ranks
from landscape.objective import Objective


def diagonal_from_state(state: Mapping[str, Any], names: Sequence[str], space: ParameterSpace) -> Tensor:
    """√v̂ + ε from the `state_dict()` of torch's Adam or AdamW, over the parameters of `space` (n,).

    Args:
        state: the optimizer's state, with bias-corrected v̂ = exp_avg_sq/(1 − β₂ᵗ).
        names: the parameters' names in the order the optimizer got them, group after group.
        space: which of them, in which order.

    Raises:
        CurvatureError: a parameter without second moments, or of another shape.
    """
    found = {}
    for group in state["param_groups"]:
        for index in group["params"]:
            moments = state["state"].get(index)
            if moments is None or "exp_avg_sq" not in moments or index >= len(names):
                continue
            corrected = moments["exp_avg_sq"].double() / (1 - group["betas"][1] ** float(moments["step"]))
            found[names[index]] = (corrected.sqrt() + group["eps"]).float()
    for name, shape in zip(space.names, space.shapes, strict=True):
        if name not in found or found[name].shape != shape:
            raise CurvatureError(
                f"optimizer state: no second moments of shape {tuple(shape)} for {name}; expected the state of Adam or "
                "AdamW, and the names in the order the optimizer got its parameters"
            )
    return space.flatten(found)


def diagonal_from_gradients(
    objective: Objective,
    weights: Mapping[str, Tensor],
    space: ParameterSpace,
    eps: float = 1e-8,
    ranks: Ranks = ALONE,
) -> Tensor:
    """√(mean over batches of g_b²) + ε (n,): Adam's diagonal if it went on with these batches at a fixed Θ.

    The batches should be of the size the optimizer saw: the noise in g_b is part of what Adam divides by.
    """
    leaves = {name: weights[name].detach().clone().requires_grad_() for name in space.names}
    at = {name: tensor.detach() for name, tensor in weights.items()} | leaves
    total = torch.zeros(space.n, dtype=torch.float64, device=next(iter(leaves.values())).device)
    batches = 0
    for index in ranks.share(len(objective.batches)):
        loss, count = objective(at, objective.batches[index])
        if not count:
            continue
        batches += 1
        pieces = torch.autograd.grad(loss / count, list(leaves.values()), materialize_grads=True)
        total += torch.cat([piece.reshape(-1) for piece in pieces]).double() ** 2
    batches = sum(ranks.collect(batches))
    if not batches:
        raise CurvatureError("the batches hold no target: there are no gradients to estimate a preconditioner from")
    return ((ranks.sum(total) / batches).sqrt() + eps).to(next(iter(leaves.values())).dtype)
