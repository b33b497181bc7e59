"""The job: a model, a text and quantizers in; the losses of Θ and each Θ̂, and what quantization costs, out.

    reference → Θ;  text → objective;  quantizer → Θ̂ → losses by window → one file per quantizer

Every input goes into a key that names the file, so that the same command run again evaluates what is missing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from landscape import inputs, models, packed, planning
from landscape.config import EvaluateConfig, PlanConfig
from landscape.errors import OptionError
from landscape.evaluation.exam import Exam
from landscape.evaluation.step import Step
from landscape.evaluation.stored import SCHEMA, Evaluated, read
from landscape.evaluation.ways import Way, quantizers_of, stored_report, theta_hat
from landscape.losses import WindowLosses, compare, window_losses
from landscape.machine.arithmetic import exactly
from landscape.machine.environment import attention_of, environment
from landscape.machine.ranks import Ranks, ranks
from landscape.models.checkpoint import Checkpoint
from landscape.models.references import resolve
from landscape.reporting import Reporter, Silent, versions
from landscape.results import key_of, path_of
from landscape.storage.digests import with_digest
from landscape.storage.files import lock, write_whole
from landscape.streaming import streamed_losses
from landscape.texts import display_name
from landscape.tokens import predicted_bytes
from landscape.weights import Weights


@dataclass(frozen=True)
class _Job:
    """All that is decided before the first evaluation."""

    config: EvaluateConfig
    checkpoint: Checkpoint
    text: inputs.Text
    exam: Exam | None
    step: Step | None
    ranks: Ranks

    def key(self, way: Way) -> str:
        """SHA-256 over everything that changes the numbers."""
        config = self.config
        calibration = self.text.calibration if way.needs_calibration else None
        more = {"step": self.step.identity} if self.step is not None else {}
        return key_of(
            more
            | {
                "kind": "evaluation",
                "model": self.checkpoint.identity,
                "quantizer": way.identity,
                "evaluation": self.text.evaluation.fingerprint,
                "calibration": calibration.fingerprint if calibration is not None else None,
                "dtype": config.dtype,
                "batch_size": config.batch_size,
                "questions": self.exam.asked.fingerprint if self.exam is not None else None,
                "draws": config.draws,
                "seed": config.seed,
                "device": torch.device(self.ranks.device).type,
            }
        )

    def path(self, way: Way) -> Path:
        """Where its result goes."""
        name = "float" if way == Way() else str(way)
        return path_of(self.config.out, self.checkpoint, name, self.key(way)[:8], suffix=".json")


@exactly
def evaluate_model(config: EvaluateConfig, reporter: Reporter | None = None) -> list[Evaluated]:
    """Evaluate what `config` describes, one result per quantizer, in its order.

    Under torchrun all ranks run this in lockstep, each on some of the windows; the first one quantizes, asks questions,
    takes products and writes.

    Raises:
        LandscapeError: an input cannot be used; the results of quantizers before it are kept.
    """
    with ranks(models.pick_device(config.device)) as own:
        return _evaluated(config, own, (reporter or Silent()) if own.leads else Silent())


def _evaluated(config: EvaluateConfig, own: Ranks, reporter: Reporter) -> list[Evaluated]:
    if config.out.suffix == ".json" or (config.out.exists() and not config.out.is_dir()):
        raise OptionError(f"--out {config.out}: expected a directory; every quantizer gets a file of its own in it")
    quantizers = quantizers_of(config.quant)
    reporter.stage("resolving the model")
    checkpoint = resolve(config.model, remote_code=config.remote_code)
    named = [name.strip() for name in (config.packed or "").split(",") if name.strip()]
    ways = [*quantizers, *(Way(packed=packed.locate(name, checkpoint)) for name in named)]
    reporter.stage("reading the text")
    text = inputs.read_text(config, checkpoint, any(way.needs_calibration for way in ways), reporter.note)
    exam = None
    if config.tasks is not None:
        exam = Exam.prepare(config, inputs.load_tokenizer(config, checkpoint), reporter)
    step = Step.prepare(config, checkpoint, text) if config.second_order else None
    job = _Job(config, checkpoint, text, exam, step, own)
    loaded: inputs.Loaded | None = None
    theta: WindowLosses | None = None
    complete = 0
    notes: dict[str, list[str]] = {}
    for way in ways:
        path = job.path(way)
        with lock(path) if own.leads else nullcontext():
            if own.told(_is_there(job, way)):
                complete += 1
                continue
            if loaded is None or theta is None:
                streams = _streams(job, ways, reporter)
                planned = _planned(job, ways, streams)
                planning.look_ahead(planned, checkpoint, text.evaluation, own.device, reporter, config.remote_code)
                reporter.stage(f"loading {checkpoint}")
                loaded = inputs.load(config, checkpoint, text, own.device, config.dtype, streams=streams)
                on_batch = reporter.stage("evaluating Θ")
                if streams:
                    theta = streamed_losses(loaded.objective, on_progress=on_batch).losses
                else:
                    theta = window_losses(loaded.objective, loaded.theta, on_batch, own)
            content, said = _measured(job, way, loaded, theta, reporter)
            if own.leads:
                write_whole(path, content)
            for note in said:
                notes.setdefault(note, []).append(str(way))
    for note in exam.notes() if exam is not None else []:
        reporter.note(note)
    for note, names in notes.items():
        reporter.note(f"{', '.join(names)}: {note}")
    if complete:
        reporter.note(f"{complete} of {len(ways)} results were there already and were not evaluated again")
    return own.told([read(job.path(way)) for way in ways] if own.leads else [])


def _is_there(job: _Job, way: Way) -> bool:
    """Whether the result of `way` needs nothing; only the leader looks."""
    path = job.path(way)
    if not job.ranks.leads or job.config.overwrite or not path.exists():
        return False
    return bool(read(path).facts["key"] == job.key(way))


def _measured(
    job: _Job, way: Way, loaded: inputs.Loaded, theta: WindowLosses, reporter: Reporter
) -> tuple[bytes, tuple[str, ...]]:
    """The file of one Θ̂, and what a user should know of it."""
    report: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    losses, seconds, weights = theta, 0.0, None
    if way.quantizer is not None and loaded.streams:
        calibration = job.text.calibration if way.needs_calibration else None
        on_batch = reporter.stage(f"quantizing to {way} and evaluating")
        done = streamed_losses(loaded.objective, way.quantizer, calibration, job.config.batch_size, on_batch)
        assert done.report is not None
        losses, seconds = done.losses, done.quantize_seconds
        report, notes = stored_report(done.report), done.report.notes
    elif way != Way():
        began = time.monotonic()
        if job.ranks.leads:
            weights, report, notes = theta_hat(way, loaded, job.text, job.config.batch_size, reporter)
        weights = Weights(job.ranks.given(weights or loaded.theta, loaded.theta))
        seconds = time.monotonic() - began
        losses = window_losses(loaded.objective, weights, reporter.stage(f"evaluating {way}"), job.ranks)
    if not job.ranks.leads:
        return b"", notes
    comparison = compare(theta, losses, job.config.draws, job.config.seed)
    content = _facts(job, way, loaded) | {
        "comparison": asdict(comparison),
        "windows": {
            "predicted": theta.counts.tolist(),
            "sum": theta.sums.tolist(),
            "sum_hat": losses.sums.tolist(),
        },
        "report": report,
        "tasks": job.exam.sit(loaded, weights, str(way), reporter) if job.exam is not None else {},
        "step": job.step.measure(loaded, job.text, weights, str(way), reporter) if job.step and weights else {},
        "quantize_seconds": round(seconds, 3),
    }
    plain = json.loads(json.dumps(content, default=_plain))
    return json.dumps(with_digest(plain), indent=1).encode(), notes


def _streams(job: _Job, ways: Sequence[Way], reporter: Reporter) -> bool:
    """Whether blocks are taken out of the file one at a time."""
    config = job.config
    whole = [way for way in ways if way.packed is not None or (way.quantizer is not None and way.quantizer.engine)]
    if config.stream == "always" and job.ranks.size > 1:
        raise OptionError("--stream always under torchrun: blocks pass through one process; leave torchrun out")
    if config.stream == "always" and whole:
        raise OptionError(f"--stream always with {whole[0]}: needs the whole model in memory; use --stream never")
    if config.stream != "auto" or whole or job.exam is not None or job.step is not None or job.ranks.size > 1:
        return config.stream == "always"
    return inputs.too_large(job.checkpoint, 1 if set(ways) == {Way()} else 2, job.ranks.device, reporter.note)


def _planned(job: _Job, ways: Sequence[Way], streams: bool) -> PlanConfig:
    return PlanConfig(
        "evaluate",
        str(job.checkpoint),
        batch_size=job.config.batch_size,
        dtype=job.config.dtype,  # type: ignore[arg-type]
        quantizers=len(ways) - ways.count(Way()),
        stream=streams,
        ranks=job.ranks.size,
    )


def _facts(job: _Job, way: Way, loaded: inputs.Loaded) -> dict[str, Any]:
    """What the file says of itself: names and numbers, no path."""
    config, text = job.config, job.text
    resolved = {
        name: value for name, value in asdict(config).items() if name not in ("out", "overwrite", "quant", "packed")
    }
    resolved |= {"model": str(job.checkpoint), "task_folder": config.task_folder.name if config.task_folder else None}
    for name in ("text", "calibration", "tokenizer", "prev"):
        resolved[name] = display_name(resolved[name]) if resolved[name] else None
    calibration = text.calibration if way.needs_calibration else None
    return {
        "kind": "evaluation",
        "schema": SCHEMA,
        "key": job.key(way),
        "model": str(job.checkpoint),
        "model_identity": job.checkpoint.identity,
        "quantizer": str(way),
        "quantizer_identity": way.identity,
        "total_parameters": loaded.theta.numel(),
        "text": display_name(config.text),
        "eval_tokens": text.evaluation.n_tokens,
        "eval_windows": len(text.evaluation),
        "seq_len": text.evaluation.ids.shape[1],
        "predicted_bytes": predicted_bytes(text.evaluation, inputs.load_tokenizer(config, job.checkpoint)),
        "tokens_fingerprint": text.evaluation.fingerprint,
        "calibration_fingerprint": calibration.fingerprint if calibration is not None else "",
        "dtype": config.dtype,
        "device": torch.device(job.ranks.device).type,
        "config": resolved,
        "versions": versions() | ({"lm_eval": version("lm_eval")} if job.exam is not None else {}),
        "environment": environment(job.ranks.device, attention_of(loaded.model), job.ranks.size),
    }


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a stored result")
