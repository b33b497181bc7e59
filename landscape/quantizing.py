"""The job: a model and a quantizer in; Θ̂ as a dense checkpoint and the report out.

What is kept is an ordinary float32 checkpoint whose weights lie on the quantizer's grid: transformers loads it, and so
does every other job here, as a model or as another point of a plane.
"""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from landscape import inputs, models, quantize
from landscape.config import QuantizeConfig
from landscape.errors import OptionError
from landscape.evaluation import quantized, stored_report
from landscape.machine.arithmetic import exactly
from landscape.machine.environment import attention_of, environment
from landscape.models.references import resolve
from landscape.reporting import Reporter, Silent, versions
from landscape.storage.digests import write_sums
from landscape.storage.files import disk_errors, lock

REPORT = "report.json"


@dataclass(frozen=True)
class Quantized:
    """What was quantized: the model's name, the report, ‖Θ̂ − Θ‖, and where Θ̂ is kept, if anywhere."""

    model: str
    report: quantize.Report
    step_norm: float
    folder: Path | None


@exactly
def quantize_model(config: QuantizeConfig, reporter: Reporter | None = None) -> Quantized:
    """Quantize the model that `config` names, and keep Θ̂ where it says.

    Raises:
        LandscapeError: an input cannot be used; no directory that looks whole is left behind.
    """
    reporter = reporter or Silent()
    quantizer = quantize.parse(config.quant)
    _check_place(config)
    with lock(config.save, "--save") if config.save else nullcontext():
        return _quantize(config, quantizer, reporter)


def _check_place(config: QuantizeConfig) -> None:
    if config.save is None or not config.save.exists():
        return
    if not config.overwrite:
        raise OptionError(f"--save {config.save}: exists already; name another directory, or use --overwrite")
    if not (config.save / REPORT).is_file():  # a training run, say: it would be gone
        raise OptionError(f"--save {config.save}: not a directory that 'landscape quantize' made; name another one")


def _quantize(config: QuantizeConfig, quantizer: quantize.Quantizer, reporter: Reporter) -> Quantized:
    device = models.pick_device(config.device)
    reporter.stage("resolving the model")
    checkpoint = resolve(config.model, remote_code=config.remote_code)
    reporter.stage("reading the text")
    text = inputs.read_text(config, checkpoint, quantizer.needs_calibration, reporter.note)
    reporter.stage(f"loading {checkpoint}")
    loaded = inputs.load(config, checkpoint, text, device, "float32")
    weights, report = quantized(quantizer, loaded, text, config.batch_size, reporter)
    for note in report.notes:
        reporter.note(note)
    step_norm = (weights - loaded.theta).norm()
    if config.save is None:
        return Quantized(str(checkpoint), report, step_norm, None)
    reporter.stage(f"writing {config.save.name}")
    with torch.no_grad():
        for name, parameter in loaded.model.named_parameters():
            parameter.copy_(weights[name])
    facts = {
        "model": str(checkpoint),
        "model_identity": checkpoint.identity,
        "calibration_fingerprint": text.calibration.fingerprint if text.calibration is not None else "",
        "versions": versions(),
        "environment": environment(device, attention_of(loaded.model)),
        **stored_report(report),
    }
    _save(config.save, loaded, inputs.load_tokenizer(config, checkpoint), facts)
    return Quantized(str(checkpoint), report, step_norm, config.save)


def _save(folder: Path, loaded: inputs.Loaded, tokenizer: object, facts: dict[str, object]) -> None:
    """Write beside, then rename: a directory of this name is whole or not there."""
    partial = folder.with_name(f".{folder.name}.partial")
    with disk_errors(folder):
        shutil.rmtree(partial, ignore_errors=True)
        try:
            loaded.model.save_pretrained(partial)  # type: ignore[operator]
            tokenizer.save_pretrained(partial)  # type: ignore[attr-defined]
            (partial / REPORT).write_text(json.dumps(facts, indent=1), encoding="utf-8")
            write_sums(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
