"""Laws of the loss that quantization adds: over tokens, size and bits, and over what curvature predicts.

arXiv 2411.04330 (Kumar) and arXiv 2411.17691 (Ouyang) let it grow with tokens; arXiv 2510.06213 holds that this is the
rate's decay, not the budget. Fitted here along runs and to the ends of decayed runs, beside the published exponents.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from analyses.drawn.figure import COLOURS, MARKERS, Figure, Panel, Series
from analyses.lab.measured import Interval
from analyses.question import Answer, Missing, lab, with_interval
from analyses.read.runs import cooldowns
from analyses.read.tables import Row, Table, column, is_number, measured, pooled
from landscape.errors import StudyError
from landscape.statistics.laws import LAWS, Fit, fit

_NAMES = {"kumar": "law of Kumar", "ouyang": "law of Ouyang", "curvature": "law of curvature"}
QUESTION = "Which law does the added loss follow: tokens and bits, or curvature?"
PAPERS = {
    "gamma_D": ("γ_D", 0.5068),
    "gamma_N": ("γ_N", 0.3439),
    "1/gamma_P": ("γ_P", 0.5907),
    "beta": ("b", 0.5251),
    "alpha": ("a", 0.2261),
    "gamma": ("exponent of bits", 5.4967),
    "kappa": ("κ", 1.0),
}


def answer(tables: Sequence[Table]) -> Answer:
    """The three laws for every method of quantization, on all checkpoints and on the ends of decayed runs."""
    needed = ("delta_l", "tokens", "bits", "parameters")
    rows, runs, names = pooled(tables, *needed, "predicted")  # all laws on the same rows, where they can be
    if not rows:
        rows, runs, names = pooled(tables, *needed)
    if not rows:
        raise Missing("checkpoints with tokens and an added loss", lab("A"))
    methods = [each for each in dict.fromkeys(map(_method, rows)) if _number_of_bits(rows, each) > 1]
    methods = methods or list(dict.fromkeys(map(_method, rows)))
    bits = sorted({row["bits"] for row in rows})
    panels, sentences = [], []
    for method in methods:
        own = [(row, run) for row, run in zip(rows, runs, strict=True) if _method(row) == method]
        drawn = []
        for law in LAWS:
            fitted, words = _fitted(law, own, f"{method}, all checkpoints")
            sentences.append(words)
            if fitted is not None:
                drawn.append(_panel(law, fitted, [row for row, _ in own], method, bits))
        panels += [tuple(drawn)] if drawn else []
        ends, peak = _ends(tables, method)
        if ends:
            where = f"{method}, ends of cooldowns from {peak:g}"
            sentences += [_fitted(law, ends, where)[1] for law in LAWS]
    caption = (
        f"Study {', '.join(names)}: the loss that quantization adds, ΔL in nats, against each fitted law, all "
        "checkpoints. A line: as the law has it."
    )
    figure = Figure(
        "scaling_laws", caption, tuple(panels), row_height=2.3, share_x=False, share_y=False, legend_title="bits"
    )
    return Answer(names, (figure,), numbers=tuple(sentences))


def _method(row: Row) -> str:
    """A quantizer without its bits: what is left to vary is what the laws are about."""
    return re.sub(r"-?w\d+", "", row["quantizer"])


def _number_of_bits(rows: Sequence[Row], method: str) -> int:
    return len({row["bits"] for row in rows if _method(row) == method})


def _ends(tables: Sequence[Table], method: str) -> tuple[list[tuple[Row, str]], float]:
    """Ends of cooldowns from one peak rate, that with most, by tokens as one sequence: (row, run); and the rate."""
    by_peak: dict[float, list[Row]] = {}
    for table in tables:
        for each in cooldowns(table):
            ends = [table.line(each.run, quantizer)[-1:] for quantizer in table.quantizers]
            own = [row for rows in ends for row in rows if _method(row) == method]
            by_peak.setdefault(each.peak, []).extend(own)
    peak = max(by_peak, key=lambda rate: len(by_peak[rate]), default=0.0)
    rows = list({measured(row) if row["identity"] else id(row): row for row in by_peak.get(peak, [])}.values())
    rows = [row for row in rows if is_number(row["tokens"])]
    return [(row, "") for row in sorted(rows, key=lambda row: row["tokens"])], peak


def _fitted(law: str, pairs: Sequence[tuple[Row, str]], where: str) -> tuple[Fit | None, str]:
    rows = [row for row, _ in pairs]
    columns = {term.column: column(rows, term.column) for term in LAWS[law]}
    try:
        found = fit(law, column(rows, "delta_l"), columns, [run for _, run in pairs])
    except StudyError as error:
        return None, f"{_NAMES[law]}, {where}: {str(error).partition(': ')[2]}"
    words = [_exponent(name, Interval(*values)) for name, values in found.exponents.items()]
    if law == "curvature":
        words.append(f"c = {found.constant:.3g} (if that were all: 1)")
    left = f"; the same in all rows: {', '.join(found.left_out)}" if found.left_out else ""
    apart = f", error of it on runs left out {found.error:.3f}" if math.isfinite(found.error) else ""
    dropped = f", {found.dropped} without a logarithm" if found.dropped else ""
    return found, (
        f"{_NAMES[law]}, {where}: {'; '.join(words)}{left}; R² of ln ΔL {found.r_squared:.3f}{apart}, "
        f"{found.rows} rows{dropped}"
    )


def _exponent(name: str, value: Interval) -> str:
    label, paper = PAPERS[name]
    if name == "1/gamma_P":  # the fit is linear in its inverse
        ends = sorted((1 / value.low, 1 / value.high)) if value.low * value.high > 0 else [-math.inf, math.inf]
        value = Interval(1 / value.value, *ends)
    inside = "inside" if value.low <= paper <= value.high else "outside"
    whose = "if that were all: " if name == "kappa" else "published: "
    return f"{label} = {with_interval(value)} ({whose}{paper:g}, {inside})"


def _panel(law: str, fitted: Fit, rows: Sequence[Row], method: str, bits: Sequence[int]) -> Panel:
    """ΔL against the law, by bits."""
    series = []
    for number, colour, marker in zip(bits, COLOURS, MARKERS, strict=False):
        own = [row for row in rows if row["bits"] == number and row["delta_l"] > 0]
        kept = [(at, row) for at, row in zip(_law(law, fitted, own), own, strict=True) if math.isfinite(at)]
        series.append(
            Series(
                [at for at, _ in kept],
                [row["delta_l"] for _, row in kept],
                str(number) if kept else "",
                colour,
                dash="",
                marker=marker,
                names=[f"{row['run']} {row['checkpoint']}" for _, row in kept],
            )
        )
    return Panel(
        tuple(series), f"{_NAMES[law]}, nats", f"ΔL, nats  {method}", x_scale="log", y_scale="log", identity=True
    )


def _law(law: str, fitted: Fit, rows: Sequence[Row]) -> list[float]:
    value = np.full(len(rows), math.log(fitted.constant))
    for term in LAWS[law]:
        if term.exponent in fitted.exponents:
            numbers = np.array(column(rows, term.column))
            usable = np.where(numbers > 0, numbers, math.nan)
            value = value + fitted.exponents[term.exponent][0] * term.of(usable)
    return [float(each) for each in np.exp(value)]
