"""The main job: a model, an earlier checkpoint and a quantizer in; the slice through them and its page out.

    references → Θ_K, Θ_{K−1};  text → objective;  quantizer → Θ̂_K;  plane → HDF5 file → page and figure

Every input goes into a key. The key names the file, so a changed input is another slice, and the same command run
again completes the slice it began, or only draws its page when nothing is missing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from landscape import inputs, models, quantize, slices
from landscape.config import RANDOM, SliceConfig
from landscape.errors import ModelError, StoreError
from landscape.files import lock
from landscape.objective import mean
from landscape.references import Checkpoint, resolve
from landscape.reporting import Reporter, Silent, versions
from landscape.results import key_of, path_of
from landscape.texts import display_name
from landscape.weights import Weights, random_direction

LABELS = {"theta": "Θ_K", "theta_prev": "Θ_{K−1}", "theta_hat": "Θ̂_K"}
PROFILE = np.linspace(-0.25, 1.25, 31)  # both ends of Θ_K → Θ̂_K are among the places


@dataclass(frozen=True)
class SliceResult:
    """The files of a slice, and its content."""

    path: Path
    page: Path
    figures: tuple[Path, ...]
    slice: slices.StoredSlice


@dataclass(frozen=True)
class _Job:
    """All that is decided before the first evaluation."""

    config: SliceConfig
    checkpoint: Checkpoint
    previous: Checkpoint | None
    quantizer: quantize.Quantizer
    text: inputs.Text
    device: str
    grid: tuple[int, int]
    bounds: slices.Bounds | None

    @property
    def key(self) -> str:
        """SHA-256 over everything that changes the numbers."""
        config, calibration = self.config, self.text.calibration
        everything = {
            "model": self.checkpoint.identity,
            "previous": self.previous.identity if self.previous else f"{RANDOM}:{config.seed}",
            "quantizer": str(self.quantizer),
            "evaluation": self.text.evaluation.fingerprint,
            "calibration": calibration.fingerprint if calibration is not None else None,
            "grid": self.grid,
            "rectangle": config.bounds or config.margin,
            "dtype": config.dtype,
            "batch_size": config.batch_size,
            "device": torch.device(self.device).type,
        }
        return key_of(everything)

    @property
    def path(self) -> Path:
        """Where the slice goes: the name asked for, or one that its inputs make."""
        return path_of(self.config.out, self.checkpoint, str(self.quantizer), self.key[:8])


def render_slice(config: SliceConfig, reporter: Reporter | None = None) -> SliceResult:
    """Make, or complete, the slice that `config` describes, and draw its page and figure.

    Raises:
        LandscapeError: an input cannot be used; nothing is left half-written.
    """
    reporter = reporter or Silent()
    quantizer = quantize.parse(config.quant)
    grid = slices.parse_grid(config.grid) if config.grid else None
    bounds = slices.parse_bounds(config.bounds) if config.bounds else None
    device = models.pick_device(config.device)
    reporter.stage("resolving the model")
    checkpoint = resolve(config.model, remote_code=config.remote_code)
    reporter.stage("reading the text")
    text = inputs.read_text(config, checkpoint, quantizer.needs_calibration, reporter.note)

    loaded: inputs.Loaded | None = None
    for previous in inputs.earlier(config, checkpoint):
        cells = grid or slices.parse_grid(text.defaults.grid)
        job = _Job(config, checkpoint, previous, quantizer, text, device, cells, bounds)
        with lock(job.path):
            if _is_complete(job):
                reporter.note(f"{job.path.name} was complete: nothing was evaluated again")
                return _draw(job.path, reporter)
            if loaded is None:
                reporter.stage(f"loading {checkpoint}")
                loaded = inputs.load(config, checkpoint, text, device, config.dtype)
            before = _before(job, loaded.theta, reporter)
            if before is not None:
                _evaluate(job, loaded, before, reporter)
                return _draw(job.path, reporter)
    raise ModelError(f"model {checkpoint}: the checkpoints before it hold the same weights; name another with --prev")


def _is_complete(job: _Job) -> bool:
    """Whether nothing is left to evaluate.

    Raises:
        StoreError: the file at the job's path is damaged, or holds another slice.
    """
    if job.config.overwrite or not job.path.exists():
        return False
    if slices.check_is_slice(job.path) != job.key:
        raise StoreError(
            f"{job.path}: holds a slice made from other inputs; name another file with --out, or use --overwrite"
        )
    return slices.read(job.path).complete


def _before(job: _Job, theta: Weights, reporter: Reporter) -> Weights | None:
    """Θ_{K−1}, or Θ_K plus a random direction; None when the next candidate should be tried."""
    if job.previous is not None:
        reporter.stage(f"loading {job.previous}")
        return inputs.load_earlier(job.config, job.previous, job.checkpoint, theta, job.device)
    if job.config.prev is None:
        reporter.note(
            f"{job.checkpoint} has no known predecessor: the first axis is a random direction, filter-normalized, "
            f"seed {job.config.seed}"
        )
    return theta + random_direction(theta, job.config.seed)


def _evaluate(job: _Job, loaded: inputs.Loaded, before: Weights, reporter: Reporter) -> None:
    """Quantize, span the plane, and fill the file at `job.path`, from the start or from where it was left."""
    theta = loaded.theta
    on_layer = reporter.stage(f"quantizing to {job.quantizer}")
    quantized, report = quantize.quantize(
        job.quantizer, loaded.model, job.text.calibration, job.config.batch_size, on_layer
    )
    points = {"theta": theta, "theta_prev": before, "theta_hat": quantized}
    if job.previous is None:
        del points["theta_prev"]
    plane = slices.span(theta, before - theta, quantized - theta, points)
    if job.config.overwrite or not job.path.exists():
        slices.create(job.path, _layout(job, plane, report, models.vocabulary_size(loaded.model)))
    on_cell = reporter.stage("evaluating the slice")
    with slices.SliceWriter(job.path, job.key, plane.fingerprint()) as writer:
        slices.scan(writer, plane, points, lambda weights: mean(loaded.objective, weights), on_cell)


def _layout(job: _Job, plane: slices.Plane, report: quantize.Report, vocabulary: int) -> slices.Layout:
    places = [(point.alpha, point.beta) for point in plane.points.values()]
    bounds = job.bounds or slices.around(places, job.config.margin)
    line = slices.evenly if job.bounds else slices.with_zero  # bounds that were asked for are kept as they are
    columns: dict[str, list[Any]] = {}
    for layer in report.layers:
        for name, value in asdict(layer).items():
            columns.setdefault(name, []).append(value)
    return slices.Layout(
        plane=plane,
        alpha=line(*bounds.alpha, job.grid[0]),
        beta=line(*bounds.beta, job.grid[1]),
        profile=PROFILE,
        labels=LABELS,
        attributes=_attributes(job, report, plane.origin.norm(), vocabulary),
        tables={"layers": columns},
        key=job.key,
    )


def _attributes(
    job: _Job, report: quantize.Report, weight_norm: float, vocabulary: int
) -> dict[str, str | float | int]:
    """What the file says of itself: names and numbers, no path."""
    config, text, previous = job.config, job.text, job.previous
    stored = replace(
        config,
        model=str(job.checkpoint),
        prev=str(previous) if previous else RANDOM,
        text=display_name(config.text),
        calibration=display_name(config.calibration) if config.calibration else None,
        tokenizer=display_name(config.tokenizer) if config.tokenizer else None,
    )
    resolved = {name: value for name, value in asdict(stored).items() if name not in ("out", "overwrite")}
    return {
        "title": f"{job.checkpoint}, {job.quantizer}",
        "config": json.dumps(resolved),
        "versions": json.dumps(versions()),
        "model": str(job.checkpoint),
        "model_identity": job.checkpoint.identity,
        "previous": str(previous) if previous else "",
        "previous_identity": previous.identity if previous else "",
        "first_axis": "theta_prev" if previous else RANDOM,
        "quantizer": str(job.quantizer),
        "vocabulary": vocabulary,
        "quantized_parameters": report.quantized_parameters,
        "total_parameters": report.total_parameters,
        "text": display_name(config.text),
        "eval_tokens": text.evaluation.n_tokens,
        "eval_windows": len(text.evaluation),
        "seq_len": text.evaluation.ids.shape[1],
        "tokens_fingerprint": text.evaluation.fingerprint,
        "calibration_tokens": report.calibration_tokens,
        "calibration_fingerprint": text.calibration.fingerprint if text.calibration is not None else "",
        "dtype": config.dtype,
        "device": torch.device(job.device).type,
        "seed": config.seed,
        "weight_norm": weight_norm,
    }


def _draw(path: Path, reporter: Reporter) -> SliceResult:
    from landscape import viewer

    reporter.stage("drawing")
    stored = slices.read(path)
    page, figures = path.with_suffix(".html"), (path.with_suffix(".pdf"), path.with_suffix(".png"))
    viewer.write_page(stored, page)
    for figure in figures:
        viewer.write_figure(stored, figure)
    return SliceResult(path, page, figures, stored)
