"""Figure 4 of arXiv 2510.06213: one run at a constant rate, cooldowns from several of its steps.

The paper: the error is flat while the rate is constant, rises when it decays, and ends alike whatever the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from analyses.drawn.figure import COOLED, GREY, Figure
from analyses.drawn.panels import LOSS, Line, Side, errors, stacked
from analyses.lab.claims import FLAT, Contrast, Verdict
from analyses.question import Answer, choose, found, lab, verdict
from analyses.read.contrasts import difference, end, growth_across, growth_along
from analyses.read.known import Known, mean
from analyses.read.runs import Cooldown, cooldowns, joined, seeds
from analyses.read.tables import Table, is_number

QUESTION = "Does the token budget matter once the rate has decayed?"
_EARLY = 0.15  # of the steps: before them there is no stable phase
_AROUND, _NEAR = 5, 0.15  # stable checkpoints nearest to the start of a cooldown, within this share of the steps


def answer(tables: Sequence[Table]) -> Answer:
    """The stable run and its cooldowns; whether the error is flat, rises, and ends alike."""
    what = "a stable run and cooldowns of one length from at least two of its steps"
    table, cooled = choose(tables, same_length, what, lab("A"), lambda _, cooled: len(cooled))
    sides = [Side(f"seed {seed}", tuple(_lines(table, cooled, seed))) for seed in seeds(cooled)]
    caption = (
        f"Study {table.name}: loss and quantization error at a constant rate and along cooldowns to zero of "
        f"{cooled[0].length:,} steps. Bands: 95 %."
    )
    figure = Figure("budgets", caption, stacked(table, sides, [LOSS, *errors(table.quantizers)]))
    verdicts = [judged(table, cooled, each) for judged in (_flat, _rises, _alike) for each in table.quantizers]
    return Answer((table.name,), (figure,), found(*verdicts))


def same_length(table: Table) -> list[Cooldown]:
    """Cooldowns of one peak rate and one length: the kind that begins at most steps, two at least."""
    kinds: dict[tuple[float, int], list[Cooldown]] = {}
    for each in cooldowns(table):
        if each.stable in table.runs:
            kinds.setdefault((each.peak, each.length), []).append(each)
    most = max(kinds.values(), key=lambda own: len({each.start for each in own}), default=[])
    return most if len({each.start for each in most}) > 1 else []


def late(cooled: Sequence[Cooldown]) -> list[Cooldown]:
    """Those that begin within the stable phase."""
    whole = max(each.end for each in cooled)
    return [each for each in cooled if each.start >= _EARLY * whole]


def rise(table: Table, each: Cooldown, quantizer: str, name: str) -> list[Contrast]:
    """A column at the end of a cooldown less the mean of the stable checkpoints around its start.

    These scatter by more than windows explain, and the checkpoint at the end is taken to scatter as they do.
    """
    reach = _NEAR * max(other.end for other in cooldowns(table) if other.stable == each.stable)
    known = [row for row in table.line(each.stable, quantizer) if is_number(row[name])]
    near = sorted((abs(row["step"] - each.start), place) for place, row in enumerate(known))[:_AROUND]
    near = [(away, place) for away, place in near if away <= reach]
    last = end(table, each.run, quantizer, name)
    if len(near) < 2 or last is None:
        return []
    before = [Known.of(table, known[place], name) for _, place in near]
    last = last.widened(float(np.std([one.value for one in before], ddof=1)))
    return difference(f"from step {each.start:,}", each.seed, last, mean(before))


def _lines(table: Table, cooled: Sequence[Cooldown], seed: int) -> list[Line]:
    own = [each for each in cooled if each.seed == seed]
    lines = [Line(partial(joined, table, each), "cooldown", COOLED) for each in own]
    return [*lines, Line(partial(table.line, own[0].stable), "constant rate", GREY)]


def _flat(table: Table, cooled: Sequence[Cooldown], quantizer: str) -> Verdict | None:
    contrasts = []
    for seed in seeds(cooled):
        rows = table.line(f"stable-{cooled[0].peak:g}-s{seed}", quantizer)
        half = [row for row in rows if row["step"] >= rows[-1]["step"] / 2]
        if (growth := growth_along(half)) is not None:
            contrasts.append(Contrast("d ln ΔQ / d ln tokens", seed, growth))
    rule = f"over the second half of the stable run, within ±{FLAT}"
    return verdict("error flat at a constant rate", quantizer, rule, contrasts, (-FLAT, FLAT), percent=False)


def _rises(table: Table, cooled: Sequence[Cooldown], quantizer: str) -> Verdict | None:
    contrasts = [contrast for each in late(cooled) for contrast in rise(table, each, quantizer, "delta_q")]
    rule = f"ΔQ at the end less the mean of up to {_AROUND} stable checkpoints around the start, above 0"
    return verdict("error rises in the cooldown", quantizer, rule, contrasts, (0.0, math.inf))


def _alike(table: Table, cooled: Sequence[Cooldown], quantizer: str) -> Verdict | None:
    contrasts = []
    for seed in seeds(cooled):
        ends = [table.line(each.run, quantizer)[-1:] for each in late(cooled) if each.seed == seed]
        if (growth := growth_across(row for rows in ends for row in rows)) is not None:
            contrasts.append(Contrast("d ln ΔQ / d ln tokens", seed, growth))
    rule = f"over the ends of the cooldowns, within ±{FLAT}"
    return verdict("end errors alike across budgets", quantizer, rule, contrasts, (-FLAT, FLAT), percent=False)
