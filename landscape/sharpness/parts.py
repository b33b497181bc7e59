"""The parts of a measurement, each from an operator to a section of the file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from landscape import curvature, inputs, quantize
from landscape.config import SharpnessConfig
from landscape.curvature.ledger import Ledger
from landscape.losses import window_losses
from landscape.machine.memory import available
from landscape.machine.ranks import ALONE, Ranks
from landscape.machine.words import byte_size
from landscape.objective import TokenCrossEntropy
from landscape.reporting import Reporter
from landscape.sharded import ShardedCrossEntropy, ShardedHessian, ShardedProbes
from landscape.streaming import StreamedCrossEntropy, StreamedHessian, StreamedProbes
from landscape.tokens import Windows
from landscape.weights import Weights

_POINTS = 401


def hessian(config: SharpnessConfig, loaded: inputs.Loaded, ranks: Ranks, reporter: Reporter) -> curvature.Operator:
    """The Hessian by the product asked for; says what memory it will take."""
    if isinstance(loaded.objective, ShardedCrossEntropy):
        return ShardedHessian(loaded.objective, loaded.theta, config.patterns)
    if loaded.scratch is not None:
        assert isinstance(loaded.objective, StreamedCrossEntropy)
        return StreamedHessian(loaded.objective, loaded.theta, config.patterns, loaded.scratch)

    def make(objective: TokenCrossEntropy) -> curvature.Hessian | curvature.DifferenceHessian:
        if config.product == "difference":
            return curvature.DifferenceHessian(objective, loaded.theta, config.patterns)
        operator = curvature.Hessian(objective, loaded.theta, config.patterns, config.product)
        if config.product == "reverse":
            _tell(config, operator, reporter)
        return operator

    return curvature.over(ranks, loaded.objective, make)


def _tell(config: SharpnessConfig, operator: curvature.Hessian, reporter: Reporter) -> None:
    graph, free = operator.graph_bytes(), available(operator.device)
    vectors = 4 * operator.n * min(config.max_products, 32)
    held = graph * (len(operator.objective.batches) if operator.keeps else 1)
    reporter.stage(
        f"needs {byte_size(held)} for graphs and up to {byte_size(vectors)} for vectors, {byte_size(free)} free"
    )
    if graph > free:
        reporter.note("the graph of one batch may not fit: --checkpointing, or a smaller --batch-size, takes less")


def trace(
    config: SharpnessConfig,
    seen: curvature.LinearOperator,
    operator: curvature.Operator,
    loaded: inputs.Loaded,
    ledger: Ledger,
    reporter: Reporter,
) -> dict[str, dict[str, Any]]:
    """By losses where that is enough: two forward passes a probe; by products per layer, or as Adam sees it."""
    budget = curvature.Budget(config.trace_error, maximum=config.max_probes)
    update = reporter.stage("trace")
    saved = ledger.load("trace")

    def on_round(samples: np.ndarray) -> None:
        ledger.save("trace", samples=samples)
        update(len(samples), budget.expected(samples[:, 0]))

    known = saved["samples"] if saved else None
    if config.layers or config.adam:
        where = operator.space.where()
        layers = {name: (place,) for name, place in where.items()} if config.layers else None
        free = seen.ranks.told(available(seen.device))
        block = max(1, min(8, int(0.1 * free / (8 * seen.n))))  # probes and their products
        found = curvature.hutchinson(seen, budget, config.seed, block, layers, known=known, on_round=on_round)
    else:
        only, objective, ranks = operator.space.names, loaded.objective, operator.ranks
        along: StreamedProbes | ShardedProbes | None = None
        rounds: Any = objective
        if isinstance(objective, StreamedCrossEntropy):
            along = StreamedProbes(objective, loaded.theta, only)
        elif isinstance(objective, ShardedCrossEntropy):
            rounds = along = ShardedProbes(objective, loaded.theta, only)
            ranks = ALONE  # which it adds up itself
        found = curvature.trace_by_losses(
            rounds,
            loaded.theta,
            only,
            budget,
            config.seed,
            known=known,
            on_round=on_round,
            ranks=ranks,
            along=along,
        )
    sections: dict[str, dict[str, Any]] = {
        "trace": {
            "value": found.value,
            "standard_error": found.standard_error,
            "reached": found.reached,
            "method": found.method,
            "rounds": len(found.samples),
            "disagreement": found.disagreement,
            "samples": found.samples,
        }
    }
    if found.layers:
        sections["trace/layers"] = {
            "name": np.array(list(found.layers)),
            "parameters": np.array([where[name].stop - where[name].start for name in found.layers]),
            "value": np.array([value for value, _ in found.layers.values()]),
            "standard_error": np.array([error for _, error in found.layers.values()]),
        }
    return sections


def density(
    config: SharpnessConfig,
    operator: curvature.LinearOperator,
    sections: Mapping[str, Mapping[str, Any]],
    ledger: Ledger,
    reporter: Reporter,
) -> dict[str, Any]:
    """Quadrature nodes and weights, the smoothed density, and how many eigenvalues lie above some thresholds."""
    update = reporter.stage("spectral density")
    saved = ledger.load("density")
    known = list(zip(saved["nodes"], saved["weights"], strict=True)) if saved else None
    found = curvature.spectral_density(
        operator,
        config.density_steps,
        config.density_probes,
        config.seed,
        known,
        update,
        lambda done: ledger.save(
            "density", nodes=np.array([v for v, _ in done]), weights=np.array([w for _, w in done])
        ),
    )
    ends = [
        sections[f"eigenvalues/{which}"]["values"] for which in ("top", "bottom") if f"eigenvalues/{which}" in sections
    ]
    low, high = min(found.nodes.min(), *(v.min() for v in ends)), max(found.nodes.max(), *(v.max() for v in ends))
    width = (high - low) / 100 or 1.0
    points = np.linspace(low - 5 * width, high + 5 * width, _POINTS)
    smooth, error = found.smoothed(points, width)
    thresholds = np.array([0.01, 0.03, 0.1, 0.3]) * high
    counts = np.array([found.above(t) for t in thresholds])
    return {
        "nodes": found.nodes,
        "weights": found.weights,
        "points": points,
        "density": smooth,
        "standard_error": error,
        "thresholds": thresholds,
        "above": counts[:, 0],
        "above_standard_error": counts[:, 1],
        "width": width,
        "n": found.n,
    }


def direction(
    config: SharpnessConfig,
    quantizer: quantize.Quantizer,
    calibration: Windows | None,
    operator: curvature.Operator,
    loaded: inputs.Loaded,
    reporter: Reporter,
) -> dict[str, dict[str, Any]]:
    """The quadratic model along Θ̂ − Θ, beside what the loss really does."""
    update, ranks = reporter.stage(f"quantizing to {quantizer}"), operator.ranks
    hat = loaded.theta
    if ranks.leads:
        hat, _ = quantize.quantize(quantizer, loaded.model, calibration, config.batch_size, update)
    hat = Weights(ranks.given(hat, loaded.theta))
    reporter.stage("along the quantization step")
    step = hat - loaded.theta
    found = curvature.along(operator, operator.space.flatten(step))
    partial = {name: hat[name] if name in operator.space.names else loaded.theta[name] for name in hat}
    before, after = (window_losses(loaded.objective, at, ranks=ranks).mean for at in (loaded.theta, partial))
    names = list(found.layers)
    return {
        "direction": {
            "quantizer": str(quantizer),
            "length": found.length,
            "slope": found.slope,
            "quadratic": found.quadratic,
            "curvature": found.curvature,
            "predicted": found.predicted,
            "actual": after - before,
            "relative_error": after / before - 1 if before else math.nan,
        },
        "direction/layers": {
            "name": np.array(names),
            "slope": np.array([found.layers[name][0] for name in names]),
            "quadratic": np.array([found.layers[name][1] for name in names]),
        },
    }
