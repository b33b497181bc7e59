"""Figures 9 and 26 of arXiv 2510.06213: λ_max and trace along training, with the learning rate, and by peak rate.

The paper: both surge when the rate decays, the trace mirrors the quantization error, and a higher peak rate ends lower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from analyses.budgets import late, rise, same_length
from analyses.drawn.figure import COOLED, GREY, Figure
from analyses.drawn.panels import Line, Measure, Side, stacked
from analyses.lab.claims import Contrast, Verdict
from analyses.lab.measured import Interval
from analyses.peak_rate import by_peak, same_steps
from analyses.question import Answer, choose, figures, found, lab, verdict, with_interval
from analyses.read.contrasts import between_peaks, end
from analyses.read.runs import Cooldown, cooldowns, joined, seeds, whole
from analyses.read.tables import Table, column, is_number
from landscape.config import CorrelateConfig
from landscape.correlations import correlate_tables
from landscape.errors import StudyError
from landscape.statistics.change import change_point

QUESTION = "Does the curvature rise when the rate decays, and does the error follow it?"
CURVATURES = {"trace": "tr H", "lambda_max": "λ_max"}
_MEASURES = [Measure("learning_rate", "learning rate"), *(Measure(n, t, scale="log") for n, t in CURVATURES.items())]
_SCALES = {  # columns, what they are called, and the power they are taken to
    "trace": ("tr H", 1),
    "lambda_max": ("λ_max", 1),
    "weight_norm": ("‖Θ‖²", 2),
    "step_length": ("‖δ‖²", 2),
    "delta_h_delta": ("δᵀHδ", 1),
    "delta_q": ("ΔQ", 1),
}
_EARLY = 0.15  # of the steps, in which curvature settles
_NEAR = 0.1  # of the steps, that a break may lie from the start of the cooldown


def answer(tables: Sequence[Table]) -> Answer:
    """Curvature along the stable run and its cooldowns, where it breaks, and what hangs together with ΔQ."""
    what = "curvature along a stable run and cooldowns of one length from two of its steps, or from two peak rates"
    table, (cooled, peaks) = choose(tables, curved, what, lab("A"))
    drawn, verdicts = [], []
    if cooled:
        sides = [Side(f"seed {n}", _lines(table, [each for each in cooled if each.seed == n])) for n in seeds(cooled)]
        caption = f"Study {table.name}: learning rate, trace and largest eigenvalue of the Hessian. Bands: 95 %."
        drawn.append(Figure("sharpness_over_training", caption, stacked(table, sides, _MEASURES)))
        verdicts += [judged(table, cooled, name) for judged in (_rises, _breaks) for name in CURVATURES]
    if peaks:
        sides = [Side(f"seed {seed}", tuple(by_peak(table, peaks, seed))) for seed in seeds(peaks)]
        caption = f"Study {table.name}: trace and largest eigenvalue by peak rate; dashed: cooldown. Bands: 95 %."
        rows = stacked(table, sides, _MEASURES[1:])
        drawn.append(Figure("sharpness_over_training-peaks", caption, rows, legend_title="peak rate"))
        verdicts += [_ordered(table, peaks, name) for name in CURVATURES]
    return Answer((table.name,), tuple(drawn), found(*verdicts), (*_scales(table, peaks), *_together(table)))


def curved(table: Table) -> tuple[list[Cooldown], list[Cooldown]] | None:
    """Cooldowns by start and by peak rate; None without either, or without curvature."""
    both = same_length(table), same_steps(table)
    return both if any(both) and any(is_number(row["trace"]) for row in table.checkpoints) else None


def _lines(table: Table, cooled: Sequence[Cooldown]) -> tuple[Line, ...]:
    lines = [Line(partial(joined, table, each), "cooldown", COOLED) for each in cooled]
    return (*lines, Line(partial(table.line, cooled[0].stable), "constant rate", GREY))


def _rises(table: Table, cooled: Sequence[Cooldown], name: str) -> Verdict | None:
    some = table.quantizers[0]  # curvature is that of Θ, whatever the quantizer
    contrasts = [contrast for each in late(cooled) for contrast in rise(table, each, some, name)]
    rule = "at the end of the cooldown less the mean of stable checkpoints around its start, above 0"
    return verdict(f"{CURVATURES[name]} rises in the cooldown", "", rule, contrasts, (0.0, math.inf), percent=False)


def _breaks(table: Table, cooled: Sequence[Cooldown], name: str) -> Verdict | None:
    """Along the stable run and the cooldown with most checkpoints from there: where the logarithm breaks."""
    contrasts = []
    for seed in seeds(cooled):
        each = max(
            (one for one in late(cooldowns(table)) if (one.peak, one.seed) == (cooled[0].peak, seed)),
            key=lambda one: (len(table.line(one.run, table.quantizers[0])), one.start),
            default=None,
        )
        if each is None:
            continue
        rows = [row for row in whole(table, each, table.quantizers[0]) if row["step"] >= _EARLY * each.end]
        try:
            broken = change_point(column(rows, "step"), np.log(column(rows, name)))
        except StudyError:
            continue
        place = [(step - each.start) / each.end for step in (broken.at, broken.low, broken.high)]
        contrasts.append(Contrast(f"break less start, of {each.end:,} steps", seed, Interval(*place)))
    rule = f"the break of its logarithm lies within ±{_NEAR:.0%} of the steps from the start of the cooldown"
    return verdict(f"{CURVATURES[name]} breaks where the rate does", "", rule, contrasts, (-_NEAR, _NEAR))


def _ordered(table: Table, peaks: Sequence[Cooldown], name: str) -> Verdict | None:
    contrasts = between_peaks(table, peaks, table.quantizers[0], name)
    rule = "a higher peak rate ends lower: differences below 0"
    return verdict(f"{CURVATURES[name]} ordered by peak rate", "", rule, contrasts, (-math.inf, 0.0), percent=False)


def _scales(table: Table, peaks: Sequence[Cooldown]) -> list[str]:
    """What changes with the peak rate beside curvature: flatter weights may be larger ones, with longer steps."""
    if not peaks:
        return []
    lowest, highest = peaks[0].peak, peaks[-1].peak
    sentences = []
    for quantizer in table.quantizers:
        factors = []
        for name, (label, power) in _SCALES.items():
            ends = {
                rate: [end(table, each.run, quantizer, name) for each in peaks if each.peak == rate]
                for rate in (lowest, highest)
            }
            means = [
                np.mean([one.value**power for one in own if one is not None] or [math.nan]) for own in ends.values()
            ]
            if np.isfinite(means).all():
                factors.append(f"{label} × {figures(float(means[1] / means[0]))}")
        if factors:
            sentences.append(f"at the end, {highest:g} against {lowest:g}, {quantizer}: {', '.join(factors)}")
    return sentences


def _together(table: Table) -> list[str]:
    """Curvature with ΔQ in logarithms: raw, from checkpoint to checkpoint, and given step and loss."""
    config = CorrelateConfig([str(table.path)], x=",".join(CURVATURES), lag=0, draws=500)
    sentences: dict[tuple[str, str], list[str]] = {}
    for each in correlate_tables(config):
        words = sentences.setdefault((each.x, each.quantizer), [])
        found_here = each.coefficients.get("spearman")
        if found_here is not None:
            interval = Interval(found_here.value, found_here.low, found_here.high)
            words.append(f"{each.way} {with_interval(interval)}")
        else:
            words.append(f"{each.way}: {each.why}")
    return [
        f"Spearman's ρ of {CURVATURES[name]} and ΔQ, {quantizer}: {'; '.join(words)}"
        for (name, quantizer), words in sentences.items()
    ]
