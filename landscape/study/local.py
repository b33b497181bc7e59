"""One machine: tasks in order; the next checkpoint is fetched meanwhile, what is done with deleted if that is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from landscape.config import StudyConfig
from landscape.models.checkpoint import Checkpoint
from landscape.models.hub import forget, is_cached
from landscape.models.references import resolve
from landscape.reporting import Reporter
from landscape.study.plan import Subject, Task
from landscape.study.work import do

Done = Callable[[Task, str], None]


def run(config: StudyConfig, tasks: Sequence[Task], reporter: Reporter, on_done: Done) -> None:
    """Do `tasks`; `on_done` hears of each, and why it could not be done if so.

    Raises:
        LandscapeError: what is wrong with every checkpoint; the tasks before are done.
    """
    with _Shelf(config) as shelf:
        for place, task in enumerate(tasks):
            later = [each.subject for each in tasks[place + 1 :]]
            shelf.take(task.subject)
            shelf.fetch(next((each for each in later if each != task.subject), None))
            why = do(task, config.out, _Within(reporter, f"{place + 1}/{len(tasks)} {task.subject}"))
            on_done(task, why)
            if task.subject not in later:
                shelf.put_back(task.subject, later)


class _Within:
    """A reporter for one of many tasks: its stages are named after it."""

    def __init__(self, whole: Reporter, task: str) -> None:
        self._whole, self._task = whole, task

    def stage(self, name: str) -> Callable[[int, int], None]:
        self._whole.say(f"{self._task}: {name}")
        return lambda done, total: None

    def say(self, text: str) -> None:
        self._whole.say(f"{self._task}: {text}")

    def note(self, text: str) -> None:
        """Kept in the results; a study would repeat it for every checkpoint."""


class _Shelf:
    """Checkpoints of the Hub: the next one comes while one is measured; what this study brought may go again."""

    def __init__(self, config: StudyConfig) -> None:
        self._config = config
        self._pool = ThreadPoolExecutor(1)
        self._coming: dict[str, Future[Checkpoint]] = {}
        self._brought: set[str] = set()

    def __enter__(self) -> _Shelf:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def fetch(self, subject: Subject | None) -> None:
        """Begin to download what `subject` needs."""
        for reference in _references(subject) if subject else ():
            if reference not in self._coming and not Path(reference.partition("@")[0]).exists():
                self._coming[reference] = self._pool.submit(self._bring, reference)

    def take(self, subject: Subject) -> None:
        """Wait until what `subject` needs is there; what cannot be had, the job itself finds out and tells."""
        self.fetch(subject)
        for reference in _references(subject):
            if reference in self._coming:
                self._coming[reference].exception()

    def put_back(self, subject: Subject, later: Sequence[Subject]) -> None:
        """Delete what no later subject needs, if this study brought it and `--clean` was given."""
        needed = {reference for each in later for reference in _references(each)}
        for reference in self._brought - needed:
            self._brought.remove(reference)
            with suppress(OSError):
                forget(reference)

    def _bring(self, reference: str) -> Checkpoint:
        if self._config.clean and not is_cached(reference):
            self._brought.add(reference)
        return resolve(reference, remote_code=self._config.remote_code)


def _references(subject: Subject) -> list[str]:
    members = subject.average.models if subject.average else [subject.point.reference]
    return [*members, *([subject.previous.reference] if subject.previous else [])]
