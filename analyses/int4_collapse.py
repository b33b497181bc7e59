"""The central figure of arXiv 2604.15167: perplexity gaps of INT4 and INT8 along a run whose rate decays; kurtosis.

The paper: the INT4 gap explodes late in training (11 to 517 %) while the INT8 gap stays below 1 % and the kurtosis of
the weights falls, so that outliers are not the cause.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from analyses.drawn.figure import COLOURS, COLUMN, GREY, Figure
from analyses.drawn.panels import STEPS, Line, Measure, Side, stacked
from analyses.lab.claims import Contrast, Verdict
from analyses.lab.measured import Interval
from analyses.question import Answer, choose, found, lab, verdict
from analyses.read.known import Known
from analyses.read.tables import Row, Table, column, is_number
from landscape.errors import StudyError
from landscape.statistics.change import change_point
from landscape.statistics.correlation import correlate

QUESTION = "Does 4 bits collapse late in training where 8 bits do not?"
INT8_BOUND = 0.01
_GAP = "perplexity_ratio"
_LEAST, _DECAYED = 8, 0.5  # checkpoints of a run, and of its highest rate, below which the rate has decayed
Chosen = tuple[str, str, str]  # run, INT4 quantizer, INT8 quantizer


def answer(tables: Sequence[Table]) -> Answer:
    """Both gaps over steps; where the INT4 gap turns, how large INT8's gets, and what the kurtosis does meanwhile."""
    what = f"a run of {_LEAST} checkpoints whose rate decays, under rtn-w4-…-asym and rtn-w8-channel"
    command = lab("F", "rtn-w4-g64-asym rtn-w8-channel") + (
        "; or landscape study 'EleutherAI/pythia-160m@log=40' rtn-w4-g128-asym rtn-w8-channel --tokens 65536 --clean"
    )
    table, (run, int4, int8) = choose(tables, decaying, what, command)
    gaps = (
        Line(lambda _: table.line(run, int4), int4, COLOURS[1]),
        Line(lambda _: table.line(run, int8), int8, COLOURS[0], marker="square"),
    )
    own = (Line(partial(table.line, run), "", GREY),)
    caption = (
        f"Study {table.name}, run {run}: loss and learning rate, perplexity gaps PPL(Θ̂)/PPL(Θ) − 1, and excess "
        "kurtosis of the weights. Bands: 95 %."
    )
    rows = [
        *stacked(table, [Side("", own)], [Measure("loss", "loss, nats", focus=1.0)], STEPS),
        *stacked(table, [Side("", own)], [Measure("learning_rate", "learning rate")], STEPS),
        *stacked(table, [Side("", gaps)], [Measure(_GAP, "gap, %", None, 100.0, -100.0, "log")], STEPS),
        *stacked(table, [Side("", own)], [Measure("excess_kurtosis", "excess kurtosis")], STEPS),
    ]
    figure = Figure("int4_collapse", caption, tuple(rows), COLUMN, row_height=1.35)
    four, eight = table.line(run, int4), table.line(run, int8)
    verdicts = found(_explodes(table, four, int4), _stays(table, eight, int8), _kurtosis(four, int4))
    return Answer((table.name,), (figure,), verdicts, tuple(_turn(four, int4)))


def decaying(table: Table) -> Chosen | None:
    """The run that has both quantizers and whose rate decays over most checkpoints."""
    int4 = [name for name in table.quantizers if name.startswith("rtn-w4") and name.endswith("-asym")]
    int8 = [name for name in table.quantizers if name.startswith("rtn-w8-channel")]
    fitting = []
    for run in table.runs if int4 and int8 else ():
        rows = table.line(run, int4[0])
        rates = [row["learning_rate"] for row in rows if is_number(row["learning_rate"])]
        if len(rows) >= _LEAST and table.line(run, int8[0]) and rates and rates[-1] < _DECAYED * max(rates):
            falling = sum(after < before for before, after in itertools.pairwise(rates))
            fitting.append((falling, len(rows), run))
    return (max(fitting)[2], int4[0], int8[0]) if fitting else None


def _explodes(table: Table, rows: Sequence[Row], quantizer: str) -> Verdict | None:
    """The last gap less the one in the middle of the run."""
    middle = min(rows, key=lambda row: abs(row["step"] - rows[-1]["step"] / 2))
    last, before = (Known.of(table, row, _GAP) for row in (rows[-1], middle))
    contrast = Contrast(f"step {rows[-1]['step']:,} less step {middle['step']:,}", 0, (last - before).interval)
    rule = "perplexity gap at the end less that in the middle of the run, above 0"
    return verdict("the INT4 gap grows late in training", quantizer, rule, [contrast], (0.0, math.inf))


def _stays(table: Table, rows: Sequence[Row], quantizer: str) -> Verdict | None:
    largest = max(rows, key=lambda row: row[_GAP])
    gap = Known.of(table, largest, _GAP).plus(-1.0).interval
    contrast = Contrast(f"largest of {len(rows)}, at step {largest['step']:,}", 0, gap)
    rule = f"largest perplexity gap below {INT8_BOUND:.0%}"
    return verdict("the INT8 gap stays small", quantizer, rule, [contrast], (-math.inf, INT8_BOUND))


def _kurtosis(rows: Sequence[Row], quantizer: str) -> Verdict | None:
    late = rows[len(rows) // 2 :]
    try:
        ranks = {
            what: correlate(column(own, "excess_kurtosis"), column(own, _GAP), kinds=("spearman",))["spearman"]
            for what, own in (("second half", late), ("all", rows))
        }
    except StudyError:
        return None
    contrasts = [Contrast(what, 0, Interval(rank.value, rank.low, rank.high)) for what, rank in ranks.items()]
    rule = "Spearman's ρ of excess kurtosis and gap over the second half of the run, below 0"
    claim = "kurtosis falls while the gap grows"
    return verdict(claim, quantizer, rule, contrasts, (-math.inf, 0.0), percent=False, by=contrasts[:1])


def _turn(rows: Sequence[Row], quantizer: str) -> list[str]:
    known = [row for row in rows if row[_GAP] > 1]
    try:
        turn = change_point(column(known, "step"), np.log([row[_GAP] - 1 for row in known]))
    except StudyError:
        return []
    peak = max(rows, key=lambda row: row["learning_rate"] or 0.0)
    return [
        f"the logarithm of the {quantizer} gap breaks at step {turn.at:,.0f} [{turn.low:,.0f}, {turn.high:,.0f}], "
        f"p = {turn.p_value:.2g}; the rate was highest at step {peak['step']:,}; the run has {rows[-1]['step']:,}"
    ]
