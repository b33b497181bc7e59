"""Damaged and hostile files, by the hundred thousand, read by the functions that the suite reads files with.

    make fuzz ARGS='--inputs 100000 --seed 0'
    python benchmarks/fuzz.py --only slice,recipe --inputs 5000 --keep failures
    python benchmarks/fuzz.py --replay 'slice:4711' --seed 0

Real results, checkpoints and recipes of a tiny model are made first, then damaged: bits, lengths and pieces of any
file, and what JSON, YAML, HDF5 and safetensors say. An input is *read*, or *refused* by an error of the suite in one
line that names it. Everything else is a failure: *unnamed* (refused, but not by name), *crash* (another error, or a
signal), *hang* (beyond a limit in seconds) and *memory* (the process was refused what it asked for beyond a limit).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}

import transformers
from rich.console import Console
from rich.table import Table

from fuzz_seeds import make
from fuzz_targets import TARGETS, Target, warm
from fuzz_workers import OUTCOMES, READ, REFUSED, Failure, Fuzzer, Heard, Limits
from several import several


def main() -> int:
    """The number of failures, at most 1."""
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    options = _options()
    targets = [target for target in TARGETS if target.name in options.only]
    with tempfile.TemporaryDirectory(prefix="landscape-fuzz-") as passing:
        seeds = options.seeds or Path(passing) / "seeds"
        if not seeds.exists():
            seeds.mkdir(parents=True)
            make(seeds)
        warm()
        fuzzer = Fuzzer(seeds, Path(passing), options.seed, Limits(options.seconds, options.memory << 20))
        if options.replay:
            name, _, index = options.replay.rpartition(":")
            target = next(target for target in TARGETS if target.name == name)
            path = fuzzer.place(target, int(index), Path(passing) / "replayed")
            target.read(seeds, path)
            return 0
        return _all(fuzzer, targets, options.inputs, options.keep, options.jobs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    names = [target.name for target in TARGETS]
    parser.add_argument("--only", type=several(names), default=names, help="targets, with commas")
    parser.add_argument("--seconds", type=float, default=30.0, help="longest time of one input")
    parser.add_argument("--memory", type=int, default=512, help="MiB that one input may ask for")
    parser.add_argument("--seeds", type=Path, help="folder of whole files; made there if it is not there")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that failed")
    parser.add_argument("--replay", help="TARGET:INDEX, read in this process")
    options = parser.parse_args()
    name, _, index = (options.replay or f"{names[0]}:0").rpartition(":")
    if name not in names or not index.isdecimal():
        parser.error(f"--replay {options.replay}: expected TARGET:INDEX, with a target out of {', '.join(names)}")
    return options


def _all(fuzzer: Fuzzer, targets: list[Target], inputs: int, keep: Path | None, jobs: int) -> int:
    shares = sum(target.share for target in targets)
    total: Counter[str] = Counter()
    columns = ("target", "inputs", *OUTCOMES)
    table = Table(*columns)
    waiting = [(each, fuzzer.run(each, range(math.ceil(inputs * each.share / shares)))) for each in targets]
    running: list[tuple[Target, Iterator[Heard]]] = []
    counts: dict[str, Counter[str]] = {target.name: Counter() for target in targets}
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(waiting.pop(0))
        for target, found in list(running):
            heard = next(found, "ended")
            if heard == "ended":
                running.remove((target, found))
                print(f"{target.name}: {dict(counts[target.name])}", flush=True)
            elif isinstance(heard, Failure):
                _tell(fuzzer, target, heard, keep)
            elif heard is not None:
                counts[target.name][heard[0]] += heard[1]
        time.sleep(0.005)
    for name, own in counts.items():
        total += own
        _row(table, name, own)
    _row(table, "all", total)
    Console(width=120).print(table)
    return int(any(total[outcome] for outcome in OUTCOMES if outcome not in (READ, REFUSED)))


def _row(table: Table, name: str, counts: Counter[str]) -> None:
    table.add_row(name, f"{counts.total():,}", *(f"{counts[each]:,}" for each in OUTCOMES))


def _tell(fuzzer: Fuzzer, target: Target, failure: Failure, keep: Path | None) -> None:
    print(f"{failure.outcome.upper()} --replay '{failure.target}:{failure.index}'\n{failure.what}", file=sys.stderr)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        seed, content = fuzzer.made(target, failure.index)
        (keep / f"{failure.target.replace(' ', '-')}-{failure.index}{seed.suffix}").write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
