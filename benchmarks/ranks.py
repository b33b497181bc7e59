"""Throughput of two ranks on two cores beside one process with two threads, and beside one thread.

Every job runs twice for each way, short and long, so that what start and finish take is taken away: seconds a piece of
work are the difference in time over the difference in work. The ways take turns, and the median over turns is printed.

    .venv/bin/python benchmarks/ranks.py --repeats 3 --only slice,trace
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from several import several

WAYS = {"1 process, 1 thread": (1, 1), "1 process, 2 threads": (1, 2), "2 ranks, 1 thread each": (2, 1)}
_REFERENCE = Path(__file__).parent.parent / "data" / "reference"
_MEASURED = f"{_REFERENCE / 'mini-pythia'}@6400 --text {_REFERENCE / 'corpus' / 'validation.jsonl.xz'} --tokens 4096"
_TOKENS = Path(__file__).parent / ".cache" / "tokens"  # so that only the first run tokenizes
_FILE = "--overwrite --out {out}/result.h5"
_SHARPNESS = f"sharpness {_MEASURED} {_FILE} --bottom 0 --density-steps 0 --rough none"


@dataclass(frozen=True)
class Job:
    """A command, and the option that says how much it does."""

    unit: str
    command: str
    option: str
    short: str
    long: str
    work: int  # units in which the two differ


JOBS = {
    "slice": Job("cells", f"slice {_MEASURED} {_FILE} --dense --quant rtn-w4-g64", "--grid ", "3x3", "11x11", 112),
    "trace": Job("probes", f"{_SHARPNESS} --tolerance 0.9 --trace-error 1e-9", "--max-probes ", "10", "60", 50),
    "λ_max": Job(
        "products", f"{_SHARPNESS} --max-probes 10 --trace-error 0.9 --tolerance 1e-9", "--max-products ", "4", "24", 20
    ),
    "training": Job(
        "steps",
        f"train {_REFERENCE / 'recipe.yaml'} --overwrite --out {{out}}/run --data {_TOKENS} keep=[]",
        "steps=",
        "20",
        "220",
        200,
    ),
}


def seconds(command: str, ranks: int, threads: int) -> float:
    """Wall time of a job, start and finish included."""
    start = [sys.executable, "-m"]
    if ranks > 1:
        start += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m"]
    began = time.monotonic()
    subprocess.run(
        [*start, "landscape", *command.split()],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )
    return time.monotonic() - began


def once() -> None:
    """What only a first run does: the text of the training runs becomes tokens."""
    with tempfile.TemporaryDirectory() as out:
        seconds(JOBS["training"].command.format(out=out) + " steps=1", 1, 2)


def rate(job: Job, ranks: int, threads: int) -> float:
    """Units a second."""
    with tempfile.TemporaryDirectory() as out:
        command = job.command.format(out=out) + " " + job.option
        short, long = (seconds(command + size, ranks, threads) for size in (job.short, job.long))
    return job.work / (long - short)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", type=several(JOBS), default=list(JOBS), help=f"of {', '.join(JOBS)}, with commas")
    args = parser.parse_args()
    print(
        "| a second | " + " | ".join(WAYS) + " | 2 ranks / 2 threads | 2 ranks / 1 thread |\n|---|---|---|---|---|---|"
    )
    if "training" in args.only:
        once()
    for name in args.only:
        turns = [[rate(JOBS[name], *way) for way in WAYS.values()] for _ in range(args.repeats)]
        one, two, ranks = (statistics.median(way) for way in zip(*turns, strict=True))
        found = [f"{each:.2f}" for each in (one, two, ranks, ranks / two, ranks / one)]
        print(f"| {name}, {JOBS[name].unit} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
