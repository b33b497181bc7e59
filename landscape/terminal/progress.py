"""Progress with an estimate of the time left, and paths as one types them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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

_LONG = 600  # seconds left at which advice is worth its line


class TerminalReporter:
    """Progress bars on `console`; notes are kept for the summary."""

    def __init__(
        self, console: Console, shorter: str = "; fewer --tokens or a coarser --grid take in proportion"
    ) -> None:
        """`shorter` says how to get by with less time."""
        self._shorter = shorter
        self.notes: list[str] = []
        self._advised = False
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> TerminalReporter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None:
            self._finish_stage()
        if self._progress.live.is_started:
            self._progress.stop()

    def stage(self, name: str) -> Callable[[int, int], None]:
        """Begin the stage `name`; the function returned takes (done, total)."""
        self._finish_stage()
        self._progress.start()  # with the first stage, as a display of none would still print a line
        task = self._task = self._progress.add_task(name, total=None)

        def update(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total)
            self._advise(task, done)

        return update

    def say(self, text: str) -> None:
        """Show `text` instead of the stage's name."""
        if self._task is not None:
            self._progress.update(self._task, description=text)

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
                f"about {left / 3600:.1f} h to go on this device{self._shorter}. It can be interrupted: the same "
                "command goes on where it stopped.",
                style="yellow",
            )


def shown(path: Path) -> str:
    """The path as one types it from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
