"""From a model to λ_max, timed whole: operator, start, iteration and all."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import peers
from landscape.curvature import Hessian, eigenvalues, noisy, refine
from problem import Problem, compare, say, told
from runs import begin


def end_to_end(problem: Problem, reference: float, args: argparse.Namespace) -> None:
    say(f"  end to end from a model to λ, time over one gradient ({problem.name})")
    model, data, cap = problem.model, problem.data, 12 if args.quick else 100
    continued: list[bool] = []

    def line(name: str, ask: Callable[[], peers.Answer]) -> None:
        answers: list[peers.Answer] = []

        def timed() -> None:
            found = compare(problem, lambda: answers.append(ask()), min(3, args.repeats), warm=False)
            last = answers[-1]
            say(f"  {name:<40}{found}  {last.products} products, error {abs(last.value / reference - 1):.1e}")

        told(name, timed)

    line("ours, noisy gradient", partial(ours, problem, "noisy", cap))
    line("ours, draft", partial(ours, problem, "draft", cap))
    line("ours, in bfloat16 first", partial(refined, problem, cap, continued))
    say(f"    in float32 it had to go on in {sum(continued)} of {len(continued)} runs")
    line("PyHessian", lambda: peers.pyhessian_top(model, data, 0, cap))
    line("hessian-eigenthings, 20 steps", lambda: peers.eigenthings_top(peers.eigenthings(model, data), most=20))
    line(
        "curvlinops and eigsh",
        lambda: peers.eigsh_top(peers.curvlinops_product(model, data), problem.n, args.device),
    )


def ours(problem: Problem, kind: str, cap: int) -> peers.Answer:
    operator = Hessian(problem.objective, problem.weights)
    start, extra = begin(kind, operator, 0)
    found = eigenvalues(operator, start, max_products=cap)
    return peers.Answer(float(found.values[0]), found.products + round(extra), bool(found.converged[0]))


def refined(problem: Problem, cap: int, continued: list[bool]) -> peers.Answer:
    """Found in bfloat16 and made exact in float32; goes on there where that is not enough, and notes it."""
    half = Hessian(problem.half, problem.weights)
    rough = eigenvalues(half, noisy(half.gradient(), 0), max_products=cap)
    half.release()
    operator = Hessian(problem.objective, problem.weights)
    found = refine(operator, rough)
    products = found.products
    continued.append(not found.converged.all())
    if continued[-1]:
        found = eigenvalues(operator, found.vectors.sum(0), max_products=cap)
        products += found.products
    return peers.Answer(float(found.values[0]), products, bool(found.converged[0]))
