"""What else befalls a job: a full disk, a place that cannot be written, clocks that jump, a second process, dead ranks.

The first two happen on a small file system of its own, in a mount namespace that dies with its process; it takes root.
"""

from __future__ import annotations

import ctypes
import datetime as dates
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import soak_jobs
from landscape.errors import LandscapeError
from landscape.reporting import Silent
from landscape.storage.files import turn
from soak_kills import BROKEN, PATIENCE, REFUSED, Tally, Undisturbed, begin, chain, compare, finish, last_line, quietly

CLONE_NEWNS = 0x00020000
NOT_HERE = 4  # exit code where no file system can be mounted
ENOUGH = 1 << 16  # KiB
YEARS = 10 * 365 * 86400.0


def clock_jumps(kind: str, world: Any, out: Path, known: Undisturbed, seed: int) -> Tally:
    """Killed and resumed as ever, while the wall clock is ten years off, another way each time it is read."""
    return chain(kind, world, out, known, seed, around=jumping)


@contextmanager
def jumping() -> Iterator[None]:
    """Every reading of the wall clock is wrong."""
    real, draw = time.time, random.Random(os.getpid())

    def wrong() -> float:
        return real() + draw.uniform(-YEARS, YEARS)

    class Jumping(dates.datetime):
        @classmethod
        def now(cls, tz: dates.tzinfo | None = None) -> Any:
            return dates.datetime.fromtimestamp(wrong(), tz)

    time.time = wrong
    time.time_ns = lambda: int(1e9 * wrong())
    for name, module in list(sys.modules.items()):
        if name.startswith("landscape") and getattr(module, "datetime", None) is dates.datetime:
            module.datetime = Jumping  # type: ignore[attr-defined]
    yield


def two_processes(kind: str, world: Any, out: Path, known: Undisturbed, seed: int) -> Tally:
    """Two at once: one does it, the other is told so or finds it done; in half of the cases the first is killed."""
    draw, tally = random.Random(f"two {kind} {seed}"), Tally()
    soak_jobs.remove(out)
    folders = [out.with_name(f"{out.name}-{which}") for which in ("first", "second")]
    first = begin(kind, world, out, folders[0])
    time.sleep(draw.uniform(0, known.seconds))
    second = begin(kind, world, out, folders[1])
    if draw.random() < 0.5:
        time.sleep(draw.uniform(0, known.seconds / 2))
        first.kill()
    ends = [finish(process, folder) for process, folder in zip((first, second), folders, strict=True)]
    for end in ends:
        told = end.code == REFUSED and "another process" in end.said
        tally.found += told
        tally.kills += end.code == -signal.SIGKILL
        if end.code not in (0, -signal.SIGKILL) and not told:
            tally.fail(f"two processes, {kind}, seed {seed}: {last_line(end.said)}")
    if all(end.code for end in ends):  # the one was killed after it had turned the other away
        tally.resumed += 1
        last = finish(begin(kind, world, out, folders[0]), folders[0])
        if last.code:
            tally.fail(f"two processes, {kind}, seed {seed}: {last_line(last.said)}")
            return tally
    compare(kind, out, known, seed, tally)
    soak_jobs.remove(out)
    return tally


def disk_full(kind: str, world: Any, out: Path, known: Undisturbed, seed: int) -> Tally:
    """On a disk that is full at a random point; each time there is twice as much room, until it is enough."""
    return _on_small_disk(kind, world, out, known, seed, read_only=False)


def read_only(kind: str, world: Any, out: Path, known: Undisturbed, seed: int) -> Tally:
    """Half done, on a disk that can only be read; then it can be written again."""
    return _on_small_disk(kind, world, out, known, seed, read_only=True)


def _on_small_disk(kind: str, world: Any, out: Path, known: Undisturbed, seed: int, read_only: bool) -> Tally:
    tally, scratch = Tally(), out.with_name(f"{out.name}-scratch")
    soak_jobs.remove(out)
    scratch.mkdir(exist_ok=True)
    (scratch / "refusals").unlink(missing_ok=True)
    whole = sum(path.stat().st_size for path in (world.folder / "whole" / kind).rglob("*") if path.is_file())
    size = random.Random(f"disk {kind} {seed}").randint(4, max(5, whole // 2048))  # KiB, at most half of what it takes
    process = multiprocessing.get_context("forkserver").Process(
        target=_fill_disk, args=(kind, world, out, scratch, size, read_only)
    )
    process.start()
    ended = finish(process, scratch)
    refusals = (scratch / "refusals").read_text().splitlines() if (scratch / "refusals").exists() else []
    tally.found, tally.resumed = len(refusals), len(refusals)
    if ended.code == NOT_HERE:
        return Tally()
    if ended.code or not refusals:
        tally.fail(f"{'read-only' if read_only else 'disk full'}, {kind}, seed {seed}: {last_line(ended.said)}")
        return tally
    compare(kind, out, known, seed, tally)
    soak_jobs.remove(out)
    return tally


def _fill_disk(kind: str, world: Any, out: Path, scratch: Path, size: int, read_only: bool) -> None:
    """The process: the job on a small disk of its own, over and over until there is room; then a copy of all."""
    quietly()
    disk = scratch / "disk"
    disk.mkdir(exist_ok=True)
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) or not (
        _mount("--make-rprivate", "/") and _mount("-t", "tmpfs", "-o", f"size={size}k", "none", str(disk))
    ):
        os._exit(NOT_HERE)
    said, code = "", 0
    try:
        with open(scratch / "refusals", "w", encoding="utf-8") as refusals:
            if read_only:
                with suppress(LandscapeError):  # half done
                    soak_jobs.JOBS[kind].run(world, disk / "job", Silent())
                _mount("-o", "remount,ro", str(disk))
            while True:
                try:
                    soak_jobs.JOBS[kind].run(world, disk / "job", Silent())
                    break
                except LandscapeError as error:
                    if ("cannot be written" if read_only else "the disk is full") not in str(error):
                        raise
                    print(error, file=refusals, flush=True)
                size = ENOUGH if read_only else 2 * size
                if not _mount("-o", f"remount,rw,size={size}k", str(disk)):
                    raise RuntimeError("cannot remount")
        shutil.copytree(disk / "job", out, dirs_exist_ok=True)
    except BaseException:
        said, code = traceback.format_exc(), BROKEN
    (scratch / "said").write_text(f"0\n{said}", encoding="utf-8")
    os._exit(code)


def _mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


def dead_ranks(kind: str, world: Any, out: Path, known: Undisturbed, seed: int) -> Tally:
    """Under torchrun, one of two processes is killed at a random moment; the others are started again and go on."""
    draw, tally = random.Random(f"rank {kind} {seed}"), Tally()
    soak_jobs.remove(out)
    out.mkdir()
    whole = world.folder / "whole" / f"{kind}-ranks"
    with turn(whole):  # once for all
        took = whole.with_suffix(".seconds")
        if not took.exists():
            whole.mkdir()
            began = time.monotonic()
            if _torchrun(kind, world, whole).wait(PATIENCE):
                tally.fail(f"dead ranks, {kind}: does not run under torchrun at all")
                return tally
            took.write_text(str(time.monotonic() - began))
        seconds = float(took.read_text())
    process = _torchrun(kind, world, out)
    time.sleep(draw.uniform(0.3, 1.0) * seconds)
    if ranks := _children(process.pid):
        os.kill(draw.choice(ranks), signal.SIGKILL)
        tally.kills += 1
    if process.wait(PATIENCE):
        tally.fail(f"dead ranks, {kind}, seed {seed}: did not go on")
        return tally
    tally.resumed += tally.kills
    results = [soak_jobs.JOBS[kind].result(folder) for folder in (whole, out)]
    places = soak_jobs.differing(*results)
    tally.cases, tally.wrong = 1, len(places)
    if places:
        tally.fail(f"dead ranks, {kind}, seed {seed}: differs in {', '.join(places[:3])}")
    soak_jobs.remove(out)
    return tally


def _torchrun(kind: str, world: Any, out: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
    words += ["--standalone", str(Path(__file__).with_name("soak_rank.py")), kind, str(world.folder), str(out)]
    own = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # else a restarted rank may ask where a dead one was
    return subprocess.Popen(words, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _children(parent: int) -> list[int]:
    """Processes that `parent` started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return sorted(found)
