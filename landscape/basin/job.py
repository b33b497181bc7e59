"""The job: a model and what spans a plane with it in; the slice and its page out.

    references → Θ_K, Θ_{K−1};  text → objective;  quantizer → Θ̂_K;  plane → HDF5 file → page and figure

Every input goes into a key. The key names the file, so a changed input is another slice, and the same command run
again completes the slice it began, or only draws its page when nothing is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from landscape import inputs, models, packed, planning, slices
from landscape.basin.decided import Job
from landscape.basin.layout import PROFILE, environment_of, layout_of
from landscape.basin.planes import Span, span
from landscape.basin.sources import check_quantizers, sources_of
from landscape.basin.workshop import furnished, losses_of
from landscape.config import WHOLE, PlanConfig, SliceConfig
from landscape.errors import LandscapeError, ModelError, OptionError, SliceError, StoreError
from landscape.machine.arithmetic import exactly
from landscape.machine.ranks import Ranks, ranks
from landscape.models.references import resolve
from landscape.reporting import Reporter, Silent
from landscape.storage.files import lock

_GRID = "101x101"
_PLACES = 100  # that are evaluated on a plane of quantizers, about
_COPIES = 6  # of Θ that a plane takes while it is made: three points, two directions and a step between


@dataclass(frozen=True)
class SliceResult:
    """The files of a slice, and its content."""

    path: Path
    page: Path
    figures: tuple[Path, ...]
    slice: slices.StoredSlice


@exactly
def render_slice(config: SliceConfig, reporter: Reporter | None = None) -> SliceResult:
    """Make, or complete, the slice that `config` describes, and draw its page and figure.

    Under torchrun all ranks evaluate; the first one does everything else, and tells the others what came out.

    Raises:
        LandscapeError: an input cannot be used; nothing is left half-written.
    """
    check_quantizers(config)
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
        sources = sources_of(config, checkpoint, previous)
        if text is None:
            reporter.stage("reading the text")
            calibrate = any(quantizer.needs_calibration for quantizer in sources.quantizers)
            text = inputs.read_text(config, checkpoint, calibrate, reporter.note)
        cells = grid or slices.parse_grid(text.defaults.grid if config.dense else _GRID)
        job = Job(config, checkpoint, sources, text, own, (cells[0], 1) if is_line else cells, bounds)
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


def _streams(job: Job, reporter: Reporter) -> bool:
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


def _is_complete(job: Job) -> bool:
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


def _planned(job: Job, streams: bool) -> PlanConfig:
    config, cells = job.config, job.grid[0] * job.grid[1] + len(PROFILE["dense"])
    return PlanConfig(
        "slice",
        str(job.checkpoint),
        batch_size=config.batch_size,
        dtype=config.dtype,  # type: ignore[arg-type]
        evaluations=cells if config.dense else min(_PLACES, config.max_evaluations),
        stream=streams,
        ranks=job.ranks.size,
    )


def _span(job: Job, loaded: inputs.Loaded, reporter: Reporter) -> Span | None:
    """What spans the plane; None when another checkpoint should be tried as Θ_{K−1}."""
    try:
        device = job.ranks.device
        return span(furnished(job.config, job.checkpoint, job.sources, job.text, loaded, device, reporter))
    except inputs.SameWeights:
        if job.config.plane == "checkpoints" and job.config.prev is None:
            return None
        raise


def _fill(job: Job, loaded: inputs.Loaded, chosen: Span, reporter: Reporter) -> None:
    """Fill the file at the job's path, from the start or from where it was left."""
    config = job.config
    plane = slices.span(loaded.theta, chosen.first, chosen.second, chosen.points)
    is_new = config.overwrite or not job.path.exists()
    if is_new:
        slices.create(job.path, layout_of(job, plane, chosen, loaded))
    on_loss = reporter.stage("evaluating the slice")
    losses = slices.over(job.ranks, losses_of(loaded.objective, config.dtype))
    with slices.SliceWriter(job.path, job.key, plane.fingerprint()) as writer:
        writer.go_on(environment_of(job, loaded))
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


def _draw(path: Path, reporter: Reporter) -> SliceResult:
    from landscape import viewer

    reporter.stage("drawing")
    stored = slices.read(path)
    page, figures = path.with_suffix(".html"), (path.with_suffix(".pdf"), path.with_suffix(".png"))
    viewer.write_page(stored, page)
    for figure in figures:
        viewer.write_figure(stored, figure)
    return SliceResult(path, page, figures, stored)
