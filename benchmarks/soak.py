"""The soak: jobs killed, starved of disk, raced and fed damaged files for some minutes, and a table of what came out.

    make soak                                   ten minutes, all cases, on all cores
    make soak ARGS='--minutes 60 --seed 1'
    make soak ARGS='--jobs train --cases kills'

Nothing that was stored may be lost, and no number may come out different: else the exit code is 1, and each failure is
told in a line with the seed that repeats it (`--seed N --jobs NAME --cases NAME --rounds 1`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

import soak_damage
import soak_faults
import soak_jobs
import soak_kills
from several import several
from soak_kills import Tally, Undisturbed

KILLS, READ = "kills", "damaged files, read"
CASES = {
    KILLS: soak_kills.chain,
    "clock jumps": soak_faults.clock_jumps,
    "two processes": soak_faults.two_processes,
    "disk full": soak_faults.disk_full,
    "read-only disk": soak_faults.read_only,
    "damaged files, gone on from": soak_damage.resume_damaged,
    "a rank dies": soak_faults.dead_ranks,
}
RANKED = ("slice-adaptive", "train")  # jobs that run under torchrun
COLUMNS = ("cases", "kills", "resumed", "found", "harmless", "lost", "wrong")
Row = tuple[str, str]
Known = dict[str, Undisturbed]


def rows(jobs: Iterable[str], cases: Iterable[str]) -> list[Row]:
    """(case, job or kind of file) of the table, kills first."""
    jobs, cases = list(jobs), list(cases)
    found = [(case, job) for case in CASES if case in cases for job in jobs if case != "a rank dies" or job in RANKED]
    if READ in cases:
        found += [(READ, name) for name, (job, *_) in soak_damage.READERS.items() if job in jobs]
    return found


def turns(table: list[Row]) -> Iterator[tuple[int, Row]]:
    """(seed, row) without end: three turns of kills to one of the rest."""
    for number in count():
        yield from ((number, row) for row in table if row[0] == KILLS or number % 3 == 0)


def prepare(world: soak_jobs.World, jobs: list[str]) -> Known:
    """The run and text that all work on, and every job undisturbed."""
    soak_kills.serve()
    process = multiprocessing.get_context("forkserver").Process(target=world.make)
    process.start()
    process.join()
    return {kind: soak_kills.undisturbed(kind, world, world.folder / "whole" / kind) for kind in jobs}


def one(row: Row, world: soak_jobs.World, known: Known, seed: int) -> Tally:
    """One turn of a row, in a folder of its own."""
    soak_kills.serve()
    case, job = row
    out = world.folder / f"try-{os.getpid()}-{CASES.get(case, soak_damage.read_damaged).__name__}-{job.split(',')[0]}"
    if case == READ:
        return soak_damage.read_damaged(job, world, out, seed)
    return CASES[case](job, world, out, known[job], seed)


def soak(
    table: list[Row], folder: Path, minutes: float, seed: int, workers: int, rounds: int | None
) -> dict[Row, Tally]:
    """Rows in turn until the time is up or each had so many `rounds`."""
    world = soak_jobs.World(folder)
    jobs = list(dict.fromkeys(soak_damage.READERS[job][0] if case == READ else job for case, job in table))
    tallies = {row: Tally() for row in table}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        known = pool.submit(prepare, world, jobs).result()
        until = time.monotonic() + 60 * minutes
        waiting: dict[Future[Tally], Row] = {}
        for number, row in turns(table):
            if time.monotonic() > until or (rounds is not None and number >= rounds):
                break
            waiting[pool.submit(one, row, world, known, seed * 1_000_000 + number)] = row
            while len(waiting) >= workers:
                ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    tallies[waiting.pop(future)] += future.result()
        for future, row in waiting.items():
            tallies[row] += future.result()
    return tallies


def shown(tallies: dict[Row, Tally]) -> Table:
    """A line a row, and the sums."""
    table = Table("fault", "job or file", *(f"[bold]{name}" for name in COLUMNS), "debris")
    total = Tally()
    for (case, job), tally in tallies.items():
        table.add_row(case, job, *(str(getattr(tally, name)) for name in COLUMNS), str(tally.left))
        total += tally
    table.add_section()
    table.add_row("all", "", *(str(getattr(total, name)) for name in COLUMNS), str(total.left))
    return table


def main() -> None:
    """Soak, and print the table."""
    names = {case.replace(", ", " "): case for case in (*CASES, READ)}  # a comma stands between two
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=several(soak_jobs.JOBS), default=list(soak_jobs.JOBS), help="with commas")
    parser.add_argument("--cases", type=several(names), default=list(names), help="with commas")
    parser.add_argument("--rounds", type=int, help="end after so many of each, before the time is up")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    table = rows(args.jobs, [names[name] for name in args.cases])
    if not table:
        parser.error(f"--cases {','.join(args.cases)}: none of them is of {', '.join(args.jobs)}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tallies = soak(table, Path(folder), args.minutes, args.seed, args.workers, args.rounds)
    console = Console(width=120)
    console.print(shown(tallies))
    failures = [line for tally in tallies.values() for line in tally.failures]
    for line in failures:
        console.print(line, markup=False)
    verdict = "nothing lost, nothing wrong" if not failures else f"{len(failures)} failures"
    console.print(f"{time.monotonic() - began:.0f} s on {args.workers} cores, seed {args.seed}: {verdict}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
