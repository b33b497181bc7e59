"""The main job: a model and what spans a plane with it in; the slice and its page out.

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

from landscape import inputs, models, packed, planes, planning, quantize, slices
from landscape.arithmetic import exactly
from landscape.config import RANDOM, WHOLE, PlanConfig, SliceConfig
from landscape.environment import attention_of, environment
from landscape.errors import LandscapeError, ModelError, OptionError, SliceError, StoreError
from landscape.files import lock
from landscape.objective import TokenCrossEntropy, mean
from landscape.ranks import Ranks, ranks
from landscape.references import Checkpoint, resolve
from landscape.reporting import Reporter, Silent, versions
from landscape.results import key_of, path_of
from landscape.streaming import StreamedCrossEntropy, losses_on_places, quantize_to_scratch
from landscape.texts import display_name
from landscape.weights import Weights

# Places along Θ_K → Θ̂_K, both ends among them: as many as are worth evaluating, and as many as look smooth.
_PROFILE = {"dense": np.linspace(-0.25, 1.25, 31), "adaptive": np.linspace(-0.25, 1.25, 121)}
_GRID = "101x101"
_PLACES = 100  # that are evaluated on a plane of quantizers, about
_COPIES = 6  # of Θ that a plane takes while it is made: three points, two directions and a step between
_SLACK = 1000  # evaluations by which the last step of a reconstruction may go beyond those allowed


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
    sources: planes.Sources
    text: inputs.Text
    ranks: Ranks
    grid: tuple[int, int]
    bounds: slices.Bounds | None

    @property
    def key(self) -> str:
        """SHA-256 over everything that changes the numbers."""
        config, calibration, bounds = self.config, self.text.calibration, self.bounds
        everything = {
            "model": self.checkpoint.identity,
            "sources": self.sources.identity,
            "evaluation": self.text.evaluation.fingerprint,
            "calibration": calibration.fingerprint if calibration is not None else None,
            "grid": self.grid,
            "rectangle": [*bounds.alpha, *bounds.beta] if bounds else [config.margin, config.reach],
            "sampling": "dense"
            if config.dense
            else [config.range_tolerance, config.loss_tolerance, config.max_evaluations, config.seed],
            "dtype": config.dtype,
            "batch_size": config.batch_size,
            "device": torch.device(self.ranks.device).type,
        }
        return key_of(everything)

    @property
    def path(self) -> Path:
        """Where the slice goes: the name asked for, or one that its inputs make."""
        kind = [] if self.config.plane == "checkpoints" else [self.config.plane]
        quantizers = [str(quantizer) for quantizer in self.sources.quantizers]
        return path_of(self.config.out, self.checkpoint, *kind, *quantizers, self.key[:8])


@exactly
def render_slice(config: SliceConfig, reporter: Reporter | None = None) -> SliceResult:
    """Make, or complete, the slice that `config` describes, and draw its page and figure.

    Under torchrun all ranks evaluate; the first one does everything else, and tells the others what came out.

    Raises:
        LandscapeError: an input cannot be used; nothing is left half-written.
    """
    planes.check_quantizers(config)
    with ranks(models.pick_device(config.device)) as own:
        result = None
        if own.leads:
            try:
                result = _made(config, own, reporter or Silent())
            except LandscapeError as error:
                own.told(error)
                raise
        else:
            _help(config, own)
        return own.told(result)  # type: ignore[return-value]


def _made(config: SliceConfig, own: Ranks, reporter: Reporter) -> SliceResult:
    is_line = config.plane == "line"
    grid = slices.parse_grid(config.grid, is_line) if config.grid else None
    bounds = _asked_bounds(config, is_line)
    reporter.stage("resolving the model")
    checkpoint = resolve(config.model, remote_code=config.remote_code)
    text: inputs.Text | None = None
    loaded: inputs.Loaded | None = None
    for previous in inputs.earlier(config, checkpoint):
        sources = planes.sources(config, checkpoint, previous)
        if text is None:
            reporter.stage("reading the text")
            calibrate = any(quantizer.needs_calibration for quantizer in sources.quantizers)
            text = inputs.read_text(config, checkpoint, calibrate, reporter.note)
        cells = grid or slices.parse_grid(text.defaults.grid if config.dense else _GRID)
        job = _Job(config, checkpoint, sources, text, own, (cells[0], 1) if is_line else cells, bounds)
        with lock(job.path):
            if _is_complete(job):
                reporter.note(f"{job.path.name} was complete: nothing was evaluated again")
                own.told(None)
                return _draw(job.path, reporter)
            if loaded is None:
                streams = _streams(job, reporter)
                planning.look_ahead(
                    _planned(job, streams), checkpoint, text.evaluation, own.device, reporter, config.remote_code
                )
                own.told(True)
                reporter.stage(f"loading {checkpoint}")
                if streams:
                    folder = job.path.parent
                    loaded = inputs.load_to_scratch(config, checkpoint, text, own.device, config.dtype, folder)
                else:
                    loaded = inputs.load(config, checkpoint, text, own.device, config.dtype)
            if config.plane == "checkpoints" and previous is None and config.prev is None:
                reporter.note(
                    f"{checkpoint} has no known predecessor: the first axis is a random direction, "
                    f"{config.normalize}-normalized, seed {config.seed}"
                )
            chosen = _span(job, loaded, reporter)
            if chosen is not None:
                _fill(job, loaded, chosen, reporter)
                return _draw(job.path, reporter)
    raise ModelError(f"model {checkpoint}: the checkpoints before it hold the same weights; name another with --prev")


def _help(config: SliceConfig, own: Ranks) -> None:
    """What every rank but the first does: load the same, and evaluate the places it is asked for."""
    if not own.told(None):
        return
    checkpoint = resolve(config.model, remote_code=config.remote_code)
    text = inputs.read_text(config, checkpoint, False, lambda note: None)
    loaded = inputs.load(config, checkpoint, text, own.device, config.dtype)
    slices.follow(losses_of(loaded.objective, config.dtype), loaded.theta, own)


def _asked_bounds(config: SliceConfig, is_line: bool) -> slices.Bounds | None:
    if config.like:
        bounds = slices.union([slices.read(path.strip()).bounds for path in config.like.split(",")])
        if (bounds.beta == (0, 0)) != is_line:
            kind, other = ("line", "plane") if is_line else ("plane", "line")
            raise OptionError(f"--like {config.like}: the slice of a {other}; expected that of a {kind}")
        return bounds
    return slices.parse_bounds(config.bounds, is_line) if config.bounds else None


def _streams(job: _Job, reporter: Reporter) -> bool:
    """Whether weights stay on the disk, and blocks are made one at a time."""
    config, sources = job.config, job.sources
    whole = [str(other) for other in sources.checkpoints if packed.is_packed(other)]
    whole += [str(quantizer) for quantizer in sources.quantizers if quantizer.engine]
    whole += ["several ranks"] if job.ranks.size > 1 else []
    if config.stream == "always" and whole:
        raise OptionError(f"--stream always with {whole[0]}: needs the whole model in memory; use --stream never")
    if config.stream != "auto" or whole or config.plane in WHOLE:
        return config.stream == "always"
    return inputs.too_large(job.checkpoint, _COPIES, job.ranks.device, reporter.note)


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


def _planned(job: _Job, streams: bool) -> PlanConfig:
    config, cells = job.config, job.grid[0] * job.grid[1] + len(_PROFILE["dense"])
    return PlanConfig(
        "slice",
        str(job.checkpoint),
        batch_size=config.batch_size,
        dtype=config.dtype,  # type: ignore[arg-type]
        evaluations=cells if config.dense else min(_PLACES, config.max_evaluations),
        stream=streams,
        ranks=job.ranks.size,
    )


def _span(job: _Job, loaded: inputs.Loaded, reporter: Reporter) -> planes.Span | None:
    """What spans the plane; None when another checkpoint should be tried as Θ_{K−1}."""
    try:
        device = job.ranks.device
        return planes.span(workshop(job.config, job.checkpoint, job.sources, job.text, loaded, device, reporter))
    except inputs.SameWeights:
        if job.config.plane == "checkpoints" and job.config.prev is None:
            return None
        raise


def workshop(
    config: SliceConfig,
    checkpoint: Checkpoint,
    sources: planes.Sources,
    text: inputs.Text,
    loaded: inputs.Loaded,
    device: str,
    reporter: Reporter,
) -> planes.Workshop:
    """What planes are made with: other checkpoints and quantized weights are loaded and made as they are asked for."""

    def load(other: Checkpoint) -> Weights:
        reporter.stage(f"loading {other}")
        return inputs.load_other(config, other, checkpoint, loaded, device)

    def quantized(quantizer: quantize.Quantizer) -> tuple[Weights, quantize.Report]:
        on_layer = reporter.stage(f"quantizing to {quantizer}")
        calibration = text.calibration if quantizer.needs_calibration else None
        if loaded.scratch is not None:
            return quantize_to_scratch(
                quantizer, loaded.model, loaded.theta, calibration, config.batch_size, loaded.scratch, on_layer
            )
        return quantize.quantize(quantizer, loaded.model, calibration, config.batch_size, on_layer)

    return planes.Workshop(config, checkpoint, sources, loaded, load, quantized)


def _fill(job: _Job, loaded: inputs.Loaded, chosen: planes.Span, reporter: Reporter) -> None:
    """Fill the file at the job's path, from the start or from where it was left."""
    config = job.config
    plane = slices.span(loaded.theta, chosen.first, chosen.second, chosen.points)
    is_new = config.overwrite or not job.path.exists()
    if is_new:
        slices.create(job.path, _layout(job, plane, chosen, loaded))
    on_loss = reporter.stage("evaluating the slice")
    losses = slices.over(job.ranks, losses_of(loaded.objective, config.dtype))
    with slices.SliceWriter(job.path, job.key, plane.fingerprint()) as writer:
        writer.go_on(_environment(job, loaded))
        slices.evaluate_points(writer, chosen.points, losses)
        if config.dense:
            slices.scan(writer, plane, losses, on_loss)
        else:
            tolerance = (config.range_tolerance, config.loss_tolerance)
            try:
                slices.sample(writer, plane, losses, tolerance, config.seed, config.max_evaluations, on_loss)
            except SliceError:
                job.path.unlink()  # there will never be a picture in it
                raise
    slices.dismiss(job.ranks)


def losses_of(objective: TokenCrossEntropy, dtype: str) -> slices.Losses:
    """The loss as the scan computes it, and in float32."""
    if isinstance(objective, StreamedCrossEntropy):
        return losses_on_places(objective)

    def scan(weights: Weights) -> float:
        return mean(objective, weights)

    if dtype == "float32":
        return slices.Losses(scan, scan)
    exact = replace(objective, dtype=torch.float32)
    return slices.Losses(scan, lambda weights: mean(exact, weights))


def _layout(job: _Job, plane: slices.Plane, chosen: planes.Span, loaded: inputs.Loaded) -> slices.Layout:
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


def _bounds(job: _Job, chosen: planes.Span, places: list[tuple[float, float]]) -> slices.Bounds:
    alpha, beta = chosen.sides
    if alpha and beta:
        return slices.Bounds(alpha, beta)
    around = slices.around(places, job.config.margin, chosen.second is None)
    return slices.Bounds(alpha or around.alpha, beta or around.beta)


def _profile(job: _Job, plane: slices.Plane) -> np.ndarray:
    if len(plane.points) < 2:
        return np.zeros(0)
    return _PROFILE["dense" if job.config.dense else "adaptive"]


def _environment(job: _Job, loaded: inputs.Loaded) -> str:
    return json.dumps(environment(job.ranks.device, attention_of(loaded.model), job.ranks.size))


def _attributes(
    job: _Job, plane: slices.Plane, chosen: planes.Span, loaded: inputs.Loaded
) -> dict[str, str | float | int]:
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
        "environment": _environment(job, loaded),
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


def _draw(path: Path, reporter: Reporter) -> SliceResult:
    from landscape import viewer

    reporter.stage("drawing")
    stored = slices.read(path)
    page, figures = path.with_suffix(".html"), (path.with_suffix(".pdf"), path.with_suffix(".png"))
    viewer.write_page(stored, page)
    for figure in figures:
        viewer.write_figure(stored, figure)
    return SliceResult(path, page, figures, stored)
