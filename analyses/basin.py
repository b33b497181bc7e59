"""Figures 8 and 25 of arXiv 2510.06213: the loss around the ends of runs with different peak rates, on shared axes.

The paper: with the peak rate the steps to the previous checkpoint and to the quantized weights grow longer, and the
basin wider by more.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from analyses.drawn.figure import Colours, Field, Figure, Panel, Series
from analyses.lab.claims import Contrast, Verdict
from analyses.lab.measured import Interval
from analyses.question import Answer, choose, found, verdict
from analyses.read.tables import Table
from landscape.slices import StoredSlice, read
from landscape.viewer.described.colours import colour_range

QUESTION = "Is the basin around the end of a run wider after a higher peak rate?"
FOLDER = "basin"
_RUN = re.compile(r".*-(?P<peak>\d[\d.]*(?:e[+-]?\d+)?)-s(?P<seed>\d+)(?:-from\d+)?@.*")
_SIGNS = {"origin": ("Θ_K", "circle"), "checkpoint": ("Θ_{K−1}", "square"), "quantized": ("Θ̂_K", "diamond")}


@dataclass(frozen=True)
class Slice:
    """A slice through the end of a run."""

    peak: float
    seed: int
    quantizer: str
    stored: StoredSlice


def answer(tables: Sequence[Table]) -> Answer:
    """Slices side by side with one scale of colours, a figure for each quantizer; what they say by peak rate."""
    what = f"slices through the ends of runs with at least two peak rates, as {FOLDER}/*.h5 beside the table"
    command = (
        "landscape slice runs/lab-tiny/decay-0.003-s1-from7200@step9000 --prev @step8550 --quant gptq-w3-g64 "
        f"--out data/studies/lab-tiny/{FOLDER}, for every peak rate with the same --bounds"
    )
    table, all_slices = choose(tables, slices_of, what, command)
    figures: list[Figure] = []
    verdicts: list[Verdict | None] = []
    for quantizer in dict.fromkeys(each.quantizer for each in all_slices):
        own = [each for each in all_slices if each.quantizer == quantizer]
        name = FOLDER if not figures else f"{FOLDER}-{re.sub(r'[^a-z0-9]+', '-', quantizer.lower())}"
        figures.append(_figure(name, table, quantizer, own))
        verdicts += _judged(quantizer, own)
    return Answer((table.name,), tuple(figures), found(*verdicts))


def slices_of(table: Table) -> list[Slice]:
    """The complete slices beside a table that name their run and quantizer, if of more than one peak rate."""
    slices = []
    for path in sorted((table.folder / FOLDER).glob("*.h5")):
        stored = read(path)
        named = _RUN.fullmatch(str(stored.attributes.get("model", "")))
        if named and stored.complete and not stored.is_line:
            quantizer = str(stored.attributes.get("quantizer", ""))
            slices.append(Slice(float(named["peak"]), int(named["seed"]), quantizer, stored))
    slices.sort(key=lambda each: (each.quantizer, each.seed, each.peak))
    return slices if len({each.peak for each in slices}) > 1 else []


def _figure(name: str, table: Table, quantizer: str, slices: Sequence[Slice]) -> Figure:
    losses = np.concatenate([each.stored.loss[np.isfinite(each.stored.loss)] for each in slices])
    scale = colour_range(losses, [point.loss for each in slices for point in each.stored.points])
    seeds = sorted({each.seed for each in slices})
    rows = tuple(tuple(_panel(each, len(seeds) > 1) for each in slices if each.seed == seed) for seed in seeds)
    colours = Colours(scale.low, scale.high, tuple(scale.lines), "loss, nats per token") if scale else None
    caption = (
        f"Study {table.name}, {quantizer}: the loss on the plane through Θ_K, Θ_{{K−1}} and Θ̂_K at the ends of "
        "runs, by peak rate. α: towards Θ_{K−1}; β: across, towards Θ̂_K; L2 distances between weights, the same axes "
        "and colours in all panels."
    )
    return Figure(name, caption, rows, row_height=2.0, share_y=True, colours=colours)


def _panel(each: Slice, with_seed: bool) -> Panel:
    stored = each.stored
    points = tuple(
        Series(
            [point.alpha],
            [point.beta],
            _SIGNS[point.role][0],
            "#e69f00" if point.role == "quantized" else "#ffffff",
            dash="",
            marker=_SIGNS[point.role][1],
            names=[f"{point.label}, loss {point.loss:.4f}"],
            edged=True,
        )
        for point in stored.points
        if point.role in _SIGNS
    )
    title = f"peak rate {each.peak:g}" + (f", seed {each.seed}" if with_seed else "")
    return Panel(points, "α", "β", title, field=Field(stored.alpha, stored.beta, stored.loss))


def _judged(quantizer: str, slices: Sequence[Slice]) -> list[Verdict | None]:
    longer, flatter = (0.0, math.inf), (-math.inf, 0.0)
    grows, falls = (
        "a higher peak rate has more: differences above 0",
        "a higher peak rate has less: differences below 0",
    )
    claims: tuple[tuple[str, str, tuple[float, float], Callable[[Slice], Interval | None]], ...] = (
        ("‖Θ_K − Θ_{K−1}‖ grows with the peak rate", grows, longer, partial(_distance, role="checkpoint")),
        ("‖Θ_K − Θ̂_K‖ grows with the peak rate", grows, longer, partial(_distance, role="quantized")),
        ("flatter towards Θ̂_K with the peak rate", falls, flatter, partial(_read, name="hessian_delta_delta")),
        ("flatter in the plane with the peak rate", falls, flatter, partial(_read, name="eigenvalue_largest")),
    )
    return [
        verdict(claim, quantizer, rule, _between(slices, measure), within, percent=False)
        for claim, rule, within, measure in claims
    ]


def _distance(each: Slice, role: str) -> Interval | None:
    """An exact length."""
    found_points = [point.distance for point in each.stored.points if point.role == role]
    return Interval(found_points[0], found_points[0], found_points[0]) if found_points else None


def _read(each: Slice, name: str) -> Interval | None:
    """A number read off the slice, within the largest error expected."""
    reading = each.stored.reading
    error = reading.get("eigenvalue_error" if name.startswith("eigenvalue") else f"{name}_error")
    if error is None or not math.isfinite(reading[name]):
        return None
    return Interval(reading[name], reading[name] - error, reading[name] + error)


def _between(slices: Sequence[Slice], measure: Callable[[Slice], Interval | None]) -> list[Contrast]:
    contrasts = []
    for seed in sorted({each.seed for each in slices}):
        own = [each for each in slices if each.seed == seed]
        for lower, higher in itertools.pairwise(own):
            one, other = measure(higher), measure(lower)
            if one is not None and other is not None:
                difference = Interval(one.value - other.value, one.low - other.high, one.high - other.low)
                contrasts.append(Contrast(f"{higher.peak:g} less {lower.peak:g}", seed, difference))
    return contrasts
