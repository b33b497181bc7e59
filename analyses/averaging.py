"""Figure 7 of arXiv 2510.06213: averages of the run at a constant rate (LAWA) beside decay.

The paper: after quantization to 3 bits the average of the last checkpoints is better than the decayed model, before
quantization it is worse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial

from analyses.drawn.figure import COLOURS, COOLED, GREY, Figure, Panel
from analyses.drawn.panels import Line, Measure, Side, stacked
from analyses.lab.claims import Contrast, Verdict
from analyses.question import Answer, choose, found, lab, verdict
from analyses.read.contrasts import difference, end
from analyses.read.known import Known
from analyses.read.runs import Cooldown, cooldowns, joined
from analyses.read.tables import Table

QUESTION = "Can averaging take the place of decay?"


def answer(tables: Sequence[Table]) -> Answer:
    """Losses of Θ and Θ̂ of the stable run, its averages and its cooldowns; which is the lowest quantized."""
    what = "averages (lawa-…) of a stable run that end where a cooldown of it ends"
    options = "gptq-w4-g64 gptq-w3-g64 --average lawa-5x12,lawa-20x12,lawa-20x56"
    table, beside = choose(tables, averaged, what, lab("C", options))
    kinds = windows(table)
    lines = tuple(_lines(table, beside, kinds))
    rows: list[tuple[Panel, ...]] = []
    for quantizer in table.quantizers:
        measures = (
            Measure("loss", quantizer, quantizer, focus=0.4),
            Measure("loss_hat", "", quantizer, focus=0.4),
            Measure("delta_q", "", quantizer, 100.0),
        )
        titles = ("L(Θ), nats", "L(Θ̂), nats", "ΔQ, %") if not rows else ("", "", "")
        rows.append(
            tuple(
                stacked(table, [Side(title, lines)], [each])[0][0] for title, each in zip(titles, measures, strict=True)
            )
        )
    caption = (
        f"Study {table.name}: loss before (left) and after quantization (middle), and quantization error, at a "
        "constant rate, of averages of its checkpoints (lawa-WINDOWxSTEPS), and along cooldowns to zero."
    )
    figure = Figure("averaging", caption, tuple(rows), share_y=False)
    verdicts = [_wins(table, beside, kinds, each, "loss_hat") for each in table.quantizers]
    verdicts.append(_wins(table, beside, kinds, table.quantizers[0], "loss"))
    return Answer((table.name,), (figure,), found(*verdicts))


def windows(table: Table) -> list[str]:
    """The averages there are, the shortest first."""
    kinds = {row["kind"] for row in table.rows if row["kind"].startswith("lawa-")}
    return sorted(kinds, key=lambda kind: [int(number) for number in re.findall(r"\d+", kind)])


def averaged(table: Table) -> list[Cooldown]:
    """Cooldowns that end where an average of their stable run does; of several that end there, the longest."""
    ends = {(row["run"], row["step"]) for row in table.rows if row["kind"].startswith("lawa-")}
    longest: dict[tuple[str, int], Cooldown] = {}
    for each in cooldowns(table):  # the earliest start first
        if (each.stable, each.end) in ends:
            longest.setdefault((each.stable, each.end), each)
    return list(longest.values())


def _lines(table: Table, beside: Sequence[Cooldown], kinds: Sequence[str]) -> list[Line]:
    lines = [Line(partial(joined, table, each), "cooldown", COOLED, "dashed") for each in beside]
    for run in dict.fromkeys(each.stable for each in beside):
        lines.append(Line(partial(table.line, run), "constant rate", GREY))
        for kind, colour in zip(kinds, COLOURS * len(kinds), strict=False):
            lines.append(Line(partial(table.line, run, kind=kind), kind, colour, marker="diamond"))
    return lines


def _wins(table: Table, beside: Sequence[Cooldown], kinds: Sequence[str], quantizer: str, name: str) -> Verdict | None:
    """Judged at the last step where both end, by the window that is best there."""
    last = max(each.end for each in beside)
    choices: dict[str, list[Contrast]] = {}
    contrasts = []
    for each in beside:
        for kind in kinds:
            at = [row for row in table.line(each.stable, quantizer, kind) if row["step"] == each.end]
            average = Known.of(table, at[0], name) if at else None
            own = difference(f"{kind} at {each.end:,}", each.seed, average, end(table, each.run, quantizer, name))
            contrasts += own
            if each.end == last and own:
                choices.setdefault(kind, []).extend(own)
    best = min(choices, key=lambda kind: sum(each.interval.value for each in choices[kind]) / len(choices[kind]))
    point = "Θ̂" if name == "loss_hat" else "Θ"
    rule = f"L({point}) of the average less that after decay, nats, below 0; judged by {best} at step {last:,}"
    claim = "LAWA beats decay" if name == "loss_hat" else "LAWA beats decay before quantization"
    about = quantizer if name == "loss_hat" else ""  # Θ is the same whatever the quantizer
    return verdict(claim, about, rule, contrasts, (-math.inf, 0.0), percent=False, by=choices[best])
