"""Studies to draw: runs whose numbers are known, with layers, spectra and a slice."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.course import Course, Spectrum
from viewer_slices import ATTRIBUTES, Recipe

HOSTILE = "<script>window.hacked=1</script>"
RUNS = ("stable", "decay-a", "decay-b", "decay-c", f"hostile-{HOSTILE}", "short-1", "short-2", "short-3", "short-4")
QUANTIZERS = ("rtn-w3", "rtn-w4")
LAYERS = ("model.h.0.up", r"model.h.0.down$\frac$", f"model.h.1.{HOSTILE}")
LENGTHS = (14, 9, 8, 4, 6, 2, 2, 2, 2)
COLUMNS = {"trace": "tr H", "delta_q": "ΔQ = L(Θ̂)/L(Θ) − 1; its error is paired", "loss": "L(Θ), nats per token"}


def identity(run: str, place: int) -> str:
    return f"sha256:{run}-{place}"


def rows() -> tuple[dict[str, Any], ...]:
    """Trace and error of quantization go together, but not too well; the rate falls at the end of all runs but one."""
    random, made = np.random.default_rng(3), []
    for run, length in zip(RUNS, LENGTHS, strict=True):
        for place in range(1, length + 1):
            step, trace = 100 * place, 50.0 * place * math.exp(0.5 * random.normal())
            decayed = run != "stable" and place > length - 2
            shared = {
                "run": run,
                "checkpoint": f"step{step}",
                "kind": "checkpoint",
                "step": step,
                "tokens": 1e4 * step,
                "learning_rate": 1e-5 if decayed else 1e-3,
                "loss": 3.0 - 0.05 * place,
                "loss_se": 0.02,
                "trace": trace,
                "trace_se": 0.02 * trace,
                "identity": identity(run, place),
            }
            for quantizer, size in zip(QUANTIZERS, (0.05, 0.004), strict=True):
                error = size * (trace / 100) ** 0.4 * math.exp(0.4 * random.normal())
                ends = {"delta_q_low": 0.9 * error, "delta_q_high": 1.2 * error}
                made.append({**shared, "quantizer": quantizer, "delta_q": error, "delta_q_se": 0.05 * error, **ends})
    average = {**made[10], "kind": "lawa-5", "learning_rate": None, "identity": "average", "delta_q": 0.5}
    return (*made, average)


def layers() -> tuple[dict[str, Any], ...]:
    """Of the first run alone; one share of ΔL is negative."""
    made = []
    for row in rows():
        for k, layer in enumerate(LAYERS):
            if row["run"] == "stable" and row["kind"] == "checkpoint":
                who = {name: row[name] for name in ("run", "checkpoint", "kind", "step", "quantizer")}
                shares = {"g_delta": -0.5 if k == 1 else 0.1, "delta_h_delta": row["delta_q"]}
                made.append(
                    {**who, "layer": layer, "trace": row["trace"] + k, "parameters": 10, "step_norm": 2.0, **shares}
                )
    return tuple(made)  # fmt: skip


def spectrum(top: float) -> Spectrum:
    points = np.linspace(-1, top, 101)
    density = 100 * np.exp(-(points**2))
    return Spectrum(points, density, 0.1 * density, (top - 0.2,), (-0.8,))


def a_slice(folder: Path) -> StoredSlice:
    """Around the fourth checkpoint of the first run."""
    return Recipe(grid=(81, 9), attributes=ATTRIBUTES | {"title": f"stable@step400 {HOSTILE}"}).make(
        folder / "slice.h5"
    )


def course(folder: Path) -> Course:
    spectra = {identity("stable", place): spectrum(5.0 + place) for place in (2, 4, 6)}
    slices = {identity("stable", 4): ((a_slice(folder), "stable-step400.html"),)}
    return Course(f"study & {HOSTILE}", rows(), layers(), COLUMNS, spectra, slices)
