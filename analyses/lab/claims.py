"""The claims of arXiv 2510.06213 as numbers whose sign or size decides, and a verdict on each.

A claim is a list of contrasts, one for each seed (and cooldown, or pair of rates). It holds where the 95 % intervals of
all contrasts lie inside what the claim says, does not hold where those of every seed lie outside for some contrast, and
is not resolved otherwise. Intervals come from resampling windows, and checkpoints where a mean is taken over some; what
differs between seeds is shown, not modelled: two seeds are too few for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyses.lab import experiments as lab
from analyses.lab.measured import Interval, Measured
from analyses.lab.plan import Lawa

HOLDS, FAILS, OPEN = "holds", "does not hold", "not resolved"
FLAT = 0.25  # d ln ΔQ / d ln tokens: half of the 0.51 that arXiv 2411.04330 finds where budgets grow


@dataclass(frozen=True)
class Contrast:
    """One number that a claim is about, for one seed."""

    what: str
    seed: int
    interval: Interval


@dataclass(frozen=True)
class Verdict:
    """A claim, what decides it, the numbers, and what they say."""

    claim: str
    quantizer: str
    rule: str
    contrasts: tuple[Contrast, ...]
    says: str
    percent: bool = True


def judge(contrasts: Sequence[Contrast], low: float, high: float) -> str:
    """Whether all intervals lie within (low, high), or those of every seed outside for some contrast."""
    if all(low < each.interval.low and each.interval.high < high for each in contrasts):
        return HOLDS
    for what in {each.what for each in contrasts}:
        own = [each.interval for each in contrasts if each.what == what]
        if all(each.low >= high for each in own) or all(each.high <= low for each in own):
            return FAILS
    return OPEN


def flat(measured: Measured, quantizer: str) -> Verdict:
    """How the error of the stable run grows over its second half."""
    plan, points = measured.plan, {}
    for seed in plan.seeds:
        stable = plan.runs[f"stable-{lab.PEAK:g}-s{seed}"]
        points[seed] = [(stable.name, step) for step in sorted(stable.measured) if step >= plan.at(0.5)]
    rule = f"over the second half of the stable run, within ±{FLAT}"
    return _grows_little(measured, "error flat in the stable phase", quantizer, rule, points, resampled=True)


def rises(measured: Measured, quantizer: str) -> Verdict:
    """ΔQ at the end of each cooldown less that of the stable run where it began."""
    plan, contrasts = measured.plan, []
    for start in lab.STARTS[1:]:  # before the first one there is no stable phase
        for seed in plan.seeds:
            name = _cooled(measured, seed, start)
            stable = plan.runs[f"stable-{lab.PEAK:g}-s{seed}"]
            around = measured.steps(stable, plan.at(start - 0.13), plan.at(start + 0.051))
            rise = end_of(measured, name, quantizer) - measured.mean_error(stable.name, around, quantizer)
            contrasts.append(Contrast(f"from {start:.0%} of the steps", seed, Interval.of(rise)))
    rule = "ΔQ at the end less the mean of the stable checkpoints around the start, above 0"
    return Verdict("rises in the cooldown", quantizer, rule, tuple(contrasts), judge(contrasts, 0, math.inf))


def alike(measured: Measured, quantizer: str) -> Verdict:
    """How the error at the end grows with the budget."""
    plan, points = measured.plan, {}
    for seed in plan.seeds:
        names = [_cooled(measured, seed, start) for start in lab.STARTS[1:]]
        points[seed] = [(name, plan.runs[name].steps) for name in names]
    rule = f"over the last five budgets (28 to 100 %), within ±{FLAT}"
    return _grows_little(measured, "end errors alike across budgets", quantizer, rule, points, resampled=False)


def ordered(measured: Measured, quantizer: str) -> Verdict:
    """ΔQ at the end for each peak rate less that for the next lower one."""
    plan, contrasts = measured.plan, []
    begin = (1 - lab.LONG) * plan.peaks_until
    for lower, higher in zip(lab.PEAKS, lab.PEAKS[1:], strict=False):
        for seed in plan.seeds:
            runs = [_cooled(measured, seed, begin, peak) for peak in (lower, higher)]
            below, above = (end_of(measured, run, quantizer) for run in runs)
            contrasts.append(Contrast(f"{higher:g} less {lower:g}", seed, Interval.of(above - below)))
    rule = "a higher peak rate has a lower ΔQ at the end: differences below 0"
    return Verdict("ordered by peak rate", quantizer, rule, tuple(contrasts), judge(contrasts, -math.inf, 0))


def averages_win(measured: Measured, quantizer: str) -> Verdict:
    """L(Θ̂) of the average of the stable run less that of the decayed run, at the full budget."""
    plan = measured.plan
    choices: dict[str, list[Contrast]] = {}
    for every, window in lab.LAWAS:
        lawa = Lawa(plan.at(1.0), max(1, plan.at(every)), window)
        for seed in plan.seeds:
            average = measured.losses(f"stable-{lab.PEAK:g}-s{seed}", f"{lawa}-at{lawa.end}", quantizer)[1]
            name = _cooled(measured, seed, 1 - lab.LONG)
            decayed = measured.losses(name, f"step{plan.runs[name].steps}", quantizer)[1]
            what = f"{window} checkpoints, {lawa.every} steps apart"
            choices.setdefault(what, []).append(Contrast(what, seed, Interval.of(average - decayed)))
    best = min(choices.values(), key=lambda own: sum(each.interval.value for each in own))
    rule = f"L(Θ̂) of the average less that after decay, nats, below 0; judged by the best window ({best[0].what})"
    contrasts = tuple(each for own in choices.values() for each in own)
    return Verdict("LAWA beats decay", quantizer, rule, contrasts, judge(best, -math.inf, 0), False)


def _grows_little(
    measured: Measured,
    claim: str,
    quantizer: str,
    rule: str,
    points: Mapping[int, Sequence[tuple[str, int]]],
    resampled: bool,
) -> Verdict:
    """The slope of ln ΔQ over ln tokens at the points (run, step) of each seed."""
    found = tuple(
        Contrast("d ln ΔQ / d ln tokens", seed, Interval.of(measured.slope(own, quantizer, resampled)))
        for seed, own in points.items()
    )
    return Verdict(claim, quantizer, rule, found, judge(found, -FLAT, FLAT), False)


def _cooled(measured: Measured, seed: int, start: float, peak: float = lab.PEAK) -> str:
    plan = measured.plan
    return f"decay-{peak:g}-s{seed}-from{max(plan.at(start), plan.warmup())}"


def end_of(measured: Measured, run: str, quantizer: str) -> np.ndarray:
    """ΔQ after the last step of a run."""
    return measured.error(run, f"step{measured.plan.runs[run].steps}", quantizer)
