"""Processes that read damaged files, watched: one that dies, hangs or takes too much memory is named and replaced."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import re
import resource
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_targets import Target
from landscape.errors import LandscapeError
from landscape.storage.digests import SUMS

READ, REFUSED, UNNAMED, CRASH, HANG, MEMORY = "read", "refused", "unnamed", "crash", "hang", "memory"
OUTCOMES = (READ, REFUSED, UNNAMED, CRASH, HANG, MEMORY)
_TICK = 0.5  # seconds between two looks at most
_RENEWED = 3000  # inputs a process reads before another takes its place, so that what it keeps cannot add up
_NO_MEMORY = ("unable to allocate", "can't allocate memory", "out of memory", "bad_alloc", "enough memory")
_HARD = 4 << 30  # bytes beyond which a process is refused more
_FORK: Any = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Limits:
    """Of one input: seconds, and bytes beyond what the process has when it begins."""

    seconds: float = 30.0
    memory: int = 512 << 20


@dataclass(frozen=True)
class Failure:
    """An input that was not read or refused as it should be, and what happened."""

    target: str
    index: int
    outcome: str
    what: str


Heard = Failure | tuple[str, int] | None


class Fuzzer:
    """Damaged files of every target, the same for the same seed."""

    def __init__(self, seeds: Path, scratch: Path, seed: int, limits: Limits) -> None:
        self.seeds, self.scratch, self.seed, self.limits = seeds, scratch, seed, limits

    def made(self, target: Target, index: int) -> tuple[Path, bytes]:
        """The seed of input `index`, and its damaged bytes."""
        rng = random.Random(f"{self.seed}/{target.name}/{index}")
        files = sorted(path for pattern in target.seeds for path in self.seeds.glob(pattern))
        chosen = rng.choice(files)
        return chosen, target.damage(rng, chosen.read_bytes())

    def place(self, target: Target, index: int, below: Path) -> Path:
        """Input `index` as a file, where its seed would lie if a folder in `below` were that of the seeds."""
        seed, content = self.made(target, index)
        path = below / seed.stem / seed.relative_to(self.seeds)
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            if target.beside:
                sums = shutil.ignore_patterns(SUMS)  # which a stranger's checkpoint has not
                shutil.copytree(seed.parent, path.parent, dirs_exist_ok=True, ignore=sums)
        path.unlink(missing_ok=True)  # a mapping of the one before stays as it is
        path.write_bytes(content)
        return path

    def outcome(self, target: Target, path: Path) -> tuple[str, str]:
        """What reading `path` comes to, and what was said."""
        try:
            target.read(self.seeds, path)
        except LandscapeError as error:
            if _wanted_memory(error):
                return MEMORY, traceback.format_exc()
            named = any(name in str(error) for name in target.named(path))
            return (REFUSED, "") if named else (UNNAMED, str(error))
        except BaseException as error:
            return MEMORY if _wanted_memory(error) else CRASH, traceback.format_exc()
        return READ, ""

    def run(self, target: Target, indices: Sequence[int]) -> Iterator[Heard]:
        """(outcome, how many) and failures, as they come; None as long as there is nothing to tell."""
        first = 0
        while first < len(indices):
            worker = _Worker(self, target, indices[first : first + _RENEWED])
            yield from worker.watch()
            first += worker.done

    def work(self, target: Target, indices: Sequence[int], state: Any, to: Any) -> None:
        """In a process of its own: read the inputs, one after the other."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        below = self.scratch / f"{target.name.replace(' ', '-')}-{os.getpid()}"
        held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (held + _HARD, held + _HARD))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for place, index in enumerate(indices):
            state[0], state[1] = place, time.monotonic_ns()
            path = self.place(target, index, below)
            before = _reset_peak()
            outcome, what = self.outcome(target, path)
            if (used := _peak() - before) > self.limits.memory:
                outcome, what = MEMORY, f"{used} bytes at most, {outcome} {what}"
            state[2 + OUTCOMES.index(outcome)] += 1
            if outcome not in (READ, REFUSED):
                to.send(Failure(target.name, index, outcome, what))
        state[0] = len(indices)
        shutil.rmtree(below, ignore_errors=True)
        os._exit(0)  # what torch and HDF5 would do at the end is no part of this


class _Worker:
    """A process, what it has done so far, and how it ended."""

    def __init__(self, fuzzer: Fuzzer, target: Target, indices: Sequence[int]) -> None:
        self._fuzzer, self._target, self._indices = fuzzer, target, indices
        self._state = _FORK.RawArray(ctypes.c_int64, 2 + len(OUTCOMES))
        self._state[1] = time.monotonic_ns()
        self._from, to = _FORK.Pipe(duplex=False)
        self._process = _FORK.Process(target=fuzzer.work, args=(target, indices, self._state, to))
        self.done = 0
        self._process.start()
        to.close()

    def watch(self) -> Iterator[Heard]:
        """What comes of its inputs, until it ends or is ended."""
        hung, seen, waited, last = False, 0, 0.0, time.monotonic()
        while self._process.is_alive():
            yield from self._heard()
            yield None
            now = time.monotonic()  # what passes while all of this is stopped does not count
            waited = waited + min(now - last, _TICK) if self._state[1] == seen else 0.0
            seen, last = self._state[1], now
            if waited > self._fuzzer.limits.seconds:
                hung = True
                self._process.kill()
                self._process.join()
        yield from self._heard()
        self.done = self._state[0]
        yield from ((outcome, self._state[2 + i]) for i, outcome in enumerate(OUTCOMES))
        if self.done < len(self._indices):  # it ended before its last input did
            outcome, what = (HANG, "") if hung else (CRASH, f"exit code {self._process.exitcode}")
            yield outcome, 1
            yield Failure(self._target.name, self._indices[self.done], outcome, what)
            self.done += 1

    def _heard(self) -> Iterator[Failure]:
        try:
            while self._from.poll():
                yield self._from.recv()
        except EOFError:
            return


def _wanted_memory(error: BaseException | None) -> bool:
    """Whether somewhere in the chain of errors memory was refused."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        said = str(error).lower()
        if isinstance(error, MemoryError) or any(words in said for words in _NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def _reset_peak() -> int:
    """Bytes of memory that this process has; the peak begins anew from there."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """Bytes of memory that this process had at most."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])  # type: ignore[index]
