"""Rows of a study's tables, out of the files that its jobs wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from landscape import quantize
from landscape.curvature import store
from landscape.errors import QuantizerError, StoreError
from landscape.evaluation import Evaluated
from landscape.evaluation import read as read_evaluation
from landscape.storage.files import reading
from landscape.study.plan import Subject
from landscape.study.predictions import SUMS, predict

Row = dict[str, Any]
_ESTIMATES = {  # of a comparison: what a column is called
    "loss": "loss",
    "loss_hat": "loss_hat",
    "change": "delta_l",
    "relative": "delta_q",
    "perplexity_ratio": "perplexity_ratio",
}
_REMEDY = "delete it and run the same command again"
_REACH = 0.1  # of the real change: the quadratic model holds as far as it is this near


@dataclass(frozen=True)
class Rows:
    """What one subject adds to each table."""

    study: Sequence[Row] = ()
    layers: Sequence[Row] = ()
    tensors: Sequence[Row] = ()


def of_subject(subject: Subject, files: Mapping[str, Path]) -> Rows:
    """A row for every quantizer, or one of curvature alone; one for every quantizer and layer; one for every tensor.

    Raises:
        StoreError: a file that is damaged.
    """
    who = _who(subject)
    what: Row = {}
    traces: dict[str, tuple[float, float]] = {}
    tensors: list[Row] = []
    if (path := files.get("curvature")) is not None:
        with reading(path, _REMEDY):
            curved = store.read(path)
            what, traces, tensors = _curvature(curved), traces_of(curved), [who | row for row in _tensors(curved)]
    study: list[Row] = []
    layers: list[Row] = []
    for name, path in files.items():
        if name != "curvature":
            with reading(path, _REMEDY):
                each = read_evaluation(path)
                study.append(who | _evaluation(each) | _step(each.step) | what | _predicted(each, traces))
                layers += (who | row for row in _layers(each, traces))
    return Rows(study or [who | what], layers, tensors)


def _who(subject: Subject) -> Row:
    point = subject.point
    return {
        "run": point.run,
        "checkpoint": point.revision,
        "kind": subject.kind,
        "stage": point.stage,
        "step": point.step,
        "tokens": point.tokens,
        "learning_rate": point.learning_rate,
    }


def _named(result: Evaluated) -> quantize.Quantizer:
    try:
        return quantize.parse(result.quantizer)
    except QuantizerError as error:
        raise StoreError(f"{result.path}: {error}; {_REMEDY}") from error


def _evaluation(result: Evaluated) -> Row:
    facts, report = result.facts, result.report
    row: Row = {"quantizer": result.quantizer}
    if report:
        quantizer = _named(result)
        row |= {"method": quantizer.method, "bits": quantizer.bits, "group_size": quantizer.group_size}
        row |= {"bits_per_weight": report["bits_per_weight"], "quantized_parameters": report["quantized_parameters"]}
    row["parameters"] = facts["total_parameters"]
    for name, column in _ESTIMATES.items():
        estimate = getattr(result.comparison, name)
        row |= {column: estimate.value, f"{column}_se": estimate.standard_error}
        if column == "delta_q":
            row |= {"delta_q_low": estimate.low, "delta_q_high": estimate.high}
    if result.tasks:
        for column, name in (("accuracy", "accuracy"), ("accuracy_hat", "accuracy_hat"), ("accuracy_drop", "drop")):
            score = result.tasks[name]
            row |= {column: score["value"], f"{column}_se": score["standard_error"]}
    if report:
        weights = np.array([layer["parameters"] for layer in report["layers"]], dtype=float)
        for column in ("excess_kurtosis", "max_over_median"):
            values = np.array([layer[column] for layer in report["layers"]], dtype=float)
            row |= {column: float(values @ weights / weights.sum()), f"{column}_max": float(values.max())}
        for column in ("misalignment", "grid_step"):  # root mean squares over weights
            values = np.array([layer.get(column, math.nan) for layer in report["layers"]], dtype=float)
            row[column] = float(np.sqrt(values**2 @ weights / weights.sum()))
        saturation = np.array([layer["saturation"] for layer in report["layers"]], dtype=float)
        row["saturation"] = float(saturation @ weights / weights.sum())
    return row | {
        "model": facts["model"],
        "identity": facts["model_identity"],
        "text": facts["text"],
        "eval_tokens": facts["eval_tokens"],
        "tokens_fingerprint": facts["tokens_fingerprint"],
        "calibration_fingerprint": facts["calibration_fingerprint"],
        "evaluation_key": facts["key"],
        "dtype": facts["dtype"],
        "device": facts["device"],
        "versions": json.dumps(facts["versions"], sort_keys=True),
    }


def _step(step: Mapping[str, Any]) -> Row:
    if not step:
        return {}
    length = step["length"]
    row: Row = {
        "curvature_tokens": step["tokens"],
        "step_length": length,
        "relative_step_length": step["relative_length"],
        "g_delta": step["slope"],
        "g_delta_se": step["slope_se"],
        "delta_h_delta": step["quadratic"],
        "delta_h_delta_se": step["quadratic_se"],
        "curvature_along": step["quadratic"] / length**2,
        "curvature_along_se": step["quadratic_se"] / length**2,
        "predicted": step["predicted"],
        "predicted_se": step["predicted_se"],
        "change": step["actual"],
        "change_se": step["actual_se"],
        "missed_se": step["missed_se"],
        "critical_sharpness": step["critical"]["sharpness"],
        "critical_sharpness_se": step["critical"]["sharpness"] * step["critical"]["relative_width"] / math.sqrt(12),
        "quadratic_reach": reach(step),
    }
    if "diagonal" in step:
        row |= {"predicted_diagonal": step["diagonal"] / 2, "predicted_diagonal_se": step["diagonal_se"] / 2}
    if step["previous"]:
        _, _, revision = step["previous"]["name"].rpartition("@")
        row |= {"previous": revision, "distance": step["previous"]["distance"], "cosine": step["previous"]["cosine"]}
    return row


def reach(step: Mapping[str, Any]) -> float:
    """How far along δ, in steps, the quadratic model stays within a tenth of the real change; at most as far as known.

    Places where the change cannot be told from zero say nothing.
    """
    profile, far = step["profile"], 0.0
    for t, change in zip(profile["t"], profile["change"], strict=True):
        if t <= 0:
            continue
        model = t * step["slope"] + 0.5 * t**2 * step["quadratic"]
        if abs(change) < 1e-6 * abs(step["loss"]):
            continue
        if not abs(model - change) <= _REACH * abs(change):
            break
        far = t
    return far


def _curvature(found: store.StoredSharpness) -> Row:
    facts, sections = found.attributes, found.sections
    row: Row = {
        "weight_norm": facts["weight_norm"],
        "gradient_norm": facts["gradient_norm"],
        "gradient_norm_se": facts.get("gradient_norm_standard_error", math.nan),
        "curvature_tokens": facts["eval_tokens"],
        "trace": sections["trace"]["value"],
        "trace_se": sections["trace"]["standard_error"],
        "curvature_key": facts["key"],
    }
    for name, which in (("lambda_max", "top"), ("lambda_min", "bottom")):
        if (section := sections.get(f"eigenvalues/{which}")) is not None:
            row |= {name: float(section["values"][0]), f"{name}_residual": float(section["residuals"][0])}
            row |= {f"{name}_se": float(section["standard_errors"][0])} if "standard_errors" in section else {}
    return row


def traces_of(found: store.StoredSharpness) -> dict[str, tuple[float, float]]:
    """(tr H_l, standard error) by layer: those of the tensors called weight."""
    section = found.sections.get("trace/layers")
    if section is None:
        return {}
    named = zip(section["name"], section["value"], section["standard_error"], strict=True)
    pairs = ((str(name), (float(value), float(error))) for name, value, error in named)
    return {name.removesuffix(".weight"): pair for name, pair in pairs if name.endswith(".weight")}


def _tensors(found: store.StoredSharpness) -> Iterator[Row]:
    section = found.sections.get("trace/layers", {"name": (), "value": (), "standard_error": ()})
    sizes = section.get("parameters", [None] * len(section["name"]))
    for name, size, value, error in zip(
        section["name"], sizes, section["value"], section["standard_error"], strict=True
    ):
        yield {
            "tensor": str(name),
            "parameters": size,
            "trace": value,
            "trace_se": error,
            "identity": found.attributes["model_identity"],
            "curvature_key": found.attributes["key"],
        }


def _predicted(result: Evaluated, traces: Mapping[str, tuple[float, float]]) -> Row:
    if not traces or not result.report:
        return {}
    found = predict(result.report["layers"], traces)
    return {
        column: number
        for name in SUMS
        for column, number in zip((f"predicted_{name}", f"predicted_{name}_se"), found[name], strict=True)
    }


def _layers(result: Evaluated, traces: Mapping[str, tuple[float, float]]) -> Iterator[Row]:
    """What the report says of each layer, with its trace and its share of the quadratic model."""
    shares = {layer["name"]: layer for layer in result.step.get("layers", [])}
    for layer in result.report.get("layers", []):
        trace, error = traces.get(layer["name"], (math.nan, math.nan))
        share = shares.get(layer["name"], {})
        yield {
            "quantizer": result.quantizer,
            **{("layer" if name == "name" else f"{name}"): v for name, v in layer.items() if name != "quantizer"},
            "layer_quantizer": layer["quantizer"],
            "trace": trace,
            "trace_se": error,
            "g_delta": share.get("slope", math.nan),
            "delta_h_delta": share.get("quadratic", math.nan),
            "diagonal": share.get("diagonal", math.nan),
        }
