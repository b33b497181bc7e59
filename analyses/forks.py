"""Forks of arXiv 2604.15167: from one checkpoint on, the cosine, warm restarts (SGDR) or oscillation (OLI).

The paper: SGDR never wins against the cosine; OLI does in its cool phases, by 2.2 points, with t = −5.46 and p < 0.0001
for three seeds an arm. Checkpoints of one fork are no independent draws, so the test that decides has one draw for each
order of the data; the one that counts every checkpoint stands beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial

from analyses.drawn.figure import COLOURS, Figure
from analyses.drawn.panels import LOSS, STEPS, Line, Measure, Side, stacked
from analyses.lab.claims import Contrast, Verdict
from analyses.lab.measured import Interval
from analyses.question import Answer, choose, figures, found, lab, verdict
from analyses.read.runs import matching
from analyses.read.tables import Table
from landscape.errors import StudyError
from landscape.statistics.paired import Paired
from landscape.statistics.paired import paired as compare

QUESTION = "Do warm restarts or oscillation help against the collapse at 4 bits?"
CLAIMS = {"oli": "OLI's cool phases are better than cosine", "sgdr": "warm restarts are better than cosine"}
_FORK = re.compile(r"fork-(?P<arm>\w+)-d(?P<order>\d+)")
_OPTIONS = "rtn-w4-g64-asym rtn-w8-channel gptq-w4-g64"
_GAP = "perplexity_ratio"
Forks = dict[tuple[str, int], str]


def answer(tables: Sequence[Table]) -> Answer:
    """Perplexity gaps of the arms after the fork; paired tests by order of the data, and by checkpoint."""
    what = "forks of two arms and two orders of the data (fork-cosine-dN, fork-oli-dN)"
    table, runs = choose(tables, forked, what, lab("F", _OPTIONS))
    arms = sorted({arm for arm, _ in runs})
    colours = dict(zip(arms, COLOURS, strict=False))
    sides = [
        Side(
            f"data order {order}",
            tuple(
                Line(partial(table.line, run), arm, colours[arm])
                for (arm, own), run in sorted(runs.items())
                if own == order
            ),
        )
        for order in sorted({order for _, order in runs})
    ]
    gaps = [Measure(_GAP, f"gap, %  {each}", each, 100.0, -100.0) for each in table.quantizers]
    caption = (
        f"Study {table.name}: loss, and perplexity gap PPL(Θ̂)/PPL(Θ) − 1, after the fork, by order of the data. "
        "Checkpoints lie at the ends of OLI's cycles, in its cool phases. Bands: 95 %."
    )
    figure = Figure("forks", caption, stacked(table, sides, [LOSS, *gaps], STEPS))
    verdicts, numbers = [], []
    for arm in arms:
        for quantizer in table.quantizers if arm != "cosine" else ():
            said, words = _against_cosine(table, runs, arm, quantizer)
            verdicts.append(said)
            numbers += words
    return Answer((table.name,), (figure,), found(*verdicts), tuple(numbers))


def forked(table: Table) -> Forks:
    """Runs by (arm, order of the data), where the cosine and another arm were run on two orders each."""
    runs = {(named["arm"], int(named["order"])): run for run, named in matching(table, _FORK)}
    both = [order for arm, order in runs if arm == "cosine" and any((a, order) in runs for a in CLAIMS)]
    return runs if len(both) > 1 else {}


def _against_cosine(table: Table, runs: Forks, arm: str, quantizer: str) -> tuple[Verdict | None, list[str]]:
    one, other, orders = [], [], []
    for order in sorted(order for own, order in runs if own == arm and ("cosine", order) in runs):
        cosine = {row["step"]: row[_GAP] for row in table.line(runs["cosine", order], quantizer)}
        for row in table.line(runs[arm, order], quantizer):
            if row["step"] in cosine:
                one.append(100 * row[_GAP])
                other.append(100 * cosine[row["step"]])
                orders.append(order)
    try:
        clustered, naive = compare(one, other, orders), compare(one, other)
    except StudyError:
        return None, []
    contrast = Contrast("mean difference of gaps, points", 0, Interval(clustered.mean, clustered.low, clustered.high))
    rule = f"gap less the cosine's at the same step, below 0; {clustered.pairs} orders of the data as draws"
    claim = CLAIMS.get(arm, f"{arm} is better than cosine")
    said = verdict(claim, quantizer, rule, [contrast], (-math.inf, 0.0), percent=False)
    words = f"{arm} less cosine, {quantizer}: clustered {_test(clustered)}; every checkpoint a draw {_test(naive)}"
    return said, [f"{words} (the paper for OLI: −2.2 points, t = −5.46, p < 0.0001)"]


def _test(each: Paired) -> str:
    p = "p < 0.0001" if each.p_value < 1e-4 else f"p = {each.p_value:.2g}"
    mean, low, high = (figures(number, "+") for number in (each.mean, each.low, each.high))
    return f"{mean} points [{low}, {high}], t = {each.t:.2f}, {p}, n = {each.pairs}"
