"""Section `product`: what a product costs per vector, for every kind of operator and in other packages."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

import peers
from landscape.curvature import GaussNewton, Hessian, LinearOperator
from problem import Problem, compare, peak_rate, say, told

Cost = Callable[[int], float]  # operations of matrix products per vector, in gradients, of a product with k vectors


def cost_reverse(k: int) -> float:
    """Reverse over reverse, where graphs are built each time."""
    return 2 + 1 / k


def cost_recomputing(k: int) -> float:
    """The same of an objective that recomputes its blocks: 14/3 gradients for one vector."""
    return 10 / 3 + 4 / 3 / k


@dataclass(frozen=True)
class Table:
    """Lines of products; each for one vector and for `many` at a time."""

    problem: Problem
    repeats: int
    many: int
    flops: float
    peak: float

    def line(self, name: str, item: Callable[[], object], k: int, cost: float | None) -> None:
        """One item that multiplies k vectors."""
        found = compare(self.problem, item, self.repeats, per=k)
        share = "" if cost is None else f"  {cost * self.flops / found.item / self.peak:4.0%} of peak"
        say(f"  {name:<58}{found} {1e3 * found.item:8.0f} ms{share}")

    def operator(self, name: str, operator: LinearOperator, cost: Cost | None) -> None:
        """An operator."""
        for k in (1, self.many):
            v = self.problem.rows(k).T
            self.line(f"{name}, k={k}", lambda v=v: operator @ v, k, cost(k) if cost else None)

    def workers(self, name: str, build: Callable[..., LinearOperator], cost: Cost | None) -> None:
        """An operator that multiplies one vector at a time, or as many as there are threads."""
        for workers in (1, None):
            self.operator(f"{name}, workers={workers}", build(workers=workers), cost)


def product_section(problem: Problem, args: argparse.Namespace) -> None:
    peak, flops = peak_rate(args.device), problem.flops()
    say(f"product, {problem.name}: time per vector over one gradient; operations over the peak rate")
    unit = compare(problem, problem.gradient, args.repeats)
    say(
        f"  one gradient: {flops / 1e9:.1f} GFLOP in {1e3 * unit.gradient:.0f} ms, "
        f"{flops / unit.gradient / 1e9:.0f} of {peak / 1e9:.0f} GFLOP/s: {flops / unit.gradient / peak:.0%}"
    )
    table = Table(problem, args.repeats, 2 if args.quick else 8, flops, peak)
    ours(table)
    others(table)
    say()


def ours(table: Table) -> None:
    problem, v = table.problem, table.problem.rows(1)[0]
    reverse = partial(Hessian, problem.objective, problem.weights)
    recomputing = partial(Hessian, problem.recomputed, problem.weights)
    newton = partial(GaussNewton, problem.objective, problem.weights)
    half = partial(Hessian, problem.half, problem.weights)
    table.workers("reverse, kept graphs", partial(reverse, keep=True), lambda k: 2)
    table.workers("reverse, graphs built each time", partial(reverse, keep=False), cost_reverse)
    table.line("reverse, operator made, graphs built and kept, k=1", lambda: reverse(keep=True) @ v, 1, None)
    table.operator("reverse, recomputing blocks, kept graphs", recomputing(keep=True), lambda k: 10 / 3)
    name = "reverse, recomputing blocks, graphs built each time"
    table.operator(name, recomputing(keep=False), cost_recomputing)
    forward = reverse(product="forward")
    table.line("forward, k=1", lambda: forward @ v, 1, 3)
    table.workers("Gauss-Newton, kept graphs", partial(newton, keep=True), lambda k: 4 / 3)
    table.workers("reverse in bfloat16, kept graphs", partial(half, keep=True), None)


def others(table: Table) -> None:
    problem, v = table.problem, table.problem.rows(1)[0]
    expected = Hessian(problem.objective, problem.weights, keep=False) @ v
    for name, make in (
        ("PyHessian, k=1", peers.pyhessian_product),
        ("hessian-eigenthings, k=1", peers.eigenthings_product),
        ("curvlinops, k=1", peers.curvlinops_product),
    ):

        def peer(name: str = name, make: Callable[..., Callable[[Tensor], Tensor]] = make) -> None:
            product = make(problem.model, problem.data)
            off = float((product(v) - expected).norm() / expected.norm())
            table.line(f"{name} (differs from ours by {off:.0e})", lambda: product(v), 1, 3)

        told(name, peer)
