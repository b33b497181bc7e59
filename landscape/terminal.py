"""What a person sees in the terminal: progress with an estimate of the time left, and the summary of a slice."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from landscape.basin import SliceResult
    from landscape.slices import StoredPoint, StoredSlice

_LONG = 600  # seconds left at which advice is worth its line


class TerminalReporter:
    """Progress bars on `console`; notes are kept for the summary."""

    def __init__(self, console: Console) -> None:
        self.notes: list[str] = []
        self._advised = False
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> TerminalReporter:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None:
            self._finish_stage()
        self._progress.stop()

    def stage(self, name: str) -> Callable[[int, int], None]:
        """Begin the stage `name`; the function returned takes (done, total)."""
        self._finish_stage()
        task = self._task = self._progress.add_task(name, total=None)

        def update(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total)
            self._advise(task, done)

        return update

    def note(self, text: str) -> None:
        """Keep `text` for the summary."""
        self.notes.append(text)

    def _finish_stage(self) -> None:
        if self._task is not None:
            total = self._progress.tasks[self._task].total or 1
            self._progress.update(self._task, total=total, completed=total)
            self._task = None

    def _advise(self, task: TaskID, done: int) -> None:
        left = self._progress.tasks[task].time_remaining
        if not self._advised and done >= 5 and left is not None and left > _LONG:
            self._advised = True
            self._progress.console.print(
                f"about {left / 3600:.1f} h to go on this device; fewer --tokens or a coarser --grid take in "
                "proportion. It can be interrupted: the same command goes on where it stopped.",
                style="yellow",
            )


def print_summary(console: Console, result: SliceResult, notes: list[str], seconds: float) -> None:
    """The named points, their losses and distances, what they were measured on, and where the files are."""
    stored = result.slice
    facts, origin, hat = stored.attributes, stored.point("theta"), stored.point("theta_hat")
    meanings = {"theta": facts["model"], "theta_prev": facts["previous"], "theta_hat": facts["quantizer"]}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in ("loss", "perplexity", "ΔL", "ΔL/L", "α", "β", "distance"):
        table.add_column(heading, justify="right")
    for point in stored.points:
        change = point.loss - origin.loss
        table.add_row(
            Text(point.label, style="bold"),
            _number(point.loss, ".4f"),
            _number(_exp(point.loss), ".3f"),
            "" if point is origin else _number(change, "+.4f"),
            "" if point is origin else _number(_relative_change(point, origin), "+.2%"),
            *(f"{value:.4g}" if abs(value) > 1e-6 * hat.distance else "0" for value in (point.alpha, point.beta)),
            f"{point.distance:.4g}",
        )
    console.print()
    for point in stored.points:
        console.print(Text.assemble((f"{point.label}  ", "bold"), meanings[point.name]))
    console.print(table)
    lines = [
        f"ΔQ = L(Θ̂)/L(Θ) − 1 = {_number(_relative_change(hat, origin), '.3%')}, in nats on "
        f"{facts['eval_tokens']:,} tokens of {facts['text']} ({facts['eval_windows']} windows), {facts['dtype']}",
        f"‖δ‖ = {hat.distance:.4g} = {hat.distance / facts['weight_norm']:.2%} of ‖Θ‖; "
        f"{facts['quantized_parameters']:,} of {facts['total_parameters']:,} parameters quantized"
        + (f", calibrated on {facts['calibration_tokens']:,} tokens" if facts["calibration_tokens"] else ""),
        f"grid {len(stored.alpha)}×{len(stored.beta)}, {seconds:.0f} s",
    ]
    for line in lines:
        console.print(Text(line))
    for note in [*notes, *observations(stored)]:
        console.print(Text.assemble(("note    ", "yellow"), note))
    for what, path in (("data", result.path), ("figure", result.figures[0]), ("page", result.page)):
        console.print(Text.assemble((f"{what:<8}", "bold green"), shown(path)), soft_wrap=True)


def observations(stored: StoredSlice) -> list[str]:
    """What the numbers themselves give reason to say."""
    notes = [
        f"the loss at {point.label} is {point.loss}: kept as it is"
        for point in stored.points
        if not math.isfinite(point.loss)
    ]
    odd = int((~np.isfinite(stored.loss) & stored.done).sum())
    if odd:
        notes.append(f"{odd} of {stored.loss.size} cells have a non-finite loss: kept as they are, marked in the page")
    uniform = math.log(stored.attributes["vocabulary"])
    if stored.point("theta").loss > uniform:
        notes.append(f"the loss at Θ_K is above that of guessing (ln V = {uniform:.3f}): is this its tokenizer?")
    layers = stored.tables["layers"]
    shorter = layers["inputs"] % layers["group_size"]
    if ragged := int((shorter > 0).sum()):
        notes.append(
            f"groups of {layers['group_size'][0]} do not divide {ragged} of {len(shorter)} layers "
            f"({layers['inputs'][shorter > 0][0]} inputs): their last group is shorter"
        )
    if retries := int(layers["retries"].sum()):
        notes.append(f"{retries} factorizations needed more damping; see the layers in the page")
    if fallen := [str(name) for name in layers["name"][layers["fallback"]]]:
        notes.append(f"GPTQ failed on {len(fallen)} layers, which are rounded to nearest: {', '.join(fallen[:4])}")
    return notes


def _relative_change(point: StoredPoint, origin: StoredPoint) -> float:
    return point.loss / origin.loss - 1 if origin.loss else math.nan


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else str(value)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def shown(path: Path) -> str:
    """The path as one types it from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
