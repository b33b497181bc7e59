"""The second job: a model and a text in; eigenvalues, trace, spectral density and the quadratic model out.

    reference → Θ;  text → objective;  operator → estimators → HDF5 file → table and figure

Every input goes into a key that names the file. A part that is finished is in the file, one that is not is in a ledger
beside it, so that the same command goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from landscape import curvature, eigenvectors, heap, inputs, models, quantize
from landscape.config import SharpnessConfig
from landscape.curvature import store
from landscape.curvature.ledger import Ledger
from landscape.errors import StoreError
from landscape.files import lock
from landscape.references import Checkpoint, resolve
from landscape.reporting import Reporter, Silent, versions
from landscape.results import key_of, path_of
from landscape.sharpness import parts
from landscape.sharpness.spectrum import Spectrum, rough_hessian
from landscape.sharpness.windows import Spread
from landscape.texts import display_name


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
    device: str

    @property
    def key(self) -> str:
        """SHA-256 over everything that changes the numbers."""
        calibration = self.text.calibration
        asked = asdict(self.config)
        for name in ("model", "text", "calibration", "tokenizer", "out", "overwrite", "remote_code", "checkpointing"):
            del asked[name]
        everything = asked | {
            "model": self.checkpoint.identity,
            "start": eigenvectors.fingerprint(self.config.start, "--start") if self.config.start else None,
            "quant": str(self.quantizer),
            "evaluation": self.text.evaluation.fingerprint,
            "calibration": calibration.fingerprint if calibration is not None else None,
            "device": torch.device(self.device).type,
        }
        return key_of(everything)

    @property
    def path(self) -> Path:
        """Where the result goes: the name asked for, or one that its inputs make."""
        return path_of(self.config.out, self.checkpoint, self.key[:8])


def measure_sharpness(config: SharpnessConfig, reporter: Reporter | None = None) -> SharpnessResult:
    """Measure, or complete, what `config` describes, and draw its figure.

    Raises:
        LandscapeError: an input cannot be used; nothing is left half-written.
    """
    heap.hold()
    reporter = reporter or Silent()
    quantizer = quantize.parse(config.quant) if config.quant else None
    device = models.pick_device(config.device)
    reporter.stage("resolving the model")
    checkpoint = resolve(config.model, remote_code=config.remote_code)
    reporter.stage("reading the text")
    calibrate = quantizer is not None and quantizer.needs_calibration
    text = inputs.read_text(config, checkpoint, calibrate, reporter.note)
    job = _Job(config, checkpoint, quantizer, text, device)
    with lock(job.path):
        attributes, sections = _begun(job)
        if attributes.get("status") == store.COMPLETE:
            reporter.note(f"{job.path.name} was complete: nothing was measured again")
        else:
            _measure(job, attributes, sections, reporter)
        return _draw(job.path, reporter)


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
    for name in ("config", "versions"):
        attributes[name] = json.dumps(attributes[name])
    return attributes, stored.sections


def _measure(job: _Job, attributes: dict[str, Any], sections: dict[str, dict[str, Any]], reporter: Reporter) -> None:
    config = job.config
    reporter.stage(f"loading {job.checkpoint}")
    loaded = inputs.load(config, job.checkpoint, job.text, job.device, "float32", config.checkpointing)
    reporter.stage("gradient")
    operator = parts.hessian(config, loaded, reporter)
    gradient = operator.gradient()
    spread = Spread(loaded.objective, loaded.theta, operator.space)
    attributes |= _attributes(job, loaded, operator, gradient, spread)
    seen: curvature.LinearOperator = operator
    if config.adam:
        seen = curvature.Preconditioned(
            operator, curvature.diagonal_from_gradients(loaded.objective, loaded.theta, operator.space)
        )
        gradient = gradient * seen.scale
        spread = Spread(loaded.objective, loaded.theta, operator.space, seen.scale)

    def finish(part: str, work: Callable[[], Mapping[str, Mapping[str, Any]]]) -> None:
        if part not in sections:
            began = time.monotonic()
            for place, content in work().items():
                sections[place] = dict(content)
            sections[part]["seconds"] = time.monotonic() - began
            store.write(job.path, attributes, sections, complete=False)

    start = eigenvectors.read(config.start, operator.space, gradient, "--start").sum(0) if config.start else None

    if not sections:
        for old in eigenvectors.files_beside(job.path):  # of a measurement that is overwritten
            old.unlink()

    def keep(which: str, vectors: torch.Tensor) -> None:
        if config.vectors:
            eigenvectors.write(eigenvectors.file_beside(job.path, which), which, operator.space, vectors)

    ledger = Ledger(job.path.with_name(f".{job.path.stem}.state"), job.key)
    spectrum = Spectrum(config, seen, gradient, ledger, reporter, spread, start, keep)
    rough = rough_hessian(config, loaded, ledger) if "eigenvalues/top" not in sections else None
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
    store.write(job.path, attributes, sections, complete=True)
    ledger.discard()


def _attributes(
    job: _Job, loaded: inputs.Loaded, operator: parts.Operator, gradient: torch.Tensor, spread: Spread
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
    covered = sum(p.numel() for p in loaded.theta.values())
    norm = curvature.vectors.norm(gradient)
    return {
        "title": f"Curvature of {job.checkpoint}",
        "key": job.key,
        "config": json.dumps(resolved),
        "versions": json.dumps(versions()),
        "model": str(job.checkpoint),
        "model_identity": job.checkpoint.identity,
        "text": display_name(config.text),
        "eval_tokens": text.evaluation.n_tokens,
        "eval_windows": len(text.evaluation),
        "seq_len": text.evaluation.ids.shape[1],
        "tokens_fingerprint": text.evaluation.fingerprint,
        "device": torch.device(job.device).type,
        "dtype": "float32",
        "seed": config.seed,
        "operator": ("Adam-preconditioned Hessian" if config.adam else "Hessian") + f", {config.product} product",
        "loss": operator.loss(),
        "gradient_norm": norm,
        "gradient_norm_standard_error": spread.slope(gradient / norm, norm) if norm else 0.0,
        "weight_norm": loaded.theta.norm(),
        "parameters": operator.n,
        "total_parameters": covered,
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
