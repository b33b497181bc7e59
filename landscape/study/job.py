"""The job: a training run, quantizers and measurements in; a table with a row for every checkpoint and quantizer out.

    run → points → subjects (checkpoints, averages) → tasks → results and notes → study.parquet and two more

Tasks are the ordinary jobs, whose files lie below the study's folder. A task that is done leaves a note; the table is
made from the files that the notes of this study name, so that it is the same whoever did the tasks, in whatever order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from landscape import trajectories
from landscape.config import StudyConfig
from landscape.errors import OptionError, StudyError
from landscape.machine.environment import environment
from landscape.quantize import parse
from landscape.reporting import Reporter, Silent, versions
from landscape.storage.files import lock, write_whole
from landscape.study import local, on_ray, plan, rows, table, work
from landscape.study.plan import Subject, Task
from landscape.texts import display_name

_APART = 10.0  # seconds between tables that are written while it goes on
FACTS = "study.json"


@dataclass(frozen=True)
class Study:
    """A study's folder, and what came out.

    Attributes:
        rows: of the table, one for every subject and quantizer.
        skipped: subjects and tasks that could not be measured, and why.
    """

    folder: Path
    rows: Sequence[dict[str, Any]]
    skipped: Sequence[tuple[str, str]]


def run_study(config: StudyConfig, reporter: Reporter | None = None) -> Study:
    """Measure what `config` describes, or what is missing of it.

    Raises:
        LandscapeError: an input that cannot be used; what was measured before it stays.
    """
    reporter = reporter or Silent()
    table.check_pyarrow()
    if config.out.suffix or (config.out.exists() and not config.out.is_dir()):
        raise OptionError(f"--out {config.out}: expected a directory")
    for name in config.quant:
        parse(name)
    reporter.stage("finding the checkpoints")
    model, selection = trajectories.split(config.model)
    every = trajectories.points(model, reporter.note)
    chosen = trajectories.select(every, selection) if selection else every
    subjects = plan.subjects(config, every, chosen)
    tasks = plan.tasks(config, subjects)
    with lock(config.out / FACTS):
        missing = [task for task in tasks if config.overwrite or not work.is_done(task, config.out)]
        if len(missing) < len(tasks):
            reporter.note(f"{len(tasks) - len(missing)} of {len(tasks)} tasks were done already")
        book = _Book(config, subjects, tasks)
        update = reporter.stage(f"{len(missing)} tasks on {len(subjects)} checkpoints")
        if missing:
            engine = local.run if config.engine == "local" else on_ray.run
            engine(config, missing, reporter, book.hear(update, len(missing)))
        return book.close()


class _Book:
    """What is known so far, and the tables made from it."""

    def __init__(self, config: StudyConfig, subjects: Sequence[Subject], tasks: Sequence[Task]) -> None:
        self._config, self._subjects = config, subjects
        self._tasks: dict[Subject, list[Task]] = {subject: [] for subject in subjects}
        for task in tasks:
            self._tasks[task.subject].append(task)
        self._known: dict[Subject, tuple[dict[str, str], rows.Rows]] = {}
        self._skipped: list[tuple[str, str]] = []
        self._written = time.monotonic()

    def hear(self, update: Callable[[int, int], None], total: int) -> Callable[[Task, str], None]:
        """What an engine calls when a task has ended."""
        done = 0

        def on_done(task: Task, why: str) -> None:
            nonlocal done
            done += 1
            update(done, total)
            if why:
                self._skipped.append((str(task), why))
            if time.monotonic() - self._written > _APART:
                self._write()

        return on_done

    def close(self) -> Study:
        """The tables as they are now, on disk.

        Raises:
            StudyError: nothing could be measured.
        """
        found = self._write()
        if not found:
            task, why = self._skipped[0] if self._skipped else ("study", "nothing to measure")
            raise StudyError(f"none of {len(self._subjects)} checkpoints could be measured; {task}: {why}")
        return Study(self._config.out, found, tuple(self._skipped))

    def _write(self) -> list[rows.Row]:
        out, config = self._config.out, self._config
        parts = [self._rows(subject) for subject in self._subjects]
        found = {name: [row for part in parts for row in getattr(part, name)] for name in table.FILES}
        facts = {"text": display_name(config.text), "measure": list(config.wanted), "versions": versions()}
        if found["study"]:
            for name, own in found.items():
                table.write(out, name, own, facts)
        told = {"model": Path(config.model.partition("@")[0]).name, "skipped": self._skipped, **facts}
        told["environment"] = environment()
        write_whole(out / FACTS, json.dumps(told, indent=1).encode())
        self._written = time.monotonic()
        return found["study"]

    def _rows(self, subject: Subject) -> rows.Rows:
        """Those of one subject, read again when there are more files."""
        files: dict[str, str] = {}
        for task in self._tasks[subject]:
            if (note := work.read_note(task, self._config.out)) is not None:
                files |= note["files"]
        if not files:
            return rows.Rows()
        before, known = self._known.get(subject, ({}, rows.Rows()))
        if files != before:
            known = rows.of_subject(subject, {name: self._config.out / file for name, file in files.items()})
            self._known[subject] = files, known
        return known
