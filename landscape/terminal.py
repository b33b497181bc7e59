"""What a person sees in the terminal: progress with an estimate of the time left, and the summary of a slice."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

_SLOW = 600  # seconds left at which a hint is worth its line


class TerminalReporter:
    """Progress bars on `console`; notes are kept for the summary."""

    def __init__(self, console: Console) -> None:
        self.notes: list[str] = []
        self._console = console
        self._hinted = False
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task: Any = None

    def __enter__(self) -> TerminalReporter:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._close_task()
        self._progress.stop()

    def stage(self, name: str) -> Callable[[int, int], None]:
        """Begin the stage `name`; the function returned takes (done, total)."""
        self._close_task()
        task = self._task = self._progress.add_task(name, total=None)

        def update(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total)
            self._hint(task, done)

        return update

    def note(self, text: str) -> None:
        """Keep `text` for the summary."""
        self.notes.append(text)

    def _close_task(self) -> None:
        if self._task is not None:
            row = self._progress.tasks[self._task]
            total = row.total or 1
            self._progress.update(self._task, total=total, completed=total)
            self._task = None

    def _hint(self, task: Any, done: int) -> None:
        left = self._progress.tasks[task].time_remaining
        if not self._hinted and done >= 5 and left is not None and left > _SLOW:
            self._hinted = True
            self._progress.console.print(
                f"about {left / 3600:.1f} h to go on this device; fewer --tokens or a coarser --grid take "
                "proportionally less. It can be interrupted: the same command goes on where it stopped.",
                style="yellow",
            )


def print_summary(console: Console, result: Any, notes: list[str], seconds: float) -> None:
    """The named points, their losses and distances, what they were measured on, and where the files are."""
    stored = result.slice
    facts = stored.attributes
    origin = stored.point("theta")
    table = Table(
        title=Text(facts["title"], style="bold"), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    table.add_column("point")
    for heading in ("loss (nats)", "perplexity", "ΔL", "L/L(Θ_K) − 1", "α", "β", "distance", "off plane"):
        table.add_column(heading, justify="right")
    references = {"theta": facts["model"], "theta_prev": facts["previous"], "theta_hat": facts["quantizer"]}
    for point in stored.points:
        change = point.loss - origin.loss
        table.add_row(
            Text.assemble((f"{point.label:<6}", "bold"), references.get(point.name, "")),
            _number(point.loss, ".5f"),
            _number(_exp(point.loss), ".3f"),
            "" if point is origin else _number(change, "+.5f"),
            "" if point is origin else _number(change / origin.loss, "+.2%"),
            *(f"{value:.4g}" for value in (point.alpha, point.beta, point.distance, point.residual)),
        )
    console.print(table)
    hat = stored.point("theta_hat")
    lines = [
        f"ΔQ = L(Θ̂)/L(Θ) − 1 = {_number(hat.loss / origin.loss - 1, '.3%')} on {facts['eval_tokens']:,} tokens of "
        f"{facts['text']} ({facts['eval_windows']} windows), {facts['dtype']}",
        f"‖δ‖ = {hat.distance:.4g} = {hat.distance / facts['weight_norm']:.2%} of ‖Θ‖; "
        f"{facts['quantized_parameters']:,} of {facts['total_parameters']:,} parameters quantized"
        + (f", calibrated on {facts['calibration_tokens']:,} tokens" if facts["calibration_tokens"] else ""),
        f"grid {len(stored.alpha)}×{len(stored.beta)} in {seconds:.0f} s",
    ]
    for line in lines:
        console.print(Text(line))
    for note in [*notes, *_warnings(stored)]:
        console.print(Text.assemble(("note  ", "yellow"), note))
    for what, path in (("page", result.page), ("data", result.path), ("figure", result.figures[0])):
        console.print(Text.assemble((f"{what:<8}", "bold green"), _relative(path)), soft_wrap=True)


def _warnings(stored: Any) -> list[str]:
    """What the numbers themselves give reason to say."""
    notes = []
    for point in stored.points:
        if not math.isfinite(point.loss):
            notes.append(f"the loss at {point.label} is {point.loss}: kept as it is")
    bad = int((~_finite(stored.loss) & stored.done).sum())
    if bad:
        notes.append(f"{bad} of {stored.loss.size} cells have a non-finite loss: kept as they are, marked in the page")
    layers = stored.tables.get("layers", {})
    if layers:
        retried = int(layers["retries"].sum())
        fallen = [str(name) for name, fallback in zip(layers["name"], layers["fallback"], strict=True) if fallback]
        if retried:
            notes.append(f"{retried} retries with more damping; see the layers in the page")
        if fallen:
            notes.append(f"{len(fallen)} layers rounded to nearest, GPTQ failed: {', '.join(fallen[:4])}")
    return notes


def _finite(values: Any) -> Any:
    import numpy as np

    return np.isfinite(values)


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else str(value)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _relative(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
