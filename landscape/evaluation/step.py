"""The part of an evaluation that looks at δ = Θ̂ − Θ itself: what the second order says of it, and how far that holds.

    L(Θ + tδ) − L(Θ) ≈ t g·δ + ½ t² δᵀHδ

g·δ and δᵀHδ come from one exact product. Their standard errors come from the windows: differences of each window's loss
at ±hδ are its share of both.

Were the errors of rounding independent, only the diagonal of H would count: E δᵀHδ = Σ H_ii δ_i². How far δᵀHδ lies
below is what a quantizer gained by letting errors make up for one another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from landscape import curvature, inputs, packed
from landscape.config import EvaluateConfig
from landscape.errors import ModelError
from landscape.losses import WindowLosses, standard_error, window_losses
from landscape.models import load_model
from landscape.models.checkpoint import Checkpoint
from landscape.objective import TokenCrossEntropy, batches
from landscape.reporting import Reporter
from landscape.tokens import Windows
from landscape.weights import Weights, check_same_space

PROFILE = (-1.0, -0.5, -0.25, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # steps δ from Θ at which the loss is evaluated
_APART = 2e-3  # ‖hδ‖/‖Θ‖ at least: closer, the last digits of float32 losses show
_CLOSEST = 0.25  # h at least
_NOISE = 2e-7  # of the loss: a shallower dip cannot be told from rounding
_PROBES = 4  # of the diagonal: 1 to 2 % of it on small models
_AT_ONCE = 4096  # tokens of the windows whose graph is held at a time


@dataclass
class Step:
    """What every δ of one checkpoint is measured with; graphs and Θ_{K−1} are made when first needed.

    Attributes:
        config: of the evaluation.
        previous: Θ_{K−1}, or None.
        windows: how many of the evaluation windows curvature is measured on, the first ones.
    """

    config: EvaluateConfig
    previous: Checkpoint | None
    windows: int
    _ready: _Ready | None = field(default=None, repr=False)

    @classmethod
    def prepare(cls, config: EvaluateConfig, checkpoint: Checkpoint, text: inputs.Text) -> Step:
        """Find Θ_{K−1}, and count the windows.

        Raises:
            ModelError: nothing by that name.
        """
        previous = packed.find(config.prev, checkpoint, config.remote_code) if config.prev else None
        windows = text.evaluation
        wanted = (config.curvature_tokens or text.defaults.curvature_tokens) - (config.seq_len or windows.ids.shape[1])
        before = windows.lengths.cumsum(0) - windows.lengths  # tokens in the windows before each
        return cls(config, previous, max(1, int((before <= wanted).sum())))  # as WindowReader.take_tokens counts

    @property
    def identity(self) -> dict[str, Any]:
        """What changes its numbers."""
        previous = self.previous.identity if self.previous else None
        return {"windows": self.windows, "prev": previous, "diagonal_probes": self._probes}

    @property
    def _probes(self) -> int:
        return _PROBES if self.config.diagonal_probes is None else self.config.diagonal_probes

    def measure(
        self, loaded: inputs.Loaded, text: inputs.Text, hat: Weights, name: str, reporter: Reporter
    ) -> dict[str, Any]:
        """Everything about `hat` − Θ, as it is stored; empty where Θ̂ is Θ.

        Raises:
            CurvatureError: a model that cannot be differentiated twice.
        """
        changed = [
            n for n in loaded.theta if hat[n] is not loaded.theta[n] and not torch.equal(hat[n], loaded.theta[n])
        ]
        if not changed:
            return {}
        ready = self._ready = self._ready or self._prepare(loaded, text, reporter)
        reporter.stage(f"along the step of {name}")
        delta = ready.operator.space.flatten(hat) - ready.operator.theta
        found = curvature.along(ready.operator, delta)
        diagonal = self._diagonal(ready.operator, delta)
        norm = loaded.theta.norm()
        h = max(_CLOSEST, _APART * norm / found.length)

        def at(t: float) -> WindowLosses:
            moved = {n: torch.lerp(loaded.theta[n], hat[n], t) for n in changed}
            return window_losses(ready.objective, {**loaded.theta, **moved})

        low, high = at(-h), at(h)
        here = ready.losses
        slopes = (high.sums - low.sums) / (2 * h)
        bends = (high.sums - 2 * here.sums + low.sums) / h**2
        predicted = slopes + bends / 2
        profile = [at(t) for t in PROFILE]
        actual = profile[PROFILE.index(1.0)].sums - here.sums
        return {
            "windows": self.windows,
            "tokens": int(here.counts.sum()) + self.windows,
            "loss": here.mean,
            "length": found.length,
            "relative_length": found.length / norm,
            "slope": found.slope,
            "slope_se": standard_error(slopes, here.counts),
            "quadratic": found.quadratic,
            "quadratic_se": standard_error(bends, here.counts),
            **({"diagonal": diagonal.value, "diagonal_se": diagonal.standard_error} if diagonal else {}),
            "predicted": found.predicted,
            "predicted_se": standard_error(predicted, here.counts),
            "actual": _mean(actual, here.counts),
            "actual_se": standard_error(actual, here.counts),
            "missed_se": standard_error(predicted - actual, here.counts),
            "profile": {
                "t": list(PROFILE),
                "change": [_mean(each.sums - here.sums, here.counts) for each in profile],
                "change_se": [standard_error(each.sums - here.sums, here.counts) for each in profile],
            },
            "critical": _critical(ready, delta, found, here.mean),
            "previous": self._against(loaded, hat),
            "layers": [
                {"name": layer, "slope": slope, "quadratic": quadratic}
                | ({"diagonal": diagonal.layers[layer][0]} if diagonal else {})
                for layer, (slope, quadratic) in found.layers.items()
                if quadratic or slope
            ],
        }

    def _prepare(self, loaded: inputs.Loaded, text: inputs.Text, reporter: Reporter) -> _Ready:
        reporter.stage("gradient")
        some = slice(0, self.windows)
        few = Windows(text.evaluation.ids[some], text.evaluation.lengths[some])
        device = next(iter(loaded.theta.values())).device
        objective = TokenCrossEntropy(loaded.model, batches(few, self.config.batch_size, device))
        size = max(1, _AT_ONCE // few.ids.shape[1])
        operator = curvature.Hessian(TokenCrossEntropy(loaded.model, batches(few, size, device)), loaded.theta)
        back = None
        if self.previous is not None:
            previous = Weights.of(load_model(self.previous, str(device), remote_code=self.config.remote_code))
            try:
                check_same_space(loaded.theta, previous)
            except ModelError as error:
                raise ModelError(f"--prev {self.previous}: {error}") from error
            back = loaded.theta - previous
        return _Ready(objective, operator, window_losses(objective, loaded.theta), back)

    def _diagonal(self, operator: curvature.Hessian, delta: torch.Tensor) -> curvature.Trace | None:
        """Σ H_ii δ_i², in all and by layer; None where it is not wanted."""
        if not self._probes:
            return None
        rounds = curvature.Budget(0.0, self._probes, self._probes)
        layers = operator.space.layers()
        return curvature.hutchinson(curvature.Scaled(operator, delta), rounds, self.config.seed, layers=layers)

    def _against(self, loaded: inputs.Loaded, hat: Weights) -> dict[str, Any]:
        """‖Θ_K − Θ_{K−1}‖, and the cosine between that step and δ."""
        if self._ready is None or self._ready.back is None:
            return {}
        back, delta = self._ready.back, hat - loaded.theta
        lengths = back.norm() * delta.norm()
        return {
            "name": str(self.previous),
            "distance": back.norm(),
            "cosine": back.dot(delta) / lengths if lengths else math.nan,
        }


@dataclass(frozen=True)
class _Ready:
    """Of one checkpoint, for all its quantizers; `back` is Θ_K − Θ_{K−1}."""

    objective: TokenCrossEntropy
    operator: curvature.Hessian
    losses: WindowLosses
    back: Weights | None


def _critical(
    ready: _Ready, delta: torch.Tensor, found: curvature.DirectionCurvature, loss: float
) -> dict[str, float | int]:
    """How far along ±δ, downhill at first, the loss stays below its start, in steps δ; 2/η is a sharpness.

    Where the dip, (g·δ)²/(2 δᵀHδ), drowns in rounding, there is no answer.
    """
    nothing = {"step": math.nan, "sharpness": math.nan, "relative_width": math.nan, "passes": 0}
    if not (found.slope and found.quadratic > 0) or found.slope**2 / (2 * found.quadratic) < _NOISE * loss:
        return nothing
    along = curvature.LossAlong(ready.objective, Weights.of(ready.objective.model))
    direction = delta if found.slope < 0 else -delta
    critical = curvature.critical_step(along, direction, 2 * abs(found.slope) / found.quadratic, limit=64)
    return {
        "step": critical.step,
        "sharpness": critical.sharpness,
        "relative_width": critical.relative_width,
        "passes": critical.passes,
    }


def _mean(shares: np.ndarray, counts: np.ndarray) -> float:
    return float(shares.sum() / counts.sum())
