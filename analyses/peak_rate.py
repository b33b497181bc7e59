"""Figure 6 of arXiv 2510.06213: the same run with several peak rates.

The paper: the higher the peak rate, the lower the error at the end, at about the same loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from analyses.drawn.figure import Figure, shades
from analyses.drawn.panels import LOSS, Line, Side, errors, stacked
from analyses.question import Answer, choose, found, lab, verdict, with_interval
from analyses.read.contrasts import between_peaks, end
from analyses.read.runs import Cooldown, before, cooldowns, joined, seeds
from analyses.read.tables import Table

QUESTION = "Does the peak rate decide what quantization costs at the end?"
PAPER = {4: 0.88 / 1.84, 3: 4.3 / 9.8}  # ΔQ at 1e-2 over ΔQ at 3e-4, by bits, read off its figure 6


def answer(tables: Sequence[Table]) -> Answer:
    """A stable phase and a cooldown for each rate; whether the ends are ordered by it."""
    what = "cooldowns over the same steps from at least two peak rates"
    table, cooled = choose(tables, same_steps, what, lab("B"))
    sides = [Side(f"seed {seed}", tuple(by_peak(table, cooled, seed))) for seed in seeds(cooled)]
    caption = (
        f"Study {table.name}: loss and quantization error by peak rate; dashed: cooldown from step "
        f"{cooled[0].start:,} to {cooled[0].end:,}. Bands: 95 %."
    )
    figure = Figure(
        "peak_rate", caption, stacked(table, sides, [LOSS, *errors(table.quantizers)]), legend_title="peak rate"
    )
    rule = "a higher peak rate has a lower ΔQ at the end: differences below 0"
    verdicts = [
        verdict("ordered by peak rate", each, rule, between_peaks(table, cooled, each, "delta_q"), (-math.inf, 0.0))
        for each in table.quantizers
    ]
    return Answer((table.name,), (figure,), found(*verdicts), tuple(_ratios(table, cooled)))


def same_steps(table: Table) -> list[Cooldown]:
    """Cooldowns that begin and end at the same steps: those of most peak rates, two at least, the latest of such."""
    kinds: dict[tuple[int, int], list[Cooldown]] = {}
    for each in cooldowns(table):
        kinds.setdefault((each.start, each.end), []).append(each)
    most = max(kinds.values(), key=lambda own: (len({each.peak for each in own}), own[0].end), default=[])
    return most if len({each.peak for each in most}) > 1 else []


def by_peak(table: Table, cooled: Sequence[Cooldown], seed: int) -> list[Line]:
    """The stable phase and the cooldown of each peak rate, the latter dashed."""
    peaks = sorted({each.peak for each in cooled})
    colours = dict(zip(peaks, shades(len(peaks)), strict=True))
    lines = []
    for each in cooled:
        if each.seed == seed:
            colour = colours[each.peak]
            lines.append(Line(partial(before, table, each), f"{each.peak:g}", colour))
            lines.append(Line(partial(joined, table, each), f"{each.peak:g}", colour, "dashed"))
    return lines


def _ratios(table: Table, cooled: Sequence[Cooldown]) -> list[str]:
    """ΔQ at the highest rate over that at the lowest, beside the paper's."""
    lowest, highest = cooled[0].peak, cooled[-1].peak
    said = []
    for quantizer in table.quantizers:
        ends = {(each.peak, each.seed): end(table, each.run, quantizer) for each in cooled}
        pairs = [(ends.get((highest, seed)), ends.get((lowest, seed))) for seed in seeds(cooled)]
        ratios = [with_interval(one.over(other).interval) for one, other in pairs if one and other]
        bits = next(row["bits"] for row in table.rows if row["quantizer"] == quantizer)
        paper = f" (the paper, 1e-2 over 3e-4: {PAPER[bits]:.2f})" if bits in PAPER else ""
        said.append(f"ΔQ at {highest:g} over ΔQ at {lowest:g}, {quantizer}: {' and '.join(ratios)}{paper}")
    return said
