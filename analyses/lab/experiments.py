"""The experiments A to H: which runs, and what is measured on them.

The numbers are those of arXiv 2510.06213, whose runs have 190,000 steps, and in F of arXiv 2604.15167 as far as it
tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from analyses.lab.plan import Lawa, Plan, Planned
from landscape.training.recipe import Recipe

PAPER = 190_000
STARTS = tuple(start / PAPER for start in (2_000, 36_000, 70_000, 104_000, 138_000, 172_000))  # figure 4
SHORT, LONG = 18_000 / PAPER, 38_000 / PAPER  # cooldowns of figure 4, and of figures 6 and 7
PEAKS = (3e-4, 1e-3, 3e-3, 1e-2)  # figure 6
PEAK = 3e-3
LAWA_ENDS = (0.5, 1.0)
LAWAS = (  # (share of the steps between checkpoints, how many)
    (500 / PAPER, 5),  # the paper's text
    (500 / PAPER, 20),  # its jobs
    (0.0125, 5),
    (0.0125, 20),
)
DECAYS = (0.0, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1)  # figure 19
DECAY_STEPS, DECAY_COOLDOWN = 18_500, 3_500 / 18_500
COSINE_PEAKS = (6e-4, 3e-3)  # figures 21 and 22
COSINE_ENDS = tuple(end / PAPER for end in (20_000, 88_000, 156_000, 190_000))
COSINE: dict[str, Any] = {"schedule.kind": "decay", "schedule.shape": "cosine", "schedule.end": 0.0}
FORK_PEAK, FORK_ORDERS = 6e-4, (1, 2, 3)  # of Pythia; three seeds an arm
OLI_PERIOD = 0.125
RADII = (0.01, 0.05, 0.2)


def budgets(plan: Plan) -> None:
    """A. One stable run, cooldowns begun at six points: does the budget matter once the rate has decayed?"""
    for seed in plan.seeds:
        plan.stable(PEAK, seed, 1.0, points=20)
        for start in STARTS:
            plan.cooled(PEAK, seed, start, SHORT, points=2)


def peaks(plan: Plan) -> None:
    """B. Four peak rates: is the error at the end ordered by them?"""
    for seed in plan.seeds:
        for peak in PEAKS:
            plan.cooled(peak, seed, (1 - LONG) * plan.peaks_until, LONG * plan.peaks_until, points=4)


def averaging(plan: Plan) -> None:
    """C. Averages of the run at a constant rate and the members of the widest, beside a decay over the same steps."""
    for seed in plan.seeds:
        for end in LAWA_ENDS:
            plan.cooled(PEAK, seed, end - LONG, LONG, points=4)
            lawas = frozenset(Lawa(plan.at(end), max(1, plan.at(every)), window) for every, window in LAWAS)
            widest = max(lawas, key=lambda lawa: lawa.every * lawa.window)
            plan.stable(PEAK, seed, end, also=widest.steps, lawas=lawas)


def weight_decays(plan: Plan) -> None:
    """D. AdamLH with seven decays, and two AdamW runs of one product of rate and decay.

    The paper's runs of D have 18,500 steps; λ is scaled so that a whole run decays as much as there.
    """
    for seed in plan.seeds:
        for decay in DECAYS:
            scaled = 1 - (1 - decay) ** (DECAY_STEPS / plan.base.steps)
            adamlh: dict[str, Any] = {"optimizer.kind": "adamlh", "optimizer.weight_decay": scaled}
            plan.whole(f"adamlh-{decay:g}-s{seed}", seed, PEAK, cooldown=DECAY_COOLDOWN, **adamlh)
        for peak, decay in ((1e-2, 0.03), (1e-3, 0.3)):
            adamw: dict[str, Any] = {"optimizer.weight_decay": decay}
            plan.whole(f"adamw-{peak:g}-{decay:g}-s{seed}", seed, peak, cooldown=DECAY_COOLDOWN, **adamw)


def cosines(plan: Plan) -> None:
    """E. Cosine runs that end where four of the cooldowns of A end."""
    budgets(plan)
    for seed in plan.seeds:
        for peak in COSINE_PEAKS:
            for end in COSINE_ENDS:
                plan.whole(f"cosine-{peak:g}-s{seed}-to{plan.at(end)}", seed, peak, steps=plan.at(end), **COSINE)


def forks(plan: Plan) -> None:
    """F. From the middle of a cosine run: its continuation, warm restarts and OLI, each on three orders of the data."""
    begin, seed = plan.at(0.5), plan.seeds[0]
    cosine: dict[str, Any] = {**COSINE, "schedule.end": 0.1}
    trunk = plan.whole(f"trunk-s{seed}", seed, FORK_PEAK, states=frozenset({begin}), **cosine)
    middle = 0.1 + 0.9 / 2  # of the peak: where the trunk's rate is
    own: dict[str, Any] = {"counted_from": "fork", "schedule.warmup": 0, "optimizer.peak": FORK_PEAK * middle}
    arms: dict[str, dict[str, Any]] = {
        "cosine": {**cosine, "optimizer.peak": FORK_PEAK},
        "sgdr": {"schedule.kind": "sgdr", "schedule.period": 0.25, "schedule.end": 0.1, **own},
        "oli": {"schedule.kind": "oli", "schedule.period": OLI_PERIOD, "schedule.level": 0.4, **own},
    }
    points = frozenset(begin + round((plan.base.steps - begin) * OLI_PERIOD * each) for each in range(1, 9))
    for order in FORK_ORDERS:
        for arm, changes in arms.items():
            changes = {"seed": seed, "data_seed": order, "schedule.warmup": plan.warmup()} | changes
            name = f"fork-{arm}-d{order}"
            plan.add(Planned(name, changes, plan.base.steps, (trunk.name, begin), points))


def corrected(plan: Plan) -> None:
    """G. AdamC beside AdamW, with WSD and with cosine."""
    for seed in plan.seeds:
        for kind in ("adamw", "adamc"):
            own: dict[str, Any] = {"optimizer.kind": kind}
            plan.whole(f"{kind}-wsd-s{seed}", seed, PEAK, **own)
            plan.whole(f"{kind}-cosine-s{seed}", seed, PEAK, **COSINE, **own)


def sharpness_aware(plan: Plan) -> None:
    """H. Sharpness-aware minimization with three radii beside AdamW."""
    for seed in plan.seeds:
        for radius in (0.0, *RADII):
            plan.whole(f"sam-{radius:g}-s{seed}", seed, PEAK, sam=radius)


EXPERIMENTS: dict[str, Callable[[Plan], None]] = {
    "A": budgets,
    "B": peaks,
    "C": averaging,
    "D": weight_decays,
    "E": cosines,
    "F": forks,
    "G": corrected,
    "H": sharpness_aware,
}


def planned(base: Recipe, letters: Iterable[str], seeds: tuple[int, ...], peaks_until: float = 1.0) -> Plan:
    """The runs of these experiments."""
    plan = Plan(base, seeds, peaks_until)
    for letter in letters:
        EXPERIMENTS[letter](plan)
    return plan
