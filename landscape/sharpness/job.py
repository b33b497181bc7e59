"""The job: a model and a text in; eigenvalues, trace, spectral density and the quadratic model out.

    reference → Θ;  text → objective;  operator → estimators → HDF5 file → table and figure

Every input goes into a key that names the file. A part that is finished is in the file, one that is not is in a ledger
beside it, so that the same command goes on where it stopped.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from landscape import curvature, inputs, models, planning, quantize
from landscape.config import PlanConfig, SharpnessConfig
from landscape.curvature import eigenvectors, store
from landscape.curvature.ledger import Ledger
from landscape.errors import OptionError, StoreError
from landscape.machine import heap
from landscape.machine.arithmetic import exactly
from landscape.machine.environment import attention_of, differences, environment
from landscape.machine.ranks import Ranks, ranks
from landscape.models.checkpoint import Checkpoint
from landscape.models.references import resolve
from landscape.reporting import Reporter, Silent, versions
from landscape.results import key_of, path_of
from landscape.sharded import ShardedHessian
from landscape.sharpness import parts
from landscape.sharpness.spectrum import Spectrum, rough_hessian
from landscape.sharpness.windows import Spread
from landscape.storage.files import lock
from landscape.texts import display_name

_COPIES = 3  # of Θ, at the least: itself, a gradient, a product
_ONE_END, _BOTH_ENDS = 20, 80  # products that the top of the spectrum takes, and with the bottom, about
_PROBES = 50  # that the trace takes, about


@dataclass(frozen=True)
class SharpnessResult:
    """The files of a measurement, and its content."""

    path: Path
    figures: tuple[Path, ...]
    vectors: tuple[Path, ...]
    stored: store.StoredSharpness


@dataclass(frozen=True)
class _Job:
    """All that is decided before the first product."""

    config: SharpnessConfig
    checkpoint: Checkpoint
    quantizer: quantize.Quantizer | None
    text: inputs.Text
    ranks: Ranks

    @property
    def key(self) -> str:
        """SHA-256 over everything that changes the numbers."""
        calibration = self.text.calibration
        asked = asdict(self.config)
        for name in ("model", "text", "calibration", "tokenizer", "out", "overwrite", "remote_code", "checkpointing"):
            del asked[name]
        del asked["stream"]
        asked["shard"] = self.ranks.size if asked["shard"] else 0  # each rank has as many batches
        del asked["deterministic"]
        everything = asked | {
            "model": self.checkpoint.identity,
            "start": eigenvectors.fingerprint(self.config.start, "--start") if self.config.start else None,
            "quant": str(self.quantizer),
            "evaluation": self.text.evaluation.fingerprint,
            "calibration": calibration.fingerprint if calibration is not None else None,
            "device": torch.device(self.ranks.device).type,
        }
        return key_of(everything)

    @property
    def path(self) -> Path:
        """Where the result goes: the name asked for, or one that its inputs make."""
        return path_of(self.config.out, self.checkpoint, self.key[:8])


@exactly
def measure_sharpness(config: SharpnessConfig, reporter: Reporter | None = None) -> SharpnessResult:
    """Measure, or complete, what `config` describes, and draw its figure.

    Under torchrun all ranks run this in lockstep, each on some of the batches; the first one alone writes.

    Raises:
        LandscapeError: an input cannot be used; nothing is left half-written.
    """
    if config.stream == "never":
        heap.hold()
    quantizer = quantize.parse(config.quant) if config.quant else None
    with ranks(models.pick_device(config.device)) as own:
        if config.shard and own.size == 1:
            raise OptionError("--shard with one process: expected several under torchrun, such as make … NPROC=8")
        if config.stream == "always" and own.size > 1:
            raise OptionError("--stream always with several ranks: blocks pass through one process; leave one out")
        return _measured(config, quantizer, own, (reporter or Silent()) if own.leads else Silent())


def _measured(
    config: SharpnessConfig, quantizer: quantize.Quantizer | None, own: Ranks, reporter: Reporter
) -> SharpnessResult:
    reporter.stage("resolving the model")
    checkpoint = resolve(config.model, remote_code=config.remote_code)
    reporter.stage("reading the text")
    calibrate = quantizer is not None and quantizer.needs_calibration
    text = inputs.read_text(config, checkpoint, calibrate, reporter.note)
    job = _Job(config, checkpoint, quantizer, text, own)
    with lock(job.path) if own.leads else nullcontext():
        attributes, sections = own.told(_begun(job) if own.leads else ({}, {}))
        if attributes.get("status") == store.COMPLETE:
            reporter.note(f"{job.path.name} was complete: nothing was measured again")
            if own.leads:  # a run may have been killed between the two
                shutil.rmtree(_state(job), ignore_errors=True)
        else:
            with curvature.vectors.in_pieces(own) if config.shard else nullcontext():
                _measure(job, attributes, sections, reporter)
        return own.told(_draw(job.path, reporter) if own.leads else None)  # type: ignore[return-value]


def _begun(job: _Job) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What the file at the job's path already holds."""
    if job.config.overwrite or not job.path.exists():
        return {}, {}
    stored = store.read(job.path)
    if stored.attributes.get("key") != job.key:
        raise StoreError(
            f"{job.path}: holds a measurement of other inputs; name another file with --out, or use --overwrite"
        )
    attributes = dict(stored.attributes)
    for name in ("config", "versions", "environment"):
        attributes[name] = json.dumps(attributes[name])
    return attributes, stored.sections


def _planned(job: _Job) -> PlanConfig:
    config = job.config
    by_losses = not (config.layers or config.adam)
    return PlanConfig(
        "sharpness",
        str(job.checkpoint),
        batch_size=config.batch_size,
        products=(_BOTH_ENDS if config.bottom else _ONE_END) + (0 if by_losses else _PROBES),
        density=config.density_steps * config.density_probes,
        probes=min(_PROBES, config.max_probes),
        product="reverse" if config.product == "reverse" else "difference",
        checkpointing=config.checkpointing,
        shard=config.shard,
        stream=config.stream == "always",
        ranks=job.ranks.size,
    )


def _measure(job: _Job, attributes: dict[str, Any], sections: dict[str, dict[str, Any]], reporter: Reporter) -> None:
    config = job.config
    planning.look_ahead(
        _planned(job), job.checkpoint, job.text.evaluation, job.ranks.device, reporter, config.remote_code
    )
    reporter.stage(f"loading {job.checkpoint}")
    if config.shard:
        loaded = inputs.load_in_pieces(config, job.checkpoint, job.text, job.ranks)
    elif config.stream == "always":
        loaded = inputs.load_to_scratch(config, job.checkpoint, job.text, job.ranks.device, "float32", job.path.parent)
    else:
        inputs.check_room(job.checkpoint, _COPIES, job.ranks.device)
        loaded = inputs.load(config, job.checkpoint, job.text, job.ranks.device, "float32", config.checkpointing)
    reporter.stage("gradient")
    operator = parts.hessian(config, loaded, job.ranks, reporter)
    gradient = operator.gradient()
    spread = Spread(loaded.objective, loaded.theta, operator.space, ranks=job.ranks)
    begun = attributes.get("environment")
    attributes |= _attributes(job, loaded, operator, gradient, spread)
    changed = begun is not None and differences(json.loads(begun), json.loads(attributes["environment"]))
    attributes["mixed"] = attributes.get("mixed", 0) or int(bool(changed))
    seen: curvature.LinearOperator = operator
    if config.adam:
        seen = curvature.Preconditioned(
            operator,
            curvature.diagonal_from_gradients(loaded.objective, loaded.theta, operator.space, ranks=job.ranks),
        )
        gradient = gradient * seen.scale
        spread = Spread(loaded.objective, loaded.theta, operator.space, seen.scale, job.ranks)

    def write(complete: bool) -> None:
        if job.ranks.leads:
            store.write(job.path, attributes, sections, complete)

    def finish(part: str, work: Callable[[], Mapping[str, Mapping[str, Any]]]) -> None:
        if part not in sections:
            began = time.monotonic()
            for place, content in work().items():
                sections[place] = dict(content)
            sections[part]["seconds"] = time.monotonic() - began
            write(complete=False)

    start = eigenvectors.read(config.start, operator.space, gradient, "--start").sum(0) if config.start else None

    if not sections and job.ranks.leads:
        for old in eigenvectors.files_beside(job.path):  # of a measurement that is overwritten
            old.unlink()

    def keep(which: str, vectors: torch.Tensor) -> None:
        if config.vectors and job.ranks.leads:
            eigenvectors.write(eigenvectors.file_beside(job.path, which), which, operator.space, vectors)

    ledger = Ledger(_state(job), job.key, job.ranks, config.shard)
    spectrum = Spectrum(config, seen, gradient, ledger, reporter, spread, start, keep)
    top_is_known = "eigenvalues/top" in sections
    rough = None if top_is_known else rough_hessian(config, loaded, ledger, job.ranks)
    finish("eigenvalues/top", lambda: {"eigenvalues/top": spectrum.end("top", config.top, rough=rough)})
    if config.bottom:
        before = int(sections["eigenvalues/top"]["products"])
        finish("eigenvalues/bottom", lambda: {"eigenvalues/bottom": spectrum.end("bottom", config.bottom, before)})
    spectrum.release()
    finish("trace", lambda: parts.trace(config, seen, operator, loaded, ledger, reporter))
    if config.density_steps:
        finish("density", lambda: {"density": parts.density(config, seen, sections, ledger, reporter)})
    if (quantizer := job.quantizer) is not None:
        calibration = job.text.calibration
        finish("direction", lambda: parts.direction(config, quantizer, calibration, operator, loaded, reporter))
    write(complete=True)
    ledger.discard()


def _state(job: _Job) -> Path:
    """Where that is kept which is begun and not finished: beside the file."""
    return job.path.with_name(f".{job.path.stem}.state")


def _attributes(
    job: _Job, loaded: inputs.Loaded, operator: curvature.Operator, gradient: torch.Tensor, spread: Spread
) -> dict[str, str | float | int]:
    """What the file says of itself: names and numbers, no path."""
    config, text = job.config, job.text
    stored = replace(
        config,
        model=str(job.checkpoint),
        text=display_name(config.text),
        calibration=display_name(config.calibration) if config.calibration else None,
        tokenizer=display_name(config.tokenizer) if config.tokenizer else None,
    )
    resolved = {name: value for name, value in asdict(stored).items() if name not in ("out", "overwrite", "start")}
    resolved["start"] = config.start.name if config.start else None
    whole, total = operator.n, sum(p.numel() for p in loaded.theta.values())
    if isinstance(operator, ShardedHessian):
        whole, total = operator.whole(), sum(operator.objective.pieces.sizes.values())
    norm = curvature.vectors.norm(gradient)
    return {
        "title": f"Curvature of {job.checkpoint}",
        "key": job.key,
        "config": json.dumps(resolved),
        "versions": json.dumps(versions()),
        "environment": json.dumps(environment(job.ranks.device, attention_of(loaded.model), job.ranks.size)),
        "model": str(job.checkpoint),
        "model_identity": job.checkpoint.identity,
        "text": display_name(config.text),
        "eval_tokens": text.evaluation.n_tokens,
        "eval_windows": len(text.evaluation),
        "seq_len": text.evaluation.ids.shape[1],
        "tokens_fingerprint": text.evaluation.fingerprint,
        "calibration_fingerprint": text.calibration.fingerprint if text.calibration is not None else "",
        "device": torch.device(job.ranks.device).type,
        "dtype": "float32",
        "seed": config.seed,
        "operator": ("Adam-preconditioned Hessian" if config.adam else "Hessian") + f", {config.product} product",
        "loss": operator.loss(),
        "gradient_norm": norm,
        "gradient_norm_standard_error": spread.slope(torch.div(gradient, norm, out=operator.new(operator.n)), norm)
        if norm
        else 0.0,
        "weight_norm": curvature.vectors.length(loaded.theta.values()),
        "parameters": whole,
        "total_parameters": total,
        "patterns": config.params,
    }


def _draw(path: Path, reporter: Reporter) -> SharpnessResult:
    from landscape import viewer

    reporter.stage("drawing")
    stored = store.read(path)
    figures = (path.with_suffix(".pdf"), path.with_suffix(".png")) if "density" in stored.sections else ()
    for figure in figures:
        viewer.write_spectrum(stored, figure)
    return SharpnessResult(path, figures, eigenvectors.files_beside(path), stored)
