"""Run the controlled experiments at one size: train, measure, judge every claim, draw, write docs/lab.md.

    make lab SIZE=tiny                     experiments A, B and C
    make lab SIZE=small EXPERIMENTS=ABCDG

Several runs go at a time, a fork once the run it comes from is complete. Killed, the same command goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from analyses.lab import report
from analyses.lab.experiments import EXPERIMENTS
from analyses.lab.plan import Plan, Planned
from analyses.lab.sizes import SIZES
from analyses.lab.worker import INDEX, index_of
from landscape.training.run import Run

_EVALUATION = 30  # what measuring one checkpoint takes, in updates of the tiny recipe; for the bar alone


def done(folder: Path, run: Planned) -> float:
    """How far a run is, in updates."""
    total = work_of(run)
    if index_of(folder, run.name).exists():
        return total
    rows = Run(folder / run.name).rows()
    trained = rows[-1]["step"] - run.begun if rows else 0
    progress = folder / INDEX / f".{run.name}.progress"
    return min(total, trained + _EVALUATION * int(progress.read_text() if progress.exists() else 0))


def work_of(run: Planned) -> float:
    """What a run takes, in updates."""
    return run.steps - run.begun + _EVALUATION * (len(run.measured) + len(run.lawas))


def go(plan: Plan, size: str, letters: str, folder: Path, jobs: int) -> None:
    """Train and measure all runs of the plan, `jobs` at a time; the first failure ends it."""
    waiting = {run.name: run for run in plan.runs.values() if not index_of(folder, run.name).exists()}
    threads = max(1, (os.cpu_count() or 1) // jobs)
    surroundings = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    running: dict[str, subprocess.Popen[bytes]] = {}
    total = sum(work_of(run) for run in plan.runs.values())
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()) as bar:
        task = bar.add_task("lab", total=total)
        try:
            while waiting or running:
                ready = [run for run in waiting.values() if run.fork is None or index_of(folder, run.fork[0]).exists()]
                ready.sort(key=lambda run: -_ahead(run, waiting))
                for run in ready[: jobs - len(running)]:
                    log = folder / f"{run.name}.log"
                    with open(log, "wb") as file:
                        command = [sys.executable, "-m", "analyses.lab.worker", size, letters, run.name, str(folder)]
                        running[run.name] = subprocess.Popen(
                            command, stdin=subprocess.PIPE, stdout=file, stderr=file, env=surroundings
                        )
                    del waiting[run.name]
                time.sleep(1)
                for name, process in list(running.items()):
                    if process.poll() is not None:
                        del running[name]
                        if process.returncode:
                            said = (folder / f"{name}.log").read_text().strip().splitlines()
                            sys.exit(f"lab: {name} failed: {said[-1] if said else process.returncode}")
                bar.update(
                    task,
                    completed=sum(done(folder, run) for run in plan.runs.values()),
                    description=", ".join(running) or "lab",
                )
        finally:
            for process in running.values():
                process.terminate()


def _ahead(run: Planned, waiting: dict[str, Planned]) -> float:
    """Its own work and that of its forks: what should begin first."""
    return work_of(run) + sum(work_of(each) for each in waiting.values() if each.fork and each.fork[0] == run.name)


def main() -> None:
    """Run, judge, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--experiments", default="ABC", help=f"some of {''.join(EXPERIMENTS)}")
    parser.add_argument("--out", type=Path, default=None, help="default: runs/lab-SIZE")
    parser.add_argument("--jobs", type=int, default=None, help="runs at a time; default: 1 on a GPU, else one a core")
    parser.add_argument("--results", type=Path, default=Path(), help="where docs/lab.md, data/lab and figures/ lie")
    args = parser.parse_args()
    unknown = [letter for letter in args.experiments if letter not in EXPERIMENTS]
    if unknown:
        parser.error(f"experiments {args.experiments}: expected some of {''.join(EXPERIMENTS)}")
    if args.jobs is not None and args.jobs < 1:
        parser.error(f"jobs {args.jobs}: expected at least 1")
    size = SIZES[args.size]
    folder = args.out or Path("runs") / f"lab-{size.name}"
    (folder / INDEX).mkdir(parents=True, exist_ok=True)
    jobs = args.jobs or (1 if torch.cuda.is_available() else os.cpu_count() or 1)
    plan = size.plan(args.experiments)
    go(plan, size.name, args.experiments, folder, jobs)
    report.write(plan, size, args.experiments, folder, Console(), args.results)


if __name__ == "__main__":
    main()
