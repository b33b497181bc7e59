"""Figures 21 and 22 of arXiv 2510.06213: a cosine that ends at a budget beside WSD that ends there.

The paper: what the error does depends on how far the rate has decayed, not on the shape of the decay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from analyses.drawn.figure import Figure, shades
from analyses.drawn.panels import LOSS, Line, Side, errors, stacked
from analyses.lab.claims import Contrast, Verdict
from analyses.lab.differences import SAME
from analyses.question import Answer, choose, found, lab, verdict
from analyses.read.contrasts import end, excess
from analyses.read.runs import Cooldown, cooldowns, joined, matching
from analyses.read.tables import Table

QUESTION = "Does a cosine end as WSD does at the same budget?"
_COSINE = re.compile(r"cosine-(?P<peak>[\d.e-]+)-s(?P<seed>\d+)-to(?P<steps>\d+)")
_NEAR = 0.01  # of the steps, that two ends may lie apart


@dataclass(frozen=True)
class Beside:
    """A cosine run and the cooldown that ends where it does."""

    run: str
    steps: int
    cooled: Cooldown


def answer(tables: Sequence[Table]) -> Answer:
    """Both schedules to each budget; the ratio of their errors at the end."""
    what = "cosine runs (cosine-PEAK-sSEED-toSTEPS) and cooldowns of that peak rate and seed that end there"
    table, pairs = choose(tables, paired, what, lab("E"))
    steps = sorted({each.steps for each in pairs})
    colours = dict(zip(steps, shades(len(steps)), strict=True))
    groups = sorted({(each.cooled.peak, each.cooled.seed) for each in pairs})
    sides = []
    for peak, seed in groups:
        lines: list[Line] = []
        for each in pairs:
            if (each.cooled.peak, each.cooled.seed) == (peak, seed):
                colour, label = colours[each.steps], f"{each.steps:,} steps"
                lines.append(Line(partial(table.line, each.run), label, colour))
                lines.append(Line(partial(joined, table, each.cooled), "", colour, "dashed", "square"))
        sides.append(Side(f"peak rate {peak:g}, seed {seed}", tuple(lines)))
    caption = (
        f"Study {table.name}: loss and quantization error of cosine runs (solid) and of WSD cooldowns (dashed, "
        "squares) that end at the same step. Bands: 95 %."
    )
    figure = Figure("schedules", caption, stacked(table, sides, [LOSS, *errors(table.quantizers)]))
    return Answer((table.name,), (figure,), found(*(_same(table, pairs, each) for each in table.quantizers)))


def paired(table: Table) -> list[Beside]:
    """Every cosine run that has a cooldown to its end; of several cooldowns the shortest, as in figure 4."""
    found_pairs, cooled = [], cooldowns(table)
    for run, named in matching(table, _COSINE):
        steps = int(named["steps"])
        ends = [
            each
            for each in cooled
            if (each.peak, each.seed) == (float(named["peak"]), int(named["seed"]))
            and abs(each.end - steps) <= _NEAR * steps
        ]
        if ends:
            found_pairs.append(Beside(run, steps, min(ends, key=lambda each: each.length)))
    return sorted(found_pairs, key=lambda each: (each.cooled.peak, each.cooled.seed, each.steps))


def _same(table: Table, pairs: Sequence[Beside], quantizer: str) -> Verdict | None:
    contrasts: list[Contrast] = []
    for each in pairs:
        what = f"peak rate {each.cooled.peak:g}, {each.steps:,} steps"
        one, other = end(table, each.run, quantizer), end(table, each.cooled.run, quantizer)
        contrasts += excess(what, each.cooled.seed, one, other)
    rule = f"ΔQ(cosine)/ΔQ(WSD) − 1 at one budget, within ±{SAME}"
    return verdict("cosine ends as WSD does", quantizer, rule, contrasts, (-SAME, SAME))
