"""Claims of the experiments D to H: one number of a run less that of another, by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from analyses.lab import claims
from analyses.lab import experiments as lab
from analyses.lab.claims import Contrast, Verdict, end_of, judge
from analyses.lab.measured import Interval, Measured

SAME = 0.1  # of ΔQ: what two ways may differ by and be called the same


def decay_helps(measured: Measured, quantizer: str) -> Verdict:
    """D: ΔQ at the end with each decay less that without any; the largest one decides."""
    found = [
        Contrast(
            f"λ {decay:g} less 0", seed, _less(measured, f"adamlh-{decay:g}-s{seed}", f"adamlh-0-s{seed}", quantizer)
        )
        for decay in lab.DECAYS[1:]
        for seed in measured.plan.seeds
    ]
    decides = [each for each in found if each.what == f"λ {lab.DECAYS[-1]:g} less 0"]
    rule = "ΔQ at the end with the largest decay less that without, below 0"
    return Verdict("weight decay reduces the error", quantizer, rule, tuple(found), judge(decides, -math.inf, 0))


def cosine_is_wsd(measured: Measured, quantizer: str) -> Verdict:
    """E: ΔQ at the end of a cosine run against that of the cooldown that ends at the same step, as a ratio less 1."""
    plan, found = measured.plan, []
    for end in lab.COSINE_ENDS:
        for seed in plan.seeds:
            cosine = f"cosine-{lab.PEAK:g}-s{seed}-to{plan.at(end)}"
            begin = max(plan.at(end - lab.SHORT), plan.warmup())
            ends = [run for name, run in plan.runs.items() if name.startswith(f"decay-{lab.PEAK:g}-s{seed}-from")]
            cooled = min(ends, key=lambda run: abs(run.begun - begin)).name
            ratio = end_of(measured, cosine, quantizer) / end_of(measured, cooled, quantizer) - 1
            found.append(Contrast(f"at {end:.0%} of the steps", seed, Interval.of(ratio)))
    rule = f"ΔQ(cosine)/ΔQ(WSD) − 1 at one budget, within ±{SAME}"
    return Verdict("cosine ends as WSD does", quantizer, rule, tuple(found), judge(found, -SAME, SAME))


def oscillation_helps(measured: Measured, quantizer: str) -> Verdict:
    """F: ΔQ of OLI in its cool phases less that of the cosine continuation at the same steps."""
    return _forks(measured, quantizer, "oli", "OLI's cool phases are better than cosine")


def restarts_help(measured: Measured, quantizer: str) -> Verdict:
    """F: the same of warm restarts, which the paper finds worse everywhere."""
    return _forks(measured, quantizer, "sgdr", "warm restarts are better than cosine")


def correction_is_neutral(measured: Measured, quantizer: str) -> Verdict:
    """G: ΔQ of AdamC against AdamW, as a ratio less 1."""
    found = []
    for kind in ("wsd", "cosine"):
        for seed in measured.plan.seeds:
            adamc, adamw = (end_of(measured, f"{name}-{kind}-s{seed}", quantizer) for name in ("adamc", "adamw"))
            found.append(Contrast(kind, seed, Interval.of(adamc / adamw - 1)))
    rule = f"ΔQ(AdamC)/ΔQ(AdamW) − 1 at the end, within ±{SAME}"
    return Verdict("AdamC changes the error little", quantizer, rule, tuple(found), judge(found, -SAME, SAME))


def flatness_helps(measured: Measured, quantizer: str) -> Verdict:
    """H: ΔQ with sharpness-aware minimization less that without; the largest radius decides."""
    found = []
    for radius in lab.RADII:
        for seed in measured.plan.seeds:
            difference = _less(measured, f"sam-{radius:g}-s{seed}", f"sam-0-s{seed}", quantizer)
            found.append(Contrast(f"ρ {radius:g} less 0", seed, difference))
    decides = [each for each in found if each.what == f"ρ {lab.RADII[-1]:g} less 0"]
    rule = "ΔQ at the end with the largest radius less that without, below 0"
    return Verdict("SAM reduces the error", quantizer, rule, tuple(found), judge(decides, -math.inf, 0))


CLAIMS: dict[str, tuple[Callable[[Measured, str], Verdict], ...]] = {
    "A": (claims.flat, claims.rises, claims.alike),
    "B": (claims.ordered,),
    "C": (claims.averages_win,),
    "D": (decay_helps,),
    "E": (cosine_is_wsd,),
    "F": (oscillation_helps, restarts_help),
    "G": (correction_is_neutral,),
    "H": (flatness_helps,),
}


def verdicts(measured: Measured, letters: str, quantizers: Sequence[str]) -> list[Verdict]:
    """Every claim of these experiments, for every quantizer."""
    return [claim(measured, each) for letter in letters for claim in CLAIMS[letter] for each in quantizers]


def _less(measured: Measured, run: str, other: str, quantizer: str) -> Interval:
    return Interval.of(end_of(measured, run, quantizer) - end_of(measured, other, quantizer))


def _forks(measured: Measured, quantizer: str, arm: str, claim: str) -> Verdict:
    found = []
    for order in lab.FORK_ORDERS:
        own, cosine = f"fork-{arm}-d{order}", f"fork-cosine-d{order}"
        steps = [f"step{step}" for step in sorted(measured.plan.runs[own].measured)]
        errors = [[measured.error(name, step, quantizer) for step in steps] for name in (own, cosine)]
        difference = np.mean(errors[0], axis=0) - np.mean(errors[1], axis=0)
        found.append(Contrast(f"mean of {len(steps)} checkpoints", order, Interval.of(difference)))
    rule = "mean ΔQ over the ends of the cycles less that of cosine at the same steps, below 0"
    return Verdict(claim, quantizer, rule, tuple(found), judge(found, -math.inf, 0))
