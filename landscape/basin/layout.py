"""What the file of a slice holds from its first moment: axes, named points, and what it says of itself."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from landscape import inputs, models, slices
from landscape.basin.decided import Job
from landscape.basin.planes import Span
from landscape.config import RANDOM
from landscape.machine.environment import attention_of, environment
from landscape.reporting import versions
from landscape.texts import display_name

# Places along Θ_K → Θ̂_K, both ends among them: as many as are worth evaluating, and as many as look smooth.
PROFILE = {"dense": np.linspace(-0.25, 1.25, 31), "adaptive": np.linspace(-0.25, 1.25, 121)}
_SLACK = 1000  # evaluations by which the last step of a reconstruction may go beyond those allowed


def layout_of(job: Job, plane: slices.Plane, chosen: Span, loaded: inputs.Loaded) -> slices.Layout:
    """Axes, points, tables and attributes of the file."""
    places = [(point.alpha, point.beta) for point in plane.points.values()]
    line = slices.evenly if job.bounds else slices.with_zero  # bounds that were asked for are kept as they are
    bounds = job.bounds or _bounds(job, chosen, places)
    columns: dict[str, list[Any]] = {}
    for report in chosen.reports:
        for layer in report.layers:
            row = asdict(layer) | ({"quantizer": report.quantizer} if len(chosen.reports) > 1 else {})
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
    return slices.Layout(
        plane=plane,
        alpha=line(*bounds.alpha, job.grid[0]),
        beta=line(*bounds.beta, job.grid[1]) if plane.v is not None else np.zeros(1),
        profile=_profile(job, plane),
        points=chosen.named,
        attributes=_attributes(job, plane, chosen, loaded),
        tables={"layers": columns} if columns else {},
        key=job.key,
        rows=0 if job.config.dense else job.config.max_evaluations + _SLACK,
    )


def _bounds(job: Job, chosen: Span, places: list[tuple[float, float]]) -> slices.Bounds:
    alpha, beta = chosen.sides
    if alpha and beta:
        return slices.Bounds(alpha, beta)
    around = slices.around(places, job.config.margin, chosen.second is None)
    return slices.Bounds(alpha or around.alpha, beta or around.beta)


def _profile(job: Job, plane: slices.Plane) -> np.ndarray:
    if len(plane.points) < 2:
        return np.zeros(0)
    return PROFILE["dense" if job.config.dense else "adaptive"]


def environment_of(job: Job, loaded: inputs.Loaded) -> str:
    """What it is computed with, as the file keeps it."""
    return json.dumps(environment(job.ranks.device, attention_of(loaded.model), job.ranks.size))


def _attributes(job: Job, plane: slices.Plane, chosen: Span, loaded: inputs.Loaded) -> dict[str, str | float | int]:
    """What the file says of itself: names and numbers, no path."""
    config, text = job.config, job.text
    resolved = {name: value for name, value in asdict(config).items() if name not in ("out", "overwrite", "like")}
    resolved |= {"model": str(job.checkpoint), "vectors": config.vectors.name if config.vectors else None}
    for name in ("text", "calibration", "tokenizer", "prev", "to"):
        resolved[name] = display_name(resolved[name]) if resolved[name] else None
    if config.plane == "checkpoints":
        resolved["prev"] = str(job.sources.checkpoints[0]) if job.sources.checkpoints else RANDOM
    reports = chosen.reports
    quantizers = ", ".join(str(quantizer) for quantizer in job.sources.quantizers)
    return {
        "title": ", ".join(filter(None, (str(job.checkpoint), quantizers or f"plane: {config.plane}"))),
        "config": json.dumps(resolved),
        "versions": json.dumps(versions()),
        "environment": environment_of(job, loaded),
        "model": str(job.checkpoint),
        "model_identity": job.checkpoint.identity,
        "sources": json.dumps(job.sources.identity),
        "plane": config.plane,
        "alpha_title": chosen.titles[0],
        "beta_title": chosen.titles[1],
        "about": chosen.about,
        "params": config.params,
        "quantizer": quantizers,
        "vocabulary": models.vocabulary_size(loaded.model),
        "quantized_parameters": reports[0].quantized_parameters if reports else 0,
        "total_parameters": plane.origin.numel(),
        "weight_half": any(report.weight_half for report in reports),
        "text": display_name(config.text),
        "eval_tokens": text.evaluation.n_tokens,
        "eval_windows": len(text.evaluation),
        "seq_len": text.evaluation.ids.shape[1],
        "tokens_fingerprint": text.evaluation.fingerprint,
        "calibration_tokens": max([0, *(report.calibration_tokens for report in reports)]),
        "calibration_fingerprint": text.calibration.fingerprint if text.calibration is not None else "",
        "dtype": config.dtype,
        "device": torch.device(job.ranks.device).type,
        "seed": config.seed,
        "weight_norm": plane.origin.norm(),
        **chosen.attributes,
    }
