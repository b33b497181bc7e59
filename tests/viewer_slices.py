"""Slices to draw: files as a job leaves them, of a loss that is known everywhere."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from landscape import slices
from landscape.slices.stored import StoredSlice, read
from landscape.storage.files import lock
from landscape.weights import Weights

THETA, PREVIOUS, HAT = "Θ_K", "Θ_{K−1}", "Θ̂_K"
NAMED = {
    "theta": slices.Named(THETA, "origin", "run@step8000"),
    "theta_prev": slices.Named(PREVIOUS, "checkpoint", "run@step7200"),
    "theta_hat": slices.Named(HAT, "quantized", "gptq-w3-g128"),
}
ATTRIBUTES = {
    "title": "run@step8000, gptq-w3-g128",
    "model": "run@step8000",
    "plane": "checkpoints",
    "alpha_title": "α: distance along Θ_K → Θ_{K−1}",
    "beta_title": "β: quantization step, part orthogonal to α",
    "about": "It runs through the final weights Θ_K, an earlier checkpoint Θ_{K−1} and the quantized weights Θ̂_K.",
    "quantizer": "gptq-w3-g128",
    "quantized_parameters": 600,
    "total_parameters": 1000,
    "calibration_tokens": 2048,
    "vocabulary": 4096,
    "params": "*",
    "eval_tokens": 4096,
    "eval_windows": 16,
    "text": "validation.jsonl.xz",
    "dtype": "float32",
    "seed": 0,
    "device": "cpu",
    "weight_norm": 32.5,
    "config": json.dumps({"grid": [9, 11]}),
    "versions": json.dumps({"torch": "2.13.0"}),
}
LAYERS = {
    "name": ["h.0.attn", "h.0.mlp"],
    "inputs": [128, 200],
    "group_size": [128, 128],
    "bits": [3, 3],
    "weight_error": [0.1, 0.11],
    "retries": [0, 2],
    "fallback": [False, True],
}
Loss = Callable[[float, float], float]
Kind = Literal["checkpoints", "random", "quantizers", "pca", "line"]


def bowl(a: float, b: float) -> float:
    """Not symmetric in any way: swapped or mirrored axes give other numbers."""
    return 2.66 + 0.15 * (a - 0.1) ** 2 + 0.04 * b * b + 0.03 * a * b + 0.01 * math.cos(5 * a)


def broken(a: float, b: float) -> float:
    """NaN, then infinite, on part of the plane that is scanned early."""
    return (math.nan if b < 0.3 else math.inf) if a < -0.2 and b < 0.9 else bowl(a, b)


def kinked(a: float, b: float) -> float:
    """What polynomials do not follow."""
    return bowl(a, b) + 0.1 * abs(a + 0.4 * b - 0.35)


@dataclass
class Recipe:
    """A slice file to make.

    Attributes:
        loss: over α and β; named points off the plane have the loss of the place they project to, and some more.
        kind: of plane.
        named: what the points are, by name; a plane has those points of its kind that are named.
        first_length, second_length: of the steps that span the plane.
        grid: lines along α and β.
        adaptive: whether it is reconstructed from few evaluations.
        tolerance: of that; most: evaluations allowed.
        stop_after: evaluations after which the job is interrupted.
    """

    loss: Loss = bowl
    kind: Kind = "checkpoints"
    attributes: dict[str, Any] = field(default_factory=lambda: dict(ATTRIBUTES))
    named: dict[str, slices.Named] = field(default_factory=lambda: dict(NAMED))
    tables: dict[str, Any] = field(default_factory=lambda: {"layers": LAYERS})
    first_length: float = 0.45
    second_length: float = 1.4
    grid: tuple[int, int] = (9, 11)
    adaptive: bool = False
    tolerance: tuple[float, float] = (1e-3, 1e-4)
    most: int | None = None
    stop_after: int | None = None

    def make(self, path: Path) -> StoredSlice:
        """The slice, whole or as far as the job came."""
        plane, points = self._plane()
        places = [(at.alpha, at.beta) for at in plane.points.values()]
        square = slices.Bounds((-1.0, 1.0), (-1.0, 1.0))
        bounds = slices.around(places, 0.5) if len(places) > 1 else square
        alpha = slices.with_zero(*bounds.alpha, self.grid[0])
        beta = np.zeros(1) if plane.v is None else slices.with_zero(*bounds.beta, self.grid[1])
        layout = slices.Layout(
            plane=plane,
            alpha=alpha,
            beta=beta,
            profile=np.linspace(-0.25, 1.25, 121 if self.adaptive else 7) if len(points) > 1 else np.zeros(0),
            points={name: self.named[name] for name in points},
            attributes=self.attributes,
            tables=self.tables,
            key="key",
            rows=6000 if self.adaptive else 0,
        )
        slices.create(path, layout)

        def progress(done: int, total: int) -> None:
            if self.stop_after is not None and done > self.stop_after:
                raise InterruptedError

        losses = self._losses(plane)
        stopped = contextlib.suppress(InterruptedError)
        with stopped, lock(path), slices.SliceWriter(path, "key", plane.fingerprint()) as writer:
            slices.evaluate_points(writer, dict(points), losses)
            if self.adaptive:
                slices.sample(writer, plane, losses, self.tolerance, seed=0, most=self.most, on_progress=progress)
            else:
                slices.scan(writer, plane, losses, progress)
        return read(path)

    def _plane(self) -> tuple[slices.Plane, dict[str, Weights]]:
        generator = torch.Generator().manual_seed(0)
        origin, first, second, *others = (Weights({"w": torch.randn(50, generator=generator)}) for _ in range(12))
        first, second = first * (self.first_length / first.norm()), second * (self.second_length / second.norm())
        points = {"theta": origin}
        if self.kind == "quantizers":
            points |= {"theta_hat": origin + first, "theta_hat_2": origin + second}
        elif self.kind == "pca":
            for i, other in enumerate(others[:8], 1):
                share, bend = i / 8, 1.6 * i / 8 * (1 - i / 8)
                points[f"theta_{i}"] = origin + share * second + bend * first + 0.02 * share * other
        elif self.kind != "random":
            points |= {"theta_prev": origin + first, "theta_hat": origin + second}
        points = {name: weights for name, weights in points.items() if name in self.named}
        if self.kind == "line":
            return slices.span(origin, second * 1.0, None, points), points
        return slices.span(origin, first * 1.0, second * 1.0, points), points

    def _losses(self, plane: slices.Plane) -> slices.Losses:
        def exact(weights: Weights) -> float:
            step = weights - plane.origin
            return self.loss(step.dot(plane.u), step.dot(plane.v) if plane.v is not None else 0.0)

        return slices.Losses(exact, exact)


def pca(**changes: Any) -> Recipe:
    """Principal components of a run of eight checkpoints before Θ_K."""
    steps = {f"theta_{i}": 8000 - 800 * i for i in range(1, 9)}
    named = {name: slices.Named(f"Θ_{{step{step}}}", "checkpoint", f"run@step{step}") for name, step in steps.items()}
    attributes = {
        **ATTRIBUTES,
        "title": "run@step8000, pca",
        "plane": "pca",
        "alpha_title": "α: first principal component, 83.1% of the variance",
        "beta_title": "β: second, 11.4%",
        "about": "It runs through Θ_K along the two directions in which the 8 checkpoints before it moved most; these "
        "are shown where they project, with their distance from the plane.",
        "quantizer": "",
        "quantized_parameters": 0,
        "calibration_tokens": 0,
        "explained_first": 0.831,
        "explained_second": 0.114,
    }
    settings = {"kind": "pca", "attributes": attributes, "named": {"theta": NAMED["theta"], **named}, "tables": {}}
    return Recipe(**(settings | changes))


def quantizers(**changes: Any) -> Recipe:
    """Two quantizers."""
    one, two = "Θ̂_{gptq-w3-g128}", "Θ̂_{rtn-w3-g128}"
    named = {
        "theta": NAMED["theta"],
        "theta_hat": slices.Named(one, "quantized", "gptq-w3-g128"),
        "theta_hat_2": slices.Named(two, "quantized", "rtn-w3-g128"),
    }
    attributes = {
        **ATTRIBUTES,
        "title": "run@step8000, gptq-w3-g128 and rtn-w3-g128",
        "plane": "quantizers",
        "alpha_title": f"α: distance along Θ_K → {one}",
        "beta_title": f"β: Θ_K → {two}, part orthogonal to α",
        "about": f"It runs through Θ_K and the weights that two quantizers make of it, {one} and {two}.",
        "quantizer": "gptq-w3-g128, rtn-w3-g128",
    }
    return Recipe(**({"kind": "quantizers", "attributes": attributes, "named": named} | changes))


def line(**changes: Any) -> Recipe:
    """The straight line through Θ_K and Θ̂_K."""
    attributes = {
        **ATTRIBUTES,
        "plane": "line",
        "alpha_title": "α: distance along Θ_K → Θ̂_K",
        "beta_title": "",
        "about": "The straight line through Θ_K and Θ̂_K.",
    }
    named = {name: NAMED[name] for name in ("theta", "theta_hat")}
    settings = {"kind": "line", "attributes": attributes, "named": named, "grid": (101, 1), "adaptive": True}
    return Recipe(**(settings | changes))


def alone(**changes: Any) -> Recipe:
    """Θ_K and two random directions: no quantizer, no other point, no profile."""
    attributes = {
        **ATTRIBUTES,
        "title": "run@step8000, random",
        "plane": "random",
        "alpha_title": "α: distance along a random direction, filter-normalized, seed 0",
        "beta_title": "β: a second one, seed 1",
        "about": "It runs through Θ_K along two random directions, each filter of which is as long as in Θ_K.",
        "quantizer": "",
        "quantized_parameters": 0,
        "calibration_tokens": 0,
    }
    settings = {"kind": "random", "attributes": attributes, "named": {"theta": NAMED["theta"]}, "tables": {}}
    return Recipe(**(settings | changes))


def torn(**changes: Any) -> Recipe:
    """A part of the rectangle has no finite loss, so that one polynomial is not enough and cells are evaluated too."""
    settings = {"adaptive": True, "grid": (31, 31), "loss": lambda a, b: math.nan if a + b > 2.2 else bowl(a, b)}
    return Recipe(**(settings | changes))
