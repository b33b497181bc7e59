"""Verdicts, tables and figures of the experiments: printed, and kept in docs/lab.md, data/lab/ and figures/."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from analyses.lab import experiments as lab
from analyses.lab import figures
from analyses.lab.claims import Contrast, Verdict
from analyses.lab.differences import verdicts
from analyses.lab.measured import Interval, Measured
from analyses.lab.plan import Plan
from analyses.lab.sizes import Size
from landscape.storage.files import write_whole
from landscape.training.run import Run


def write(plan: Plan, size: Size, letters: str, folder: Path, console: Console, root: Path = Path()) -> None:
    """Judge, draw, and put what came out into the part of docs/lab.md, below `root`, that belongs to this size."""
    measured = Measured(plan, folder)
    found = verdicts(measured, letters, size.quantizers)
    for each in found:
        console.print(f"[bold]{each.says:<14}[/] {each.claim}, {each.quantizer}", highlight=False)
    page, table = root / "docs" / "lab.md", root / "data" / "lab" / f"{size.name}.csv"
    write_whole(table, measured.table().encode())
    drawn = figures.draw(measured, letters, size.quantizers, root / "figures", size.name)
    parts = [
        _about(plan, size, folder),
        _still_falling(measured),
        _verdicts(found),
        *(f"![{path.stem}](../figures/{path.name})" for path in drawn),
        _ends(measured, size.quantizers),
        _contrasts(found),
    ]
    text = "\n\n".join(part for part in parts if part)
    _put(page, size.name, text)
    console.print(f"report  {', '.join(map(str, (page, table, *drawn)))}", highlight=False)


def _put(page: Path, size: str, text: str) -> None:
    """Replace what stands between this size's marks, or add it at the end."""
    begin, end = f"<!-- {size}: written by make lab -->", f"<!-- end of {size} -->"
    old = page.read_text(encoding="utf-8") if page.exists() else "# The training lab\n"
    block = f"{begin}\n{text}\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    new = pattern.sub(lambda _: block, old) if pattern.search(old) else f"{old.rstrip()}\n\n{block}\n"
    write_whole(page, new.encode())


def _about(plan: Plan, size: Size, folder: Path) -> str:
    base, seeds = plan.base, ", ".join(map(str, plan.seeds))
    facts = Run(folder / next(iter(plan.runs))).facts() or {}
    steps = sum(run.steps - run.begun for run in plan.runs.values())
    return (
        f"{facts['parameters']:,} parameters ({base.model.get('type', base.model.get('like'))}), {base.steps:,} steps "
        f"of {base.batch_size} × {base.seq_len} tokens, seeds {seeds}; {len(plan.runs)} runs, "
        f"{steps:,} steps in all. Text: {facts['text']}, {facts['tokens']:,} tokens, read "
        f"{base.steps * base.batch_size * base.seq_len / facts['tokens']:.1f} times by a full run. Losses on "
        f"{size.tokens:,} held-out tokens; GPTQ calibrated on {size.windows} windows."
    )


def _still_falling(measured: Measured) -> str:
    """Whether the loss of the stable run still falls at its end."""
    plan, said = measured.plan, []
    some = measured.quantizers[0]
    for seed in plan.seeds:
        name = f"stable-{lab.PEAK:g}-s{seed}"
        if name not in plan.runs:
            return ""  # of these experiments none has it
        run = plan.runs[name]
        last = [f"step{step}" for step in sorted(run.measured) if step > 0.7 * run.steps]
        half = len(last) // 2
        halves = (last[:half], last[-half:])
        before, after = (np.mean([measured.losses(name, each, some)[0] for each in part], axis=0) for part in halves)
        change = Interval.of(after - before)
        said.append(f"{change.value:+.4f} [{change.low:+.4f}, {change.high:+.4f}] (seed {seed})")
    return (
        "Does the loss still fall at the end? Held-out loss of the stable run over the last 30 % of its steps, second "
        f"half less first half: {'; '.join(said)} nats."
    )


def _verdicts(found: Sequence[Verdict]) -> str:
    rows = ["| claim | quantizer | verdict | what decides |", "|---|---|---|---|"]
    rows += [f"| {each.claim} | {each.quantizer} | **{each.says}** | {each.rule} |" for each in found]
    return "\n".join(rows)


def _contrasts(found: Sequence[Verdict]) -> str:
    rows = ["The numbers behind the verdicts, with their 95 % intervals:", ""]
    rows += ["| claim | quantizer | contrast | by seed |", "|---|---|---|---|"]
    for verdict in found:
        by_what: dict[str, list[Contrast]] = {}
        for each in verdict.contrasts:
            by_what.setdefault(each.what, []).append(each)
        for what, own in by_what.items():
            cells = "; ".join(
                f"{_signed(each.interval.value, verdict.percent)} [{_signed(each.interval.low, verdict.percent)}, "
                f"{_signed(each.interval.high, verdict.percent)}]"
                for each in own
            )
            rows.append(f"| {verdict.claim} | {verdict.quantizer} | {what} | {cells} |")
    return "\n".join(rows)


def _ends(measured: Measured, quantizers: Sequence[str]) -> str:
    """Loss and ΔQ at the end of every run."""
    rows = ["At the end of every run:", "", f"| run | step | loss | {' | '.join(quantizers)} |"]
    rows += ["|---|---|---|" + "---|" * len(quantizers)]
    for run in sorted(measured.plan.runs.values(), key=lambda each: each.name):
        last = f"step{max(run.measured)}"
        loss = measured.losses(run.name, last, quantizers[0])[0][0]
        cells = []
        for quantizer in quantizers:
            each = Interval.of(100 * measured.error(run.name, last, quantizer))
            cells.append(f"{each.value:.2f} % [{each.low:.2f}, {each.high:.2f}]")
        rows.append(f"| {run.name} | {max(run.measured)} | {loss:.4f} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _signed(value: float, percent: bool) -> str:
    return f"{100 * value:+.2f} %" if percent else f"{value:+.4f}" if abs(value) < 0.1 else f"{value:+.2f}"
