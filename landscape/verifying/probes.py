"""Random probes: samples of the trace drawn again by seed and number, a probe of the density by its moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from landscape import curvature
from landscape.curvature import vectors
from landscape.curvature.loss_differences import STEP
from landscape.curvature.probes import rademacher
from landscape.reporting import Reporter
from landscape.verifying import layers
from landscape.verifying.operators import Again
from landscape.verifying.verdict import Item, Verdict
from landscape.verifying.yardstick import FLOAT64

_DERIVED = "float64 rounding"
_ROUNDED = 1e-5  # share of a sum of float32 products
_NOISE = 1e-6  # of a loss: of differences between losses in float32
_FEWER = 4  # probes, where so many times as many cells are asked for
_MOMENTS = ("first", "second")


def check_trace(
    verdict: Verdict,
    sections: Mapping[str, Mapping[str, Any]],
    again: Again,
    rng: np.random.Generator,
    count: int,
    reporter: Reporter,
) -> None:
    """The mean and error of the stored samples, and some of the samples themselves."""
    section, measure = sections["trace"], again.measure
    samples = np.asarray(section["samples"], dtype=float)
    verdict.add("trace: rounds", section["rounds"], len(samples))
    mean, error = float(samples.mean()), float(samples.std(ddof=1) / math.sqrt(len(samples)))
    size = FLOAT64 * max(abs(mean), float(np.abs(samples).max()))
    verdict.add("trace, the mean of its samples", section["value"], mean, size, _DERIVED)
    by_losses = section["method"] == "second differences"
    verdict.add("trace: standard error", section["standard_error"], error, size, _DERIVED, at_most=by_losses)
    if "trace/layers" in sections:
        total = math.fsum(sections["trace/layers"]["value"].tolist())
        verdict.add("trace, the sum of its tensors", section["value"], total, _ROUNDED * abs(total), "float32 rounding")
    update = reporter.stage("probes of the trace again")
    chosen = layers.some(rng, len(samples), -(-count // _FEWER))
    found = []
    for done, index in enumerate(chosen):
        update(done, len(chosen))
        found.append(_sample(again, index, by_losses))
    shift = 0.0
    if by_losses:  # the samples are corrected for the finite step by one number, whose size is stored
        shift = float(section["disagreement"])
        off = [float(samples[i]) - value for i, value in zip(chosen, found, strict=True)]
        shift = math.copysign(shift, sum(off))
    if not by_losses:  # vectors are multiplied in blocks, and where one lies in a block decides its last digits
        tolerance, why = _ROUNDED * float(np.abs(samples).max()), "float32 rounding"
    elif measure.exact:  # a sample plus its correction, added up in another order
        tolerance, why = size, measure.why
    else:
        tolerance, why = _noise(again), "rounding of losses, over the step squared"
    for index, value in zip(chosen, found, strict=True):
        verdict.add(f"trace: sample {index}", float(samples[index]), value + shift, tolerance, why)


def _sample(again: Again, index: int, by_losses: bool) -> float:
    """What probe `index` gives; before it stand made-up samples that differ, so that the sampling goes on."""
    config, budget = again.config, curvature.Budget(0.0, 2, max(2, index + 1))
    found: list[np.ndarray] = []
    if by_losses:
        before = np.column_stack([np.arange(index, dtype=float), np.full(index, np.nan)])
        only = again.operator.space.names
        curvature.trace_by_losses(
            again.loaded.objective, again.loaded.theta, only, budget, config.seed, known=before, on_round=found.append
        )
    else:
        before = np.arange(index, dtype=float)[:, None]
        known = before if index else None
        curvature.hutchinson(again.seen, budget, config.seed, 1, known=known, on_round=found.append)
    return float(found[-1][index, 0])


def _noise(again: Again) -> float:
    """How far rounding moves a second difference, h as `trace_by_losses` takes it."""
    operator = again.operator
    h = STEP * vectors.norm(operator.space.flatten(again.loaded.theta)) / math.sqrt(operator.n)
    return 4 * _NOISE * operator.loss() / h**2


def check_density(
    verdict: Verdict, section: Mapping[str, Any], again: Again, rng: np.random.Generator, reporter: Reporter
) -> None:
    """Its nodes by the moments of one probe, and what is drawn of it by the nodes."""
    nodes, weights = np.asarray(section["nodes"]), np.asarray(section["weights"])
    found = curvature.Density(nodes, weights, int(section["n"]), 0)
    smooth, error = found.smoothed(section["points"], float(section["width"]))
    counts = np.array([found.above(threshold) for threshold in section["thresholds"]])
    drawn = {"density": smooth, "standard_error": error, "above": counts[:, 0], "above_standard_error": counts[:, 1]}
    items = [
        Item(f"{name} {i}", float(told), float(here), 1e-6 * float(np.abs(values).max()) + 1e-300, _DERIVED)
        for name, values in drawn.items()
        for i, (told, here) in enumerate(zip(section[name], values, strict=True))
    ]
    verdict.add_worst("density as its nodes give it", items)
    index = int(rng.integers(len(nodes)))
    reporter.stage("a probe of the density again")
    probe = rademacher(again.seen.n, again.seen.empty(), again.config.seed, index)
    probe /= vectors.norm(probe)
    image = again.seen @ probe
    here = (vectors.dot(probe, image), vectors.dot(image, image))
    for order, name, value in zip((1, 2), _MOMENTS, here, strict=True):
        if 2 * nodes.shape[1] - 1 >= order:
            told = float((weights[index] * nodes[index] ** order).sum())
            size = _ROUNDED * float((weights[index] * np.abs(nodes[index]) ** order).sum())
            verdict.add(f"density: {name} moment of probe {index}", told, value, size, "float32 rounding")
    verdict.skipped.append("the Lanczos iterations of the density: two moments of one probe stand for them")
