"""An evaluation: Θ̂ made again, some windows evaluated again under Θ and Θ̂, and what follows from them derived again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from landscape import evaluation, inputs, models, packed
from landscape.config import EvaluateConfig, VerifyConfig
from landscape.evaluation.step import Step
from landscape.losses import WindowLosses, compare, window_losses
from landscape.machine.environment import attention_of, environment
from landscape.models.checkpoint import Checkpoint
from landscape.quantize import parse
from landscape.reporting import Reporter, versions
from landscape.verifying import given, layers
from landscape.verifying.verdict import Item, Verdict, pairs
from landscape.verifying.yardstick import FLOAT64, LOSS, PRODUCT, Yardstick, yardstick
from landscape.weights import Weights

_DERIVED = "float64 rounding"
_LOSSES = ("loss", "actual", "profile")  # of the second order; slope, quadratic and predicted are products
_PRODUCTS = ("slope", "quadratic", "predicted")
_LENGTHS = ("length", "relative_length")


@dataclass(frozen=True)
class _Again:
    """What the file was made from, made again; `hat` is None for a file about Θ alone."""

    config: EvaluateConfig
    checkpoint: Checkpoint
    text: inputs.Text
    loaded: inputs.Loaded
    hat: Weights | None
    report: Mapping[str, Any]
    measure: Yardstick


def check(
    stored: evaluation.Evaluated, verdict: Verdict, asked: VerifyConfig, rng: np.random.Generator, reporter: Reporter
) -> None:
    """Check an evaluation.

    Raises:
        LandscapeError: an input is missing or another one.
    """
    again = _made(stored, asked, reporter)
    found = {"total_parameters": again.loaded.theta.numel(), **given.sizes(again.text)}
    verdict.add_worst("model and text", pairs(stored.facts, found))
    if again.report:
        layers.check(verdict, stored.report["layers"], again.report["layers"], again.measure, rng, asked.cells)
        sizes = {name: again.report[name] for name in ("bits", "bits_per_weight")}
        verdict.add_worst("size", pairs(stored.report, sizes, FLOAT64, _DERIVED))
    _check_windows(verdict, stored, again, rng, asked.cells, reporter)
    _check_comparison(verdict, stored)
    if stored.step:
        _check_step(verdict, stored, again, reporter)
    if stored.tasks:
        verdict.skipped.append("accuracies on tasks: 'landscape evaluate --tasks' asks the questions again")


def _made(stored: evaluation.Evaluated, asked: VerifyConfig, reporter: Reporter) -> _Again:
    facts, own = stored.facts, stored.facts["config"]
    reporter.stage("resolving the model")
    checkpoint = given.checkpoint(asked, facts["model"], facts["model_identity"])
    previous = given.other(asked, "prev", own.get("prev"), checkpoint)
    config = given.configuration(EvaluateConfig, asked, own, model=facts["model"], prev=previous)
    text = given.read_text(config, asked, facts, checkpoint, reporter)
    device = models.pick_device(config.device)
    reporter.stage(f"loading {checkpoint}")
    loaded = inputs.load(config, checkpoint, text, device, config.dtype)
    here = environment(device, attention_of(loaded.model))
    measure = yardstick(facts, here, versions(), (own.get("batch_size", 0), config.batch_size))
    identity = str(facts.get("quantizer_identity", stored.quantizer))
    hat, report = None, {}
    if ":" in identity or asked.packed:
        reporter.stage(f"reading {stored.quantizer}")
        other = packed.locate(given.local(asked, "packed", stored.quantizer), checkpoint)
        given.require(asked, "packed", "packed checkpoint", identity, other.identity)
        hat, _ = packed.load_dense(other, loaded.theta, loaded.model)
    elif stored.quantizer != evaluation.NONE:
        quantizer = parse(stored.quantizer)
        together = own.get("batch_size", config.batch_size)  # decides some roundings
        hat, done = evaluation.quantized(quantizer, loaded, text, together, reporter)
        report = evaluation.stored_report(done)
        layers.require_same_levels(asked, stored.report["layers"], report["layers"], measure)
    return _Again(config, checkpoint, text, loaded, hat, report, measure.after(hat is None))


def _check_windows(
    verdict: Verdict,
    stored: evaluation.Evaluated,
    again: _Again,
    rng: np.random.Generator,
    count: int,
    reporter: Reporter,
) -> None:
    """The losses of some windows; a window is evaluated in the batch that it was in."""
    told, objective = stored.facts["windows"], again.loaded.objective
    lengths = (again.text.evaluation.lengths - 1).tolist()
    verdict.add("tokens predicted in each window", told["predicted"] == lengths, True)
    if not all(len(told[name]) == len(lengths) for name in ("predicted", "sum", "sum_hat")):
        verdict.add("windows", len(told["sum"]), len(lengths))
        return
    chosen, size = layers.some(rng, len(lengths), count), again.config.batch_size
    numbers = sorted({window // size for window in chosen})
    windows = [w for number in numbers for w in range(number * size, min((number + 1) * size, len(lengths)))]
    some = replace(objective, batches=[objective.batches[number] for number in numbers])
    theta = window_losses(some, again.loaded.theta, reporter.stage("evaluating Θ again"))
    on_batch = reporter.stage(f"evaluating {stored.quantizer} again")
    hat = theta if again.hat is None else window_losses(some, again.hat, on_batch)
    for window in chosen:
        at = windows.index(window)
        for name, label, found in (("sum", "Θ", theta), ("sum_hat", "Θ̂", hat)):
            value, change = told[name][window], told["sum_hat"][window] - told["sum"][window]
            tolerance = again.measure.loss(value, change if name == "sum_hat" else 0.0)
            verdict.add(f"window {window} under {label}", value, float(found.sums[at]), tolerance, again.measure.why)


def _check_comparison(verdict: Verdict, stored: evaluation.Evaluated) -> None:
    """Losses, their differences and intervals, from the windows that are stored."""
    told, config = stored.facts["windows"], stored.facts["config"]
    counts = np.array(told["predicted"], dtype=np.int64)
    theta, hat = (WindowLosses(np.array(told[name], dtype=np.float64), counts) for name in ("sum", "sum_hat"))
    found = compare(theta, hat, int(config.get("draws", 2000)), int(config.get("seed", 0)))
    for name, estimate in asdict(found).items():
        size = FLOAT64 * max(1.0, abs(found.loss.value), abs(estimate["value"]))
        there = asdict(getattr(stored.comparison, name))
        items = [Item(field, there[field], value, size, _DERIVED) for field, value in estimate.items()]
        verdict.add_worst(f"{name} over all windows", items)


def _check_step(verdict: Verdict, stored: evaluation.Evaluated, again: _Again, reporter: Reporter) -> None:
    """The second order along Θ̂ − Θ: all of it where bits are expected, else what rounding moves little."""
    assert again.hat is not None
    step, measure = Step.prepare(again.config, again.checkpoint, again.text), again.measure
    found = step.measure(again.loaded, again.text, again.hat, stored.quantizer, reporter)
    told, here = dict(_numbers(stored.step)), dict(_numbers(found))
    verdict.add("numbers of the second order", len(told), len(here))
    products = (PRODUCT + measure.moved) * (abs(found["slope"]) + abs(found["quadratic"]))
    change = measure.moved * max(map(abs, found["profile"]["change"])) + 2 * LOSS["float32"] * abs(found["loss"])
    items = []
    for name, value in here.items():
        kind = name.split(" ")[0]
        if measure.exact:
            items.append(Item(name, told.get(name), value, 0.0, measure.why))
        elif kind in _LENGTHS:
            items.append(Item(name, told.get(name), value, measure.share(1e-5) * abs(value), measure.why))
        elif kind in _PRODUCTS:
            items.append(Item(name, told.get(name), value, products, f"{PRODUCT:.0e} of its terms"))
        elif kind in _LOSSES and not name.endswith("_se") and "change_se" not in name:
            items.append(Item(name, told.get(name), value, change, measure.why))
    verdict.add_worst("second order", items)


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and word of nested lists and dictionaries, by the way to it."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(part, f"{name} {key}".strip())
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _numbers(part, f"{name} {index}")
    else:
        yield name, value.item() if isinstance(value, np.generic) else value
