"""Section `cell`: what one cell of a dense scan costs over a bare forward pass, ours and other packages'."""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import loss_landscapes
import numpy as np
import torch
from loss_landscapes.metrics import Metric
from torch import nn
from torch.nn.functional import cross_entropy

from landscape import slices
from landscape.weights import Weights
from slice_planes import Problem, problem

_SIDE = 7  # cells along each axis: 49 a repeat
TOKENS = 4096  # of an evaluation, as jobs take them by default for models of short context


def cell_section(args: argparse.Namespace) -> None:
    for model in args.models:
        _cell(problem(model, "3-bit", args.device, TOKENS), args.repeats)


def _cell(given: Problem, repeats: int) -> None:
    clock = Clock(given)
    tokens = sum(batch.n_targets for batch in given.objective.batches)
    print(
        f"one cell: {given.name}, {given.plane.origin.numel():,} parameters, {tokens:,} predicted tokens; "
        "over a bare forward pass"
    )
    ways: dict[str, Callable[[], float]] = {
        "scan": lambda: _scan(given, clock),
        "set weights, by hand": lambda: _by_hand(given, clock),
        "loss_landscapes 3.0.6, planar_interpolation": lambda: _loss_landscapes(given, clock),
    }
    clock.bare()
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            clock.reset()
            seconds = way()
            ratios[name].append((seconds - clock.seconds) / clock.seconds)
    for name, values in ratios.items():
        print(f"  {name:<46} {statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})")
    print()


class Clock:
    """Bare forward passes made in turn with what is measured, and the time they took."""

    def __init__(self, given: Problem) -> None:
        self.model, self.batches = given.objective.model, given.objective.batches
        self.device = given.objective.batches[0].ids.device.type
        self.seconds = 0.0

    def reset(self) -> None:
        """Begin anew."""
        self.synchronize()
        self.seconds = 0.0

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def bare(self) -> float:
        """One forward pass of the model as it stands, with torch's cross-entropy, timed."""
        self.synchronize()
        started = time.perf_counter()
        total = loss_of(self.model, self.batches)
        self.seconds += time.perf_counter() - started
        return total


def loss_of(model: nn.Module, data: list) -> float:
    """Mean cross-entropy in nats, in the plainest way."""
    with torch.no_grad():
        total = 0.0
        for batch in data:
            logits = model(input_ids=batch.ids, use_cache=False).logits
            total += float(cross_entropy(logits[:, :-1].flatten(0, 1), batch.ids[:, 1:].flatten(), reduction="sum"))
    return total / sum(batch.n_targets for batch in data)


def _scan(given: Problem, clock: Clock) -> float:
    losses = given.losses(torch.float32)

    def interleaved(weights: Weights) -> float:
        value = losses.scan(weights)
        clock.bare()
        return value

    alpha, beta = (slices.evenly(*side, _SIDE) for side in (given.bounds.alpha, given.bounds.beta))
    named = {name: slices.Named(name) for name in given.plane.points}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slice.h5"
        slices.create(path, slices.Layout(given.plane, alpha, beta, np.zeros(0), named, {}, {}, "key"))
        with slices.SliceWriter(path, "key", given.plane.fingerprint()) as writer:
            started = time.perf_counter()
            slices.scan(writer, given.plane, slices.Losses(interleaved, interleaved))
            return time.perf_counter() - started


def _by_hand(given: Problem, clock: Clock) -> float:
    """A deep copy, its parameters set anew for every cell."""
    plane, model = given.plane, copy.deepcopy(given.objective.model)
    assert plane.v is not None
    parameters = dict(model.named_parameters())
    started = time.perf_counter()
    for a in np.linspace(*given.bounds.alpha, _SIDE).tolist():
        for b in np.linspace(*given.bounds.beta, _SIDE).tolist():
            with torch.no_grad():
                for name, parameter in parameters.items():
                    parameter.copy_(plane.origin[name] + a * plane.u[name] + b * plane.v[name])
            loss_of(model, given.objective.batches)
            clock.bare()
    return time.perf_counter() - started


def _loss_landscapes(given: Problem, clock: Clock) -> float:
    class Interleaved(Metric):
        def __call__(self, wrapper: object) -> float:
            value = loss_of(wrapper.modules[0], given.objective.batches)  # type: ignore[attr-defined]
            clock.bare()
            return value

    ends = []
    for name in ("theta", "theta_prev", "theta_hat"):
        place = given.plane.points[name]
        model = copy.deepcopy(given.objective.model)
        assert given.plane.v is not None
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.add_(place.alpha * given.plane.u[key] + place.beta * given.plane.v[key])
        ends.append(model)
    started = time.perf_counter()
    loss_landscapes.planar_interpolation(*ends, Interleaved(), steps=_SIDE)
    return time.perf_counter() - started
