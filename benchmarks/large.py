"""Section `large`: a product and its memory at the size of Pythia-160m, with random weights."""

from __future__ import annotations

import argparse
import gc

from memory import memory_table
from problem import LARGE, compare, peak_rate, problem_of, say
from products import cost_recomputing, cost_reverse

from landscape.curvature import Hessian


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
    for name, objective, cost in (
        ("reverse, graphs built each time", problem.objective, cost_reverse),
        ("reverse, recomputing blocks", problem.recomputed, cost_recomputing),
    ):
        for k in (1, 2 if args.quick else 8):
            operator, v = Hessian(objective, problem.weights, keep=False), problem.rows(k).T
            found = compare(problem, lambda op=operator, v=v: op @ v, repeats, per=k, warm=not args.quick)
            share = cost(k) * flops / found.item / peak
            say(
                f"  {f'{name}, k={k}':<39}{found} {found.item:8.2f} s, "
                f"gradient {found.gradient:.2f} s  {share:4.0%} of peak"
            )
