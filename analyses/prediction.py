"""Does geometry predict what quantization costs? Five predictions of ΔL against the change on the same tokens (ours).

The second order along δ = Θ̂ − Θ and its diagonal need Θ̂; the others need traces of layers, and sizes of steps alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from analyses.drawn.figure import Figure, Panel, Series, colour, marker
from analyses.question import Answer, Missing, lab
from analyses.read.tables import Row, Table, is_number, pooled

QUESTION = "Does the geometry at Θ predict the loss that quantization adds?"
PREDICTORS = {
    "predicted": "g·δ + ½ δᵀHδ",
    "predicted_diagonal": "½ Σ H_{ii} δ_{i}²",
    "predicted_outputs": "½ Σ tr(H_l) · output shift",
    "predicted_length": "½ Σ tr(H_l) ‖δ_l‖²/n_l",
    "predicted_grid": "½ Σ tr(H_l) Δ_{l}²/12",
}
_ACROSS = 3  # panels
_BROKEN = 0.1  # of the change: a prediction that misses more has broken down


@dataclass(frozen=True)
class Score:
    """How well a prediction does.

    Attributes:
        r_squared_log: 1 − Σ(ln change − ln prediction)²/Σ(ln change − mean)², where both are positive.
        r_squared: the same of the numbers as they are.
        rank: Spearman's ρ.
        bias: median of prediction over change.
        broken: share of rows in which it misses more than a tenth of the change.
    """

    rows: int
    r_squared_log: float
    r_squared: float
    rank: float
    bias: float
    broken: float


def answer(tables: Sequence[Table]) -> Answer:
    """Each prediction against the change, by quantizer; how well it does, and where it breaks."""
    rows, _, names = pooled(tables, "change")
    if not any(is_number(row[name]) for row in rows for name in PREDICTORS):
        raise Missing(
            "checkpoints with a quantization step and curvature (--measure error,step,curvature,layers)", lab("A")
        )
    quantizers = list(dict.fromkeys(row["quantizer"] for row in rows))
    panels, numbers = [], []
    for name, title in PREDICTORS.items():
        if not any(is_number(row[name]) for row in rows):
            continue
        panels.append(_panel(rows, quantizers, name, title))
        numbers += [_sentence(name, "all", rows)] + [
            _sentence(name, each, [row for row in rows if row["quantizer"] == each]) for each in quantizers
        ]
    numbers += _reach(rows) + [_gain(each, [row for row in rows if row["quantizer"] == each]) for each in quantizers]
    caption = (
        f"Study {', '.join(names)}: the change of the loss under quantization against predictions, on the same "
        "tokens; every point a checkpoint. The line is equality."
    )
    grid = tuple(tuple(panels[place : place + _ACROSS]) for place in range(0, len(panels), _ACROSS))
    figure = Figure("prediction", caption, grid, row_height=2.9, share_x=False, share_y=False)
    return Answer(names, (figure,), numbers=tuple(filter(None, numbers)))


def score(predicted: Sequence[float], change: Sequence[float]) -> Score:
    """How well `predicted` does at `change`; NaN where there are too few rows to say."""
    guess, real = np.asarray(predicted, dtype=float), np.asarray(change, dtype=float)
    positive = (guess > 0) & (real > 0)
    some = len(real) > 2
    return Score(
        len(real),
        _r_squared(np.log(guess[positive]), np.log(real[positive])),
        _r_squared(guess, real),
        float(stats.spearmanr(guess, real).statistic) if some and np.ptp(guess) > 0 and np.ptp(real) > 0 else math.nan,
        float(np.median(guess / real)) if some else math.nan,
        float(np.mean(np.abs(guess - real) > _BROKEN * np.abs(real))) if some else math.nan,
    )


def _r_squared(guess: np.ndarray, real: np.ndarray) -> float:
    spread = ((real - real.mean()) ** 2).sum() if len(real) > 2 else 0.0
    return float(1 - ((real - guess) ** 2).sum() / spread) if spread else math.nan


def _sentence(name: str, where: str, rows: Sequence[Row]) -> str:
    known = [row for row in rows if is_number(row[name])]
    if not known:
        return ""
    found = score([row[name] for row in known], [row["change"] for row in known])
    return (
        f"{name}, {where}: R² {found.r_squared:.3f} ({found.r_squared_log:.3f} of logarithms), Spearman's ρ "
        f"{found.rank:.3f}, median ratio to the change {found.bias:.3f}, more than a tenth off in "
        f"{found.broken:.0%} of {found.rows} rows"
    )


def _reach(rows: Sequence[Row]) -> list[str]:
    """Where the second order along δ breaks, by bits."""
    found = []
    for bits in sorted({row["bits"] for row in rows if is_number(row["bits"])}, reverse=True):
        own = [row for row in rows if row["bits"] == bits and is_number(row["quadratic_reach"])]
        if own:
            reach = np.array([row["quadratic_reach"] for row in own])
            found.append(
                f"{bits} bits: the second order is within a tenth as far as {np.median(reach):.2f} δ (median of "
                f"{len(own)}), short of δ itself in {np.mean(reach < 1):.0%}"
            )
    return found


def _gain(quantizer: str, rows: Sequence[Row]) -> str:
    """What is left of the cost of independent errors where they make up for one another."""
    ratios = [
        row["delta_h_delta"] / 2 / row["predicted_diagonal"]
        for row in rows
        if is_number(row["predicted_diagonal"]) and is_number(row["delta_h_delta"])
    ]
    if not ratios:
        return ""
    low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
    return (
        f"{quantizer}: δᵀHδ is {middle:.3f} of Σ H_ii δ_i² (median of {len(ratios)}; eight in ten lie between "
        f"{low:.3f} and {high:.3f})"
    )


def _panel(rows: Sequence[Row], quantizers: Sequence[str], name: str, title: str) -> Panel:
    series = []
    for number, quantizer in enumerate(quantizers):
        own = [row for row in rows if row["quantizer"] == quantizer and is_number(row[name])]
        own = [row for row in own if row[name] > 0 and row["change"] > 0]
        series.append(
            Series(
                [row[name] for row in own],
                [row["change"] for row in own],
                quantizer if own else "",
                colour(number),
                dash="",
                marker=marker(number),
                names=[f"{row['run']} {row['checkpoint']}" for row in own],
            )
        )
    return Panel(tuple(series), title, "change of the loss, nats", x_scale="log", y_scale="log", identity=True)
