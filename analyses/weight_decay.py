"""Figure 19 of arXiv 2510.06213: decoupled weight decay (AdamLH) from none to much.

The paper: more weight decay means a lower quantization error, though by less than the rate does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from analyses.drawn.figure import COLOURS, COLUMN, INK, Figure, Panel, Series
from analyses.lab.claims import Verdict
from analyses.question import Answer, choose, found, lab, verdict, with_interval
from analyses.read.contrasts import difference, end
from analyses.read.runs import matching
from analyses.read.tables import Table

QUESTION = "Does weight decay reduce the error?"
_ADAMLH = re.compile(r"adamlh-(?P<decay>[\d.e-]+)-s(?P<seed>\d+)")
_ADAMW = re.compile(r"adamw-(?P<peak>[\d.e-]+)-(?P<decay>[\d.]+)-s(?P<seed>\d+)")


@dataclass(frozen=True)
class Decayed:
    """A run with AdamLH."""

    run: str
    decay: float
    seed: int


def answer(tables: Sequence[Table]) -> Answer:
    """Loss and error at the end over λ; whether the largest is better than none."""
    table, runs = choose(tables, decayed, "AdamLH runs with at least two decays (adamlh-λ-sSEED)", lab("D"))
    decays = sorted({each.decay for each in runs})
    ticks = tuple((float(place), f"{decay:g}") for place, decay in enumerate(decays))
    panels = [
        Panel(
            (
                *_points(table, runs, "loss_hat", table.quantizers, 1.0),
                *_points(table, runs, "loss", table.quantizers[:1], 1.0),
            ),
            "weight decay λ",
            "loss, nats",
            ticks=ticks,
        ),
        Panel(_points(table, runs, "delta_q", table.quantizers, 100.0), "weight decay λ", "ΔQ, %", ticks=ticks),
    ]
    caption = (
        f"Study {table.name}: loss before (dark) and after quantization, and quantization error, at the end over the "
        "decay of AdamLH, a line for each seed. Bars: 95 %."
    )
    figure = Figure(
        "weight_decay", caption, tuple((panel,) for panel in panels), COLUMN, legend_title="", row_height=1.9
    )
    verdicts = [_helps(table, runs, decays, each) for each in table.quantizers]
    lowest = [_lowest(table, runs, each) for each in table.quantizers]
    return Answer((table.name,), (figure,), found(*verdicts), (*filter(None, lowest), *_product(table)))


def decayed(table: Table) -> list[Decayed]:
    """The runs with AdamLH, if their decays differ."""
    runs = [Decayed(run, float(m["decay"]), int(m["seed"])) for run, m in matching(table, _ADAMLH)]
    runs.sort(key=lambda each: (each.seed, each.decay))
    return runs if len({each.decay for each in runs}) > 1 else []


def _points(
    table: Table, runs: Sequence[Decayed], name: str, quantizers: Sequence[str], factor: float
) -> tuple[Series, ...]:
    decays = sorted({each.decay for each in runs})
    series = []
    for quantizer, colour in zip(quantizers, COLOURS * len(quantizers), strict=False):
        for seed in sorted({each.seed for each in runs}):
            ends = [(each.decay, end(table, each.run, quantizer, name)) for each in runs if each.seed == seed]
            known = [(decays.index(decay), one.scaled(factor).interval) for decay, one in ends if one is not None]
            is_loss = name == "loss"
            series.append(
                Series(
                    [place for place, _ in known],
                    [each.value for _, each in known],
                    "" if is_loss else quantizer,
                    INK if is_loss else colour,
                    () if is_loss else [each.low for _, each in known],
                    () if is_loss else [each.high for _, each in known],
                    names=[f"seed {seed}"] * len(known),
                )
            )
    return tuple(series)


def _helps(table: Table, runs: Sequence[Decayed], decays: Sequence[float], quantizer: str) -> Verdict | None:
    at = {(each.decay, each.seed): end(table, each.run, quantizer) for each in runs}
    contrasts = [
        contrast
        for decay in decays[1:]
        for seed in sorted({each.seed for each in runs})
        for contrast in difference(
            f"λ {decay:g} less {decays[0]:g}", seed, at.get((decay, seed)), at.get((decays[0], seed))
        )
    ]
    largest = [each for each in contrasts if each.what.startswith(f"λ {decays[-1]:g} ")]
    rule = "ΔQ at the end with the largest decay less that with the smallest, below 0"
    return verdict("weight decay reduces the error", quantizer, rule, contrasts, (-math.inf, 0.0), by=largest)


def _lowest(table: Table, runs: Sequence[Decayed], quantizer: str) -> str:
    """Which decay is best once the weights are quantized: an error can be small because the model learned little."""
    ends = [(each, end(table, each.run, quantizer, "loss_hat")) for each in runs]
    known = [(one.value, each.decay, each.seed) for each, one in ends if one is not None]
    best = [min(own for own in known if own[2] == seed) for seed in sorted({seed for *_, seed in known})]
    told = ", ".join(f"λ {decay:g} (L(Θ̂) = {loss:.3f})" for loss, decay, _ in best)
    return f"lowest loss after {quantizer}: {told}" if told else ""


def _product(table: Table) -> list[str]:
    """AdamW runs, whose decay per step is the product of rate and λ."""
    runs = list(matching(table, _ADAMW))
    return [
        f"AdamW, peak rate {named['peak']}, λ {named['decay']}, seed {named['seed']}, {quantizer}: "
        f"ΔQ at the end {with_interval(known.interval, percent=True)}"
        for quantizer in table.quantizers
        for run, named in runs
        if (known := end(table, run, quantizer)) is not None
    ]
