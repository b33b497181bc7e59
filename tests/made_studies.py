"""Tables of studies with known answers, as the questions of the papers are asked of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from analyses.read.tables import Table, load
from landscape.study import table

GPTQ4, GPTQ3 = "gptq-w4-g64", "gptq-w3-g64"
INT4, INT8 = "rtn-w4-g64-asym", "rtn-w8-channel"
STEPS, PEAK = 20_000, 0.003
STARTS = (4_000, 7_000, 10_000, 13_000, 16_000)
Row = dict[str, Any]


def wobble(step: int) -> float:
    """A little that differs from checkpoint to checkpoint and does not grow, so that nothing fits without a rest."""
    return 1 + 0.01 * (step * 7919 % 13 / 6 - 1)


def row(run: str, step: int, quantizer: str = GPTQ4, delta_q: float = 0.01, **more: Any) -> Row:
    """A checkpoint under a quantizer, its errors small."""
    loss = more.get("loss", 3.0)
    made = {
        "run": run,
        "checkpoint": f"step{step}",
        "kind": "checkpoint",
        "stage": "",
        "step": step,
        "tokens": 2048.0 * step,
        "learning_rate": PEAK,
        "quantizer": quantizer,
        "method": quantizer.partition("-")[0],
        "bits": int(re.search(r"w(\d)", quantizer)[1]),
        "parameters": 1000,
        "loss": loss,
        "loss_hat": loss * (1 + delta_q),
        "delta_l": loss * delta_q,
        "delta_q": delta_q,
        "perplexity_ratio": 1 + 3 * delta_q,
        "model": f"{run}@step{step}",
        "tokens_fingerprint": "t",
    }
    errors = {f"{name}_se": 1e-5 for name in ("loss", "loss_hat", "delta_l", "delta_q", "perplexity_ratio")}
    return made | errors | more


def study(folder: Path, rows: Iterable[Row], name: str = "made") -> Table:
    """A study with these rows, written and read."""
    table.write(folder / name, "study", list(rows), {})
    return load([folder / name])[0]


def stable(run: str, rows: Callable[[int], dict[str, Any]], until: int = STEPS, every: int = 1000) -> list[Row]:
    """A run at a constant rate; `rows` gives its cells at a step."""
    return [row(run, step, **rows(step)) for step in range(every, until + 1, every)]


def cooldown(
    run: str, start: int, length: int, rows: Callable[[int, float], dict[str, Any]], points: int = 2, peak: float = PEAK
) -> list[Row]:
    """A cooldown; `rows` gives its cells at a step and the share of the rate that is gone."""
    made = []
    for point in range(1, points + 1):
        gone = point / points
        step = start + round(length * gone)
        made.append(row(run, step, **{"learning_rate": peak * (1 - gone) + 1e-9} | rows(step, gone)))
    return made


def budgets(rise: float = 0.01, growth: float = 0.0, **curved: Any) -> list[Row]:
    """A stable run, five cooldowns and one before the stable phase, for two seeds.

    The error grows as tokens to the `growth`, and by `rise` at the end of a cooldown.

    With `curved`, ("before", "after"): trace and λ_max in the stable phase and at the end.
    """

    def error(step: int, gone: float = 0.0) -> dict[str, Any]:
        grown = 0.02 * wobble(step) * (step / STEPS) ** growth
        cells: dict[str, Any] = {"delta_q": grown + rise * gone * (step / STEPS) ** growth}
        if curved:
            level = (curved["before"] + (curved["after"] - curved["before"]) * gone) * wobble(step)
            cells |= {"trace": 100 * level, "trace_se": 0.1, "lambda_max": level, "lambda_max_residual": 1e-3}
        return cells

    rows = []
    for seed in (1, 2):
        rows += stable(f"stable-0.003-s{seed}", error)
        for start in (1000, *STARTS):
            rows += cooldown(f"decay-0.003-s{seed}-from{start}", start, 3000, error, points=3)
    return rows


def peaks(*errors: float, seeds: int = 2, **cells: list[float]) -> list[Row]:
    """Cooldowns over the same steps from rates 0.001, 0.003, … that end with these errors."""
    rows = []
    for number, error in enumerate(errors):
        peak = (0.001, 0.003, 0.01)[number]
        own = {name: values[number] for name, values in cells.items()}
        for seed in range(1, seeds + 1):
            before = [row(f"stable-{peak:g}-s{seed}", step, delta_q=0.01, learning_rate=peak) for step in (1000, 2000)]
            rows += before
            rows += cooldown(
                f"decay-{peak:g}-s{seed}-from2000",
                2000,
                1000,
                lambda step, gone, error=error, own=own: {"delta_q": 0.01 + (error - 0.01) * gone, **own},
                peak=peak,
            )
    return rows


def averages(loss_hat: float, error: float = 0.03) -> list[Row]:
    """A stable run, cooldowns that end at 3.03 nats after quantization, and averages that have `loss_hat` there."""
    rows = []
    for seed in (1, 2):
        run = f"stable-0.003-s{seed}"
        rows += stable(run, lambda step: {"delta_q": 0.02, "loss": 3.2}, 10_000)
        rows += cooldown(f"decay-0.003-s{seed}-from8000", 8000, 2000, lambda step, gone: {"delta_q": error / 3})
        rows += cooldown(f"decay-0.003-s{seed}-from9500", 9500, 500, lambda step, gone: {"delta_q": error / 4})
        for kind, more in (("lawa-5x500", 0.05), ("lawa-20x500", 0.0)):
            cells = {"kind": kind, "learning_rate": None, "loss": 3.1, "delta_q": (loss_hat + more) / 3.1 - 1}
            rows.append(row(run, 10_000, **cells))
    return rows


def public(run: str, rise: float) -> list[Row]:
    """A run from the Hub whose rate decays from half of its steps on, its error changing by `rise` there.

    It begins with an error that is neither.
    """
    rows = []
    for step in range(1000, 11_000, 1000):
        gone = max(0, step - 5000) / 5000
        cells = {"learning_rate": 1e-3 * (1 - gone), "model": f"{run}@step{step}", "delta_q": 0.02 + rise * gone}
        if step < 3000:
            cells["delta_q"] = 0.5
        rows.append(row(run, step, **cells))
    return rows
