"""Which columns of a study are shown, what they are called, and what they mean to someone new to the subject."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from landscape.viewer.described.course import Checkpoint, Course, Row, numeric, real

SHOWN_RUNS = 4  # at first, where there are more
_NOT_SCATTERED = ("_se", "_low", "_high", "_residual")
# Besides their errors: what stays the same when another quantizer is looked at.
_OF_A_CHECKPOINT = frozenset(
    [
        *("step", "tokens", "learning_rate", "loss", "accuracy", "trace", "gradient_norm", "weight_norm", "distance"),
        *("lambda", "lambda_min", "excess_kurtosis", "max_over_median", "curvature_tokens", "eval_tokens"),
    ]
)
_PAIRS = (("predicted", "delta_l"), ("trace", "delta_q"), ("lambda_max", "delta_q"), ("loss", "delta_q"))


@dataclass(frozen=True)
class Measure:
    """A column as it is drawn.

    Attributes:
        column: in the table.
        factor: what the number is multiplied with.
        title: HTML, with its unit.
        brief: the same where there is less room.
        math: as matplotlib sets it.
        about: plain text, for a reader who knows none of it.
    """

    column: str
    factor: float
    title: str
    brief: str
    math: str
    about: str


MEASURES = (
    Measure(
        "learning_rate", 1, "Learning rate", "learning rate", "learning rate",
        "How far each step of training goes; schedules let it fall at the end.",
    ),
    Measure(
        "loss", 1, "Loss (nats per token)", "loss", "loss (nats)",
        "How badly the model predicts held-out text: the lower, the better.",
    ),
    Measure(
        "delta_q", 100, "Quantization error ΔQ (%)", "ΔQ (%)", r"$\Delta Q$ (%)",
        "By how many percent the loss rises when the weights are rounded to few bits.",
    ),
    Measure(
        "accuracy_drop", 100, "Accuracy drop (%)", "accuracy drop (%)", "accuracy drop (%)",
        "The accuracy that rounding costs, relative to the share of questions already answered wrongly.",
    ),
    Measure(
        "lambda_max", 1, "Sharpness λ<sub>max</sub>", "λ<sub>max</sub>", r"$\lambda_{\mathrm{max}}$",
        "Curvature of the loss in its steepest direction: large in a narrow valley.",
    ),
    Measure("trace", 1, "Trace tr H", "tr H", "tr $H$", "Curvature of the loss summed over all directions."),
    Measure(
        "step_length", 1, "Quantization step ‖δ‖", "‖δ‖", r"$\Vert\delta\Vert$",
        "How far rounding moves the weights, as an L2 distance.",
    ),
    Measure(
        "distance", 1, "Distance ‖Θ<sub>K</sub> − Θ<sub>K−1</sub>‖", "‖Θ<sub>K</sub> − Θ<sub>K−1</sub>‖",
        r"$\Vert\Theta_K - \Theta_{K{-}1}\Vert$", "How far training moved the weights since the checkpoint before.",
    ),
    Measure(
        "weight_norm", 1, "Weight norm ‖Θ‖", "‖Θ‖", r"$\Vert\Theta\Vert$", "The length of all weights as one vector.",
    ),
    Measure(
        "predicted", 1, "Predicted ΔL (nats per token)", "predicted ΔL", r"predicted $\Delta L$",
        "The rise of the loss that slope and curvature let one expect: g·δ + ½ δᵀHδ.",
    ),
    Measure(
        "gradient_norm", 1, "Gradient norm ‖g‖", "‖g‖", r"$\Vert g\Vert$",
        "The slope of the loss where it is steepest.",
    ),
    Measure(
        "excess_kurtosis", 1, "Excess kurtosis of the weights", "kurtosis", "excess kurtosis",
        "How heavy the tails of the weights are: 0 for a normal distribution, more with outliers.",
    ),
    Measure(
        "cosine", 1, "Cosine between δ and the last step of training", "cosine", "cosine",
        "Near 0, rounding moves the weights at right angles to training; at −1 it undoes the last step.",
    ),
    Measure(
        "quadratic_reach", 1, "Reach of the quadratic model (steps δ)", "reach", "reach",
        "How many steps δ slope and curvature stay within a tenth of the real change; 2 at most.",
    ),
)  # fmt: skip

LAYER_MEASURES = (
    ("predicted", "predicted share of ΔL, g·δ + ½ δᵀHδ, nats"),
    ("sensitivity", "predicted by length, ½ tr(H)·‖δ‖²/weights, nats"),
    ("trace", "trace tr H of its weights"),
    ("step_norm", "quantization step ‖δ‖"),
    ("weight_error", "weight error ‖δ‖/‖W‖"),
    ("output_error", "output error ‖Xδᵀ‖²/‖XWᵀ‖²"),
    ("diagonal", "its share of Σ H_ii δ_i², nats"),
    ("excess_kurtosis", "excess kurtosis of its weights"),
    ("max_over_median", "max|w| / median|w|"),
    ("misalignment", "distance from the grid, in steps"),
    ("saturation", "share of weights outside the grid"),
)


def measures(course: Course) -> tuple[Measure, ...]:
    """Those that the study has numbers of."""
    known = numeric(course.rows)
    return tuple(each for each in MEASURES if each.column in known)


def layer_measures(course: Course) -> tuple[tuple[str, str], ...]:
    """(name, words) of what is known of the layers."""
    known = numeric(with_shares(row) for row in course.layers)
    return tuple((name, words) for name, words in LAYER_MEASURES if name in known)


def with_shares(row: Row) -> dict[str, Any]:
    """A row of the layers with what its columns make together."""
    length = 0.5 * real(row, "trace") * real(row, "step_norm") ** 2
    return {
        **row,
        "predicted": real(row, "g_delta") + real(row, "delta_h_delta") / 2,
        "sensitivity": length / (real(row, "parameters") or math.nan),
    }


def same_for_all(course: Course, column: str) -> bool:
    """Whether a column is a matter of the checkpoint alone; where there is one quantizer only, by the column's name."""
    if len(course.quantizers) < 2:
        return re.sub("_(se|residual|max)$", "", column) in _OF_A_CHECKPOINT
    known: dict[Checkpoint, float] = {}
    numbers = ((Checkpoint.of(row), real(row, column)) for row in course.rows)
    return all(known.setdefault(each, value) == value for each, value in numbers if math.isfinite(value))


def scattered(course: Course) -> tuple[str, ...]:
    """The columns that can be held against one another: numbers, without their errors and the ends of intervals."""
    known = numeric(course.rows)
    return tuple(name for name in known if not name.endswith(_NOT_SCATTERED) and "parameters" not in name)


def called(course: Course, column: str) -> str:
    """A column by its name and, where that takes few words, what it means."""
    about = course.columns.get(column, "").partition(";")[0]
    return f"{column}: {about}" if 0 < len(about) < 60 else column


def first_pair(course: Course) -> tuple[str, str]:
    """The two columns held against one another at first; "" where there are no two."""
    known = scattered(course)
    found = next(((x, y) for x, y in _PAIRS if x in known and y in known), known[:2])
    return (found[0], found[1]) if len(found) == 2 else ("", "")


def shown_runs(course: Course) -> tuple[str, ...]:
    """All runs where they are few or have one checkpoint each; else the longest, those with slices, then others."""
    length = {run: len(course.along(run)) for run in course.runs}
    if len(length) <= SHOWN_RUNS or max(length.values()) == 1:
        return course.runs
    with_slices = {each.run for each, identity in course.identities.items() if identity in course.slices}
    ranked = sorted(length, key=lambda run: (run != course.longest, run not in with_slices, -length[run]))
    return tuple(run for run in course.runs if run in ranked[:SHOWN_RUNS])


def interval(row: Row, column: str) -> tuple[float, float] | None:
    """The ends of the 95 % interval: those of the table, else 1.96 standard errors; None where it knows none.

    A loss has none: its error over the text moves all checkpoints together.
    """
    if column in ("loss", "loss_hat"):
        return None
    low, high = real(row, f"{column}_low"), real(row, f"{column}_high")
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    value, error = real(row, column), real(row, f"{column}_se")
    return (value - 1.96 * error, value + 1.96 * error) if math.isfinite(error) else None


def shared_start(names: Sequence[str]) -> str:
    """What all names begin with, up to a dot.

    >>> shared_start(["model.layers.0.up", "model.layers.1.up"])
    'model.layers.'
    """
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    same = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: first.rfind(".", 0, same) + 1]
