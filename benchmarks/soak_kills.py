"""Kill a job at random moments until it has ended, then compare: what was lost on the way, what came out different.

A job runs in a process of its own, forked from a server that has everything imported. It dies by SIGKILL: either by
its own hand, at an event drawn beforehand (progress of any kind; a file opened for writing, renamed or removed), or by
ours, after a time drawn beforehand. Both are spread over the whole run.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import soak_jobs

MOST = 6  # kills before a job may end
PATIENCE = 300.0  # seconds; a job that takes longer hangs
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
REFUSED, BROKEN = 2, 3  # exit codes of a job


@dataclass
class Tally:
    """What was counted.

    Attributes:
        cases: ends that were compared.
        kills: processes that died by SIGKILL.
        resumed: starts that found something to go on with.
        found: damages and refusals that ended in one line that names the file.
        harmless: damages after which the numbers were the same.
        lost: results that had been stored, and vanished or were made again.
        wrong: results that differ from those of an undisturbed run.
        left: files that should have been cleared away.
        failures: what went wrong, a line each.
    """

    cases: int = 0
    kills: int = 0
    resumed: int = 0
    found: int = 0
    harmless: int = 0
    lost: int = 0
    wrong: int = 0
    left: int = 0
    failures: list[str] = field(default_factory=list)

    def __iadd__(self, other: Tally) -> Tally:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self

    def fail(self, line: str) -> None:
        """Note what went wrong."""
        self.failures.append(line)

    @property
    def good(self) -> bool:
        """Whether nothing was lost and nothing came out wrong."""
        return not (self.lost or self.wrong or self.failures)


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: the signal), events, counted calls, and what it said."""

    code: int
    events: int
    calls: int
    said: str


@dataclass(frozen=True)
class Undisturbed:
    """A job that nobody killed: what it says, and how long it is."""

    result: dict[str, Any]
    seconds: float
    events: int
    calls: int


def serve() -> None:
    """Have processes forked from a server that imports the jobs once; torch and all else come with them."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    multiprocessing.get_context("forkserver").set_forkserver_preload(["soak_warm", "soak_kills"])


class Events:
    """A reporter that counts what happens, and ends the process by SIGKILL when `fatal` of it has happened."""

    def __init__(self, fatal: int | None) -> None:
        self.count, self._fatal = 0, fatal
        sys.addaudithook(self._heard)

    def event(self, *ignored: object) -> None:
        """One more."""
        self.count += 1
        if self.count == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def _heard(self, name: str, arguments: tuple[object, ...]) -> None:
        if name in _CHANGES or (name == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE):
            self.event()

    def stage(self, name: str) -> Callable[[int, int], None]:
        """A stage begins, and later goes on."""
        self.event()
        return self.event

    say = note = event


def quietly() -> None:
    """No output: not even what libraries print on their own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def work(kind: str, world: Any, out: Path, scratch: Path, fatal: int | None, around: Callable[..., Any] | None) -> None:
    """The process: one start of the job; `around` is what else is done to it."""
    import torch

    from landscape.errors import LandscapeError
    from landscape.objective import TokenCrossEntropy
    from landscape.training.optimizers import Updater

    torch.set_num_threads(1)
    quietly()
    counter = os.open(scratch / "calls", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            found = function(*arguments)
            os.write(counter, b".")
            return found

        return call

    TokenCrossEntropy.by_window = counted(TokenCrossEntropy.by_window)  # type: ignore[method-assign]
    Updater.step = counted(Updater.step)  # type: ignore[method-assign]
    said, code = "", 0
    events = Events(fatal)
    try:
        with around() if around else nullcontext():
            soak_jobs.JOBS[kind].run(world, out, events)
    except LandscapeError as error:
        said, code = str(error), REFUSED
    except BaseException:
        said, code = traceback.format_exc(), BROKEN
    (scratch / "said").write_text(f"{events.count}\n{said}", encoding="utf-8", errors="backslashreplace")
    os._exit(code)


def begin(
    kind: str, world: Any, out: Path, scratch: Path, fatal: int | None = None, around: Callable[..., Any] | None = None
) -> BaseProcess:
    """Start the job in a process of its own, which leaves in `scratch` what it has to say."""
    for folder in (out, scratch):
        folder.mkdir(exist_ok=True)
    for name in ("said", "calls"):
        (scratch / name).unlink(missing_ok=True)
    arguments = (kind, world, out, scratch, fatal, around)
    process = multiprocessing.get_context("forkserver").Process(target=work, args=arguments)
    process.start()
    return process


def finish(process: BaseProcess, scratch: Path, seconds: float | None = None) -> Ended:
    """Wait until it has ended, or kill it after `seconds`; one that takes far too long is killed and told of."""
    process.join(PATIENCE if seconds is None else seconds)
    hung = process.is_alive() and seconds is None
    if process.is_alive():
        process.kill()
        process.join()
    if hung:
        return Ended(BROKEN, 0, 0, f"hung for {PATIENCE:.0f} s")
    count, _, said = (scratch / "said").read_text().partition("\n") if (scratch / "said").exists() else ("0", "", "")
    calls = (scratch / "calls").stat().st_size if (scratch / "calls").exists() else 0
    return Ended(BROKEN if process.exitcode is None else process.exitcode, int(count), calls, said)


def start(
    kind: str,
    world: Any,
    out: Path,
    fatal: int | None = None,
    seconds: float | None = None,
    around: Callable[..., Any] | None = None,
) -> Ended:
    """Run the job once, to its end or to its death after `fatal` events or `seconds`."""
    scratch = out.with_name(f"{out.name}-scratch")
    return finish(begin(kind, world, out, scratch, fatal, around), scratch, seconds)


def undisturbed(kind: str, world: Any, out: Path) -> Undisturbed:
    """The job as it should be; its files stay."""
    out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    ended = start(kind, world, out)
    if ended.code:
        raise RuntimeError(f"{kind} does not run at all: {ended.said}")
    return Undisturbed(soak_jobs.JOBS[kind].result(out), time.monotonic() - began, ended.events, ended.calls)


def chain(
    kind: str, world: Any, out: Path, known: Undisturbed, seed: int, around: Callable[..., Any] | None = None
) -> Tally:
    """Kill the job up to MOST times, let it end, and compare with the undisturbed one."""
    job, draw, tally = soak_jobs.JOBS[kind], random.Random(f"{kind} {seed}"), Tally()
    soak_jobs.remove(out)
    before: dict[str, Any] = {}
    for left in reversed(range(draw.randint(1, MOST) + 1)):
        had = job.calls(out) if job.calls else 0
        ended = killed(kind, world, out, known, draw, around) if left else start(kind, world, out, around=around)
        tally.kills += ended.code == -signal.SIGKILL
        tally.resumed += bool(before)
        if ended.code not in (0, -signal.SIGKILL):
            tally.fail(f"{kind}, seed {seed}: {last_line(ended.said)}")
            return tally
        after = job.stored(out)
        gone = vanished(before, after)
        again = max(0, ended.calls - (known.calls - had)) if job.calls else 0
        if gone or again:
            tally.fail(f"{kind}, seed {seed}: lost {', '.join(gone[:3]) or 'none'}; {again} made again")
        tally.lost += len(gone) + again
        before = after
        if ended.code == 0:
            break
    compare(kind, out, known, seed, tally)
    soak_jobs.remove(out)
    return tally


def killed(
    kind: str,
    world: Any,
    out: Path,
    known: Undisturbed,
    draw: random.Random,
    around: Callable[..., Any] | None = None,
) -> Ended:
    """The job with a death drawn for it, which it may not live to see."""
    if draw.random() < 0.5:
        return start(kind, world, out, fatal=draw.randint(1, known.events), around=around)
    return start(kind, world, out, seconds=draw.uniform(0, known.seconds), around=around)


def vanished(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What had been stored and is gone or other than it was; a complete result needs no ledger."""
    needed = {name: value for name, value in before.items() if not ("complete" in after and name.startswith("ledger"))}
    return sorted(
        name
        for name, value in needed.items()
        if name not in after or soak_jobs.differing({"": value}, {"": after[name]})
    )


def compare(kind: str, out: Path, known: Undisturbed, seed: int, tally: Tally) -> None:
    """Count the places in which a finished job differs from the undisturbed one, and what it left behind."""
    places = soak_jobs.differing(known.result, soak_jobs.JOBS[kind].result(out))
    tally.cases += 1
    tally.wrong += len(places)
    if places:
        tally.fail(f"{kind}, seed {seed}: differs in {', '.join(places[:3])}")
    tally.left += len(soak_jobs.debris(out))


def last_line(said: str) -> str:
    """Of a traceback, what it comes to."""
    return (said.strip().splitlines() or ["died without a word"])[-1]
