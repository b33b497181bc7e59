"""Curvature from losses alone: forward passes at the memory of inference.

    zᵀHz ≈ t(h) = [L(Θ + hz) − 2L(Θ) + L(Θ − hz)]/h²,   z random signs, ‖hz‖ about 1 % of ‖Θ‖

Two passes per probe where a product costs six. The error from the finite step does not average out, so some probes are
taken at h and h/2: [4t(h/2) − t(h)]/3 is right up to h⁴, and the mean difference corrects the probes taken at h only.
It fails in bfloat16 and float16, whose losses are too coarse to be subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from landscape.curvature import vectors
from landscape.curvature.parameters import ParameterSpace
from landscape.curvature.probes import rademacher
from landscape.curvature.trace import Budget, Trace, mean_and_error
from landscape.errors import CurvatureError
from landscape.machine.ranks import ALONE, Ranks
from landscape.objective import Objective

STEP = 1e-2  # ‖hz‖/‖Θ‖
_PAIRED = 4  # rounds at both steps, whatever comes
_HARMLESS = 0.25  # of the standard error asked for: a correction known this well needs no more pairs


class Probe(NamedTuple):
    """A batch at Θ + step · z, with the random signs z of this name."""

    name: tuple[int, ...]
    step: float
    batch: int


class Probed(Protocol):
    """A loss around Θ; n parameters may move, and ‖Θ‖ is their norm."""

    n: int
    norm: float

    def probed(self, probes: Sequence[Probe]) -> Iterable[tuple[float, int]]:
        """(Σ losses, count) of each probe, in order."""
        ...


class LossAlong:
    """L(Θ + Δ) for steps Δ within the selected parameters, batch by batch, in one buffer of the size of Θ."""

    def __init__(self, objective: Objective, weights: Mapping[str, Tensor], only: str | Iterable[str] = "*") -> None:
        self.objective = objective
        self.space = ParameterSpace.select(weights, only)
        self.theta = self.space.flatten(weights)
        self.n, self.norm = self.space.n, vectors.norm(self.theta)
        self._moved = torch.empty_like(self.theta)
        self._weights = {name: tensor.detach() for name, tensor in weights.items()}
        self._weights |= self.space.unflatten(self._moved)

    def sums(self, direction: Tensor, step: float, batches: Iterable[int] | None = None) -> tuple[float, int]:
        """(Σ losses, count) at Θ + step · direction over the batches with these indices, or all."""
        torch.add(self.theta, direction, alpha=step, out=self._moved)
        total, count = 0.0, 0
        chosen = range(len(self.objective.batches)) if batches is None else batches
        with torch.no_grad():
            for index in chosen:
                loss, n = self.objective(self._weights, self.objective.batches[index])
                total, count = total + loss.item(), count + n
        return total, count

    def probed(self, probes: Sequence[Probe]) -> Iterator[tuple[float, int]]:
        """`sums` of each probe."""
        for name, some in groupby(probes, lambda probe: probe.name):
            z = rademacher(self.n, self.theta, *name)
            yield from (self.sums(z, probe.step, [probe.batch]) for probe in some)

    def __call__(self, direction: Tensor, step: float) -> float:
        """L(Θ + step · direction)."""
        total, count = self.sums(direction, step)
        return total / count


def trace_by_losses(
    objective: Objective,
    weights: Mapping[str, Tensor],
    only: str | Iterable[str] = "*",
    budget: Budget = Budget(),
    seed: int = 0,
    step: float = STEP,
    known: np.ndarray | None = None,
    on_round: Callable[[np.ndarray], None] | None = None,
    ranks: Ranks = ALONE,
    along: Probed | None = None,
) -> Trace:
    """Tr H by second differences of the loss, with independent probes for every batch.

    Args:
        objective: in float32 or better.
        weights: Θ.
        only: patterns over names.
        budget: when to stop; a round is one probe per batch, 2 or 4 forward passes over the data.
        seed: names the probes; the same as those of `hutchinson`.
        step: ‖hz‖/‖Θ‖.
        known: samples of earlier rounds (rounds, 2), to go on from.
        on_round: called with all samples so far: t(h), and [4t(h/2) − t(h)]/3 or NaN.
        ranks: those that evaluate together, each its own batches.
        along: the loss around Θ, where `LossAlong` is not the way to find it.

    Raises:
        CurvatureError: a non-finite loss at Θ (named by its batch) or near it.
    """
    along = along or LossAlong(objective, weights, only)
    h = step * along.norm / math.sqrt(along.n)
    own = ranks.share(len(objective.batches))
    base = ranks.merged(list(along.probed([Probe((seed,), 0.0, index) for index in own])))
    for index, (loss, _) in enumerate(base):
        if not math.isfinite(loss):
            raise CurvatureError(f"the loss of batch {index} is {loss}: there is no curvature at such a point")
    count = sum(c for _, c in base)
    if not h or not count:
        raise CurvatureError("weights of length zero, or batches without targets: no differences can be taken")
    rows = [] if known is None else [tuple(row) for row in known]
    while True:
        value, error, correction = _combine(rows)
        if len(rows) >= _PAIRED and budget.met(value, error, len(rows)):
            break
        unsure = len(rows) < _PAIRED or correction[1] > _HARMLESS * max(budget.relative_error * abs(value), 0.0)
        steps = (h, h / 2) if unsure else (h,)
        probes = [Probe((seed, len(rows), i), sign * t, i) for i in own for t in steps for sign in (1, -1)]
        losses = iter([loss for loss, _ in along.probed(probes)])
        shares = ranks.merged([[(next(losses) - 2 * base[i][0] + next(losses)) / t**2 for t in steps] for i in own])
        coarse = sum(share[0] for share in shares)
        fine = sum(share[1] for share in shares) if unsure else math.nan
        if not math.isfinite(coarse):
            raise CurvatureError(
                f"the loss is not finite at {step:.1%} of ‖Θ‖ from Θ: take products, or a smaller step"
            )
        rows.append((coarse / count, (4 * fine - coarse) / (3 * count)))
        if on_round is not None:
            on_round(np.array(rows))
    samples = np.array(rows)
    return Trace(
        value,
        error,
        samples[:, 0] + correction[0],
        bool(error <= budget.relative_error * abs(value)),
        0,
        "second differences",
        disagreement=abs(correction[0]),
    )


def _combine(rows: list[tuple[float, float]]) -> tuple[float, float, tuple[float, float]]:
    """The estimate, its standard error, and the correction for the finite step with its own."""
    samples = np.array(rows).reshape(len(rows), 2)
    coarse = mean_and_error(samples[:, 0])
    differences = (samples[:, 1] - samples[:, 0])[np.isfinite(samples[:, 1])]
    correction = mean_and_error(differences)
    if not len(differences):
        return coarse[0], math.inf, (0.0, math.inf)
    return coarse[0] + correction[0], math.hypot(coarse[1], correction[1]), correction


@dataclass(frozen=True)
class CriticalStep:
    """How far one can go along a direction d before the loss is above its start.

    Attributes:
        step: the smallest η > 0 found with L(Θ + ηd) > L(Θ), to `relative_width`; infinite if none up to the limit.
        sharpness: 2/η: for d = −∇L on a quadratic with that gradient as eigenvector, its eigenvalue.
        relative_width: of the bracket around η.
        passes: evaluations of the loss.
    """

    step: float
    sharpness: float
    relative_width: float
    passes: int


def critical_step(
    along: LossAlong, direction: Tensor, guess: float, width: float = 0.05, limit: float = 2.0**30
) -> CriticalStep:
    """The critical step along `direction` by doubling and bisection (Kalra et al. 2026, arXiv 2601.16979).

    Args:
        along: the loss.
        direction: d (n,), such as −∇L, an optimizer's update, or Θ̂ − Θ.
        guess: a step to begin with, such as the learning rate.
        width: relative width of the bracket at which to stop.
        limit: give up at this multiple of the guess. Downwards too: a direction along which the loss rises at
            once has step 0 and infinite sharpness.

    Raises:
        CurvatureError: a direction without length, or a guess that is not positive.
    """
    if not vectors.norm(direction) > 0 or not guess > 0:
        raise CurvatureError(
            f"a direction of length {vectors.norm(direction)} and a step of {guess}: expected positive"
        )
    start, passes = along(direction, 0.0), 1

    def rises(step: float) -> bool:
        nonlocal passes
        passes += 1
        return not along(direction, step) <= start  # a loss that is not a number counts as risen

    low, high = 0.0, guess
    if rises(high):
        low = high / 2
        while rises(low):
            low, high = low / 2, low
            if low < guess / limit:
                return CriticalStep(0.0, math.inf, 0.0, passes)
    else:
        while not rises(2 * high):
            high *= 2
            if high > guess * limit:
                return CriticalStep(math.inf, 0.0, 0.0, passes)
        low, high = high, 2 * high
    while (high - low) > width * (middle := 0.5 * (low + high)):
        low, high = (low, middle) if rises(middle) else (middle, high)
    step = 0.5 * (low + high)
    return CriticalStep(step, 2.0 / step, (high - low) / step, passes)
