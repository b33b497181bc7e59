"""The planes that are measured: small trained models, near and far, easy and hard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

import trained
from landscape import slices
from landscape.models import load_model
from landscape.models.references import resolve
from landscape.objective import TokenCrossEntropy, batches, mean
from landscape.quantize import parse, quantize
from landscape.weights import Weights, random_direction

MODELS = ("gpt_neox", "llama", "mini-pythia")
PLANES = ("3-bit", "4-bit", "constant-rate", "far", "random")
WINDOWS = 8  # of 128 tokens for the models of five million parameters, of 256 for the bundled one


@dataclass(frozen=True)
class Problem:
    """A plane of a model, its rectangle, and its losses in float32 and in bfloat16."""

    name: str
    plane: slices.Plane
    bounds: slices.Bounds
    objective: TokenCrossEntropy

    def losses(self, dtype: torch.dtype) -> slices.Losses:
        """In the arithmetic of `dtype`."""
        objective = self.objective

        def exact(weights: Weights) -> float:
            return mean(objective, weights)

        if dtype == torch.float32:
            return slices.Losses(exact, exact)
        lower = replace(objective, dtype=dtype)
        return slices.Losses(lambda weights: mean(lower, weights), exact)


def problem(model: str, plane: str, device: str, tokens: int | None = None) -> Problem:
    """The plane called `plane` of `model`.

    The near ones hold a checkpoint 50 steps back and weights rounded per channel to 3 or 4 bits, with half of their
    spread around them: at the end of training, the rate decayed, or while it is constant. The far one holds a
    checkpoint 400 steps back and 2-bit weights. The random one goes ±‖d‖ along two filter-normalized directions. The
    loss is that on `tokens` tokens, or on `WINDOWS` windows.
    """
    final, near, far = _checkpoints(model, plane)
    network = final.to(device)
    theta = Weights.of(network)
    length = 256 if model == "mini-pythia" else trained.SEQ_LEN
    text = trained.windows("validation", tokens // length if tokens else WINDOWS, length)
    objective = TokenCrossEntropy(network, batches(text, 8, device))
    if plane == "random":
        directions = [random_direction(theta, seed) for seed in (0, 1)]
        points: Mapping[str, Weights] = {"theta": theta}
        spanned = slices.span(theta, *directions, points)
        (a, b) = spanned.lengths
        return Problem(f"{model}, {plane}", spanned, slices.Bounds((-a, a), (-b, b)), objective)
    bits = {"far": 2, "4-bit": 4}.get(plane, 3)
    before = Weights.of((far if plane == "far" else near).to(device))
    hat = quantize(parse(f"rtn-w{bits}-channel"), network)[0]
    spanned = slices.span(theta, before - theta, hat - theta, {"theta": theta, "theta_prev": before, "theta_hat": hat})
    places = [(point.alpha, point.beta) for point in spanned.points.values()]
    return Problem(f"{model}, {plane}", spanned, slices.around(places, 0.5), objective)


def _checkpoints(model: str, plane: str) -> list[torch.nn.Module]:
    """The last, one a little before, and one long before."""
    if model == "mini-pythia":
        last, near = ("step6400", "step4800") if "constant" in plane else ("step8000", "step7200")
        return [load_model(resolve(f"{trained.REFERENCE / model}@{step}"), "cpu") for step in (last, near, "step4800")]
    last = trained.STABLE if "constant" in plane else trained.DECAYED
    return [trained.trained(model, step) for step in (last, last - 50, 150)]
