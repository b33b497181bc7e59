"""Section `memory`: the peak of one call over that of a gradient, each in a process of its own.

That process is this file, run with what it is to measure as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import peers
from landscape.curvature import Budget, DifferenceHessian, GaussNewton, Hessian, trace_by_losses
from problem import Problem, problem_of, say, text

# What is measured: a problem and V (k rows) to something.
ITEMS: dict[str, Callable[[Problem, Tensor], object]] = {
    "gradient": lambda p, v: p.gradient(),
    "reverse, keep=False": lambda p, v: Hessian(p.objective, p.weights, keep=False) @ v.T,
    "reverse, keep=True": lambda p, v: Hessian(p.objective, p.weights, keep=True) @ v.T,
    "reverse, recomputing, keep=False": lambda p, v: Hessian(p.recomputed, p.weights, keep=False) @ v.T,
    "reverse, recomputing, keep=True": lambda p, v: Hessian(p.recomputed, p.weights, keep=True) @ v.T,
    "forward": lambda p, v: Hessian(p.objective, p.weights, product="forward") @ v.T,
    "Gauss-Newton, keep=False": lambda p, v: GaussNewton(p.objective, p.weights, keep=False) @ v.T,
    "differences": lambda p, v: DifferenceHessian(p.objective, p.weights) @ v.T,
    "losses, one round": lambda p, v: trace_by_losses(p.objective, p.weights, budget=Budget(0.0, 2, 2)),
    "PyHessian": lambda p, v: peers.pyhessian_product(p.model, p.data)(v[0]),
}


def memory_section(name: str, args: argparse.Namespace) -> None:
    problem_of(name, args)  # trained here where it was not yet, and not where memory is measured
    every = [(item, k) for item in ITEMS for k in ((1, 8) if "keep=" in item else (1,))]
    if args.quick:
        every = [(item, k) for item, k in every if item == "gradient" or "keep=" in item]
    for size in (2,) if args.quick else (2, 8):
        memory_table(name, every, args, size)
    say()


def memory_table(name: str, wanted: Iterable[tuple[str, int]], args: argparse.Namespace, size: int = 2) -> None:
    """Lines of items with k vectors each, over the first of them."""
    shape = f"{len(text(args)) // size} micro-batches of {size} windows"
    say(f"memory, {name}, {shape}: peak of one call over that of a gradient")
    unit = 0
    for item, k in wanted:
        found = measured({"name": name, "item": item, "k": k, "size": size}, args)
        if isinstance(found, str):
            say(f"  {item:<34} k={k} {found}")
            continue
        unit = unit or found
        say(f"  {item:<34} k={k} {found / 2**20:8.0f} MiB {found / unit:7.2f}")


def measured(wanted: dict[str, object], args: argparse.Namespace) -> int | str:
    """Bytes, from another process with an allocator that gives back what is freed; or why it did not work."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    asked = {**wanted, "device": args.device, "quick": args.quick, "threads": torch.get_num_threads()}
    command = [sys.executable, __file__, json.dumps(asked)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.splitlines() or ["killed"])[-1]
        return peers.MISSING if "ModuleNotFoundError" in why else why
    return int(done.stdout.split()[-1])


def measure(problem: Problem, item: str, k: int) -> int:
    """The bytes that one call adds at its peak: made operator, result and all, but not V."""
    rows = problem.rows(k)
    tiny = problem.cut[0].ids[:1, :8]
    cross_entropy(problem.model(input_ids=tiny, use_cache=False).logits[0, :-1], tiny[0, 1:]).backward()
    problem.model.zero_grad(set_to_none=True)  # only so that libraries are loaded
    gc.collect()
    if problem.device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
    held = ITEMS[item](problem, rows)
    after = torch.cuda.max_memory_allocated() if problem.device.startswith("cuda") else resident("VmHWM")
    del held
    return after - before


def resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main() -> None:
    args = argparse.Namespace(**json.loads(sys.argv[1]))
    torch.set_num_threads(args.threads)
    say(str(measure(problem_of(args.name, args, args.size), args.item, args.k)))


if __name__ == "__main__":
    main()
