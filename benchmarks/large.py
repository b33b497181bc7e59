"""Section `large`: a product and its memory at the size of Pythia-160m, with random weights."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable

import peers
from landscape.curvature import Hessian
from memory import memory_table
from problem import LARGE, compare, peak_rate, problem_of, say, told
from products import cost_recomputing, cost_reverse


def large_section(args: argparse.Namespace) -> None:
    time_products(args)
    gc.collect()  # the model, before others are made
    wanted = ("gradient", "reverse, keep=False", "reverse, recomputing, keep=False")
    memory_table(LARGE, [(item, 1) for item in wanted], args)
    say()


def time_products(args: argparse.Namespace) -> None:
    problem = problem_of(LARGE, args)
    repeats = 1 if args.quick else min(3, args.repeats)
    flops, peak = problem.flops(), peak_rate(args.device)
    shape = "Pythia-160m made small" if args.quick else "Pythia-160m"
    say(f"large, {shape}, random: {problem.n:,} parameters, time per vector over one gradient")
    problem.gradient()  # the first one waits for memory

    def line(name: str, item: Callable[[], object], k: int, cost: float) -> None:
        found = compare(problem, item, repeats, per=k, warm=False)
        share = cost * flops / found.item / peak
        say(f"  {name:<39}{found} {found.item:8.2f} s, gradient {found.gradient:.2f} s  {share:4.0%} of peak")

    many = 2 if args.quick else 8
    for name, objective, cost, counts in (
        ("reverse, graphs built each time", problem.objective, cost_reverse, (1, many)),
        ("reverse, recomputing blocks", problem.recomputed, cost_recomputing, (1,)),
    ):
        for k in counts:
            operator, v = Hessian(objective, problem.weights, keep=False), problem.rows(k).T
            line(f"{name}, k={k}", lambda op=operator, v=v: op @ v, k, cost(k))

    def peer() -> None:
        product, v = peers.eigenthings_product(problem.model, problem.data), problem.rows(1)[0]
        line("hessian-eigenthings, k=1", lambda: product(v), 1, 3)

    told("hessian-eigenthings, k=1", peer)
