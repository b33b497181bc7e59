"""Section `trace`: what a trace to 1 % costs, from products, from losses and in other packages."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from torch import Tensor

import peers
from landscape.curvature import (
    Budget,
    Hessian,
    Krylov,
    LinearOperator,
    Trace,
    hutch_plus_plus,
    hutchinson,
    trace_by_losses,
    xtrace,
)
from problem import Problem, compare, say, told


class Whole(LinearOperator):
    """An operator that does not tell its parts: every batch gets the same probe."""

    def __init__(self, operator: LinearOperator) -> None:
        super().__init__(operator.n, operator.dtype, operator.device)
        self.operator = operator

    def _multiply(self, rows: Tensor) -> Tensor:
        return (self.operator @ rows.T).T


def spread(samples: np.ndarray) -> float:
    return float(samples.std(ddof=1) / abs(samples.mean()))


def trace_section(problem: Problem, args: argparse.Namespace) -> None:
    rounds = 4 if args.quick else 48
    say(f"trace, {problem.name}: spread of one round; gradients to a standard error of 1 %, from {rounds} rounds")
    operator = Hessian(problem.objective, problem.weights)
    apart, shared = rounds_table(problem, operator, Budget(0.0, 2, rounds), args)
    sketches(operator, apart, args)
    others(problem, shared, args)
    operator.release()
    check_traces(problem, args)
    say()


def rounds_table(problem: Problem, operator: Hessian, budget: Budget, args: argparse.Namespace) -> tuple[float, float]:
    """The spread of a round, with probes for each batch and with shared ones."""
    block = Budget(0.0, 2, 4 if args.quick else 8)
    krylov = Krylov.begin(operator.gradient())
    for _ in range(3 if args.quick else 10):
        krylov.extend(operator)
    unit = compare(problem, problem.gradient, args.repeats)
    losses, seconds = timed_losses(problem, budget)
    found = {
        "hutchinson, probes for each batch": hutchinson(operator, budget),
        "hutchinson, shared probes": hutchinson(Whole(operator), budget),
        f"hutchinson, deflated by {krylov.size}": hutchinson(operator, budget, deflate=krylov.basis),
        "second differences of losses": losses,
    }
    each = compare(problem, lambda: hutchinson(operator, block), args.repeats, per=block.maximum)
    say(f"  {'':<40}spread  rounds  gradients a round  gradients to 1 %")
    for name, trace in found.items():
        cost = seconds / unit.gradient if trace is losses else each.median
        line(name, spread(trace.samples), cost, krylov.size * cost if "deflated" in name else 0.0)
    apart, shared, *_ = found.values()
    return spread(apart.samples), spread(shared.samples)


def timed_losses(problem: Problem, budget: Budget) -> tuple[Trace, float]:
    """The trace from losses, and the seconds of a round."""
    stamps: list[float] = []

    def stamp(_: np.ndarray) -> None:
        problem.synchronize()
        stamps.append(time.perf_counter())

    trace = trace_by_losses(problem.objective, problem.weights, budget=budget, on_round=stamp)
    return trace, statistics.median(np.diff(stamps))


def line(name: str, spread: float, cost: float, extra: float = 0.0) -> None:
    """`cost` of a round, in gradients; `extra` once."""
    needed = (spread / 0.01) ** 2
    say(f"  {name:<40}{spread:6.1%}  {needed:6.0f}  {cost:17.2f}  {extra + needed * cost:16.0f}")


def sketches(operator: Hessian, apart: float, args: argparse.Namespace) -> None:
    for products in (12,) if args.quick else (48, 96):
        for name, method in (("Hutch++", hutch_plus_plus), ("XTrace", xtrace)):
            trace = method(operator, products)
            error = trace.standard_error / abs(trace.value)
            say(f"  {name}, {products} products: {trace.value:.5g}, standard error {error:.1%}")
        say(f"  hutchinson, {products} products: standard error {apart / products**0.5:.1%}, from the spread")


def others(problem: Problem, shared: float, args: argparse.Namespace) -> None:
    """They share probes between batches, and so our spread with shared ones is theirs."""
    probes, model, data = 2 if args.quick else 4, problem.model, problem.data
    for name, item in (("PyHessian", peers.pyhessian_trace), ("hessian-eigenthings", peers.eigenthings_trace)):

        def peer(name: str = name, item: Callable[..., None] = item) -> None:
            ratio = compare(problem, lambda: item(model, data, probes), args.repeats, per=probes)
            line(name, shared, ratio.median)

        told(name, peer)


def check_traces(problem: Problem, args: argparse.Namespace) -> None:
    """Really run to 1 %, and compare with a long run from other probes."""
    budget = Budget(0.01, 10, 10 if args.quick else 2000)
    long = None
    if not args.quick:
        operator = Hessian(problem.objective, problem.weights)
        long = hutchinson(operator, Budget(0.0, 2, 10 * args.seeds), seed=999)
        say(f"  reference, {10 * args.seeds} rounds: {long.value:.5g} ± {long.standard_error:.2g}")
    kept = []
    for name, run in (
        ("hutchinson", lambda: hutchinson(Hessian(problem.objective, problem.weights), budget)),
        ("losses", lambda: trace_by_losses(problem.objective, problem.weights, budget=budget)),
    ):
        ratio = compare(problem, lambda run=run: kept.append(run()), 1, warm=False)
        trace = kept[-1]
        text = f"  {name} run to {budget.relative_error:.0%}: {trace.value:.5g} ± {trace.standard_error:.2g}"
        text += f" after {len(trace.samples)} rounds, {ratio.median:.0f} gradients"
        if long is not None:
            off = (trace.value - long.value) / float(np.hypot(trace.standard_error, long.standard_error))
            text += f"; {trace.value / long.value - 1:+.1%} from the reference, {off:+.1f} standard errors"
        say(text)
