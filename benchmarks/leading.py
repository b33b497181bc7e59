"""Section `lambda`: products until λ_max is near, from every start and in other packages; and what is wrong at the end.

What it takes in time, from the model to λ_max, is in `end_to_end.py`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial

import peers
from end_to_end import end_to_end
from landscape.curvature import Hessian, StopRule, eigenvalues, noisy
from problem import Problem, say, told
from runs import CLOSE, Run, begin, lanczos_run, power_run


def lambda_section(problem: Problem, args: argparse.Namespace) -> None:
    say(f"lambda, {problem.name}: products (median, worst) until the value is within 1 % and 0.1 % for good")
    operator = Hessian(problem.objective, problem.weights)
    reference = reference_of(operator, args)
    say(
        f"  {'start, or peer':<34}runs  {'to 1 %':>13}  {'to 0.1 %':>13}  {'at stop':>13}  {'error at stop':>17}  wrong"
    )
    ours(operator, reference, args)
    others(problem, operator, reference, args)
    operator.release()
    end_to_end(problem, reference, args)
    say()


def reference_of(operator: Hessian, args: argparse.Namespace) -> float:
    most = 15 if args.quick else 80
    found = eigenvalues(operator, noisy(operator.gradient(), 0), rule=StopRule(1e-4, 1e-8), max_products=most)
    say(
        f"  reference λ {found.values[0]:.6g}, residual {found.residuals[0] / found.values[0]:.0e}, "
        f"missed {found.missed:.0e}, {found.products} products{'' if found.converged[0] else ', NOT converged'}"
    )
    return float(found.values[0])


def ours(operator: Hessian, reference: float, args: argparse.Namespace) -> None:
    seeds, few, cap = (2, 1, 12) if args.quick else (args.seeds, min(5, args.seeds), 100)
    for kind in ("noisy", "random", "draft"):
        runs = []
        for seed in range(seeds):
            start, extra = begin(kind, operator, seed)
            runs.append(lanczos_run(operator, start, reference, cap, extra))
        table_line(f"ours, {kind}", runs, reference)
    table_line("power iteration (rule: 1e-3)", [power_run(operator, reference, s, cap) for s in range(few)], reference)


def table_line(name: str, runs: Sequence[Run], reference: float) -> None:
    errors = [run.error(reference) for run in runs]
    stops = [run.extra + run.stop if run.stop else float("inf") for run in runs]
    wrong = sum(run.stop is not None and error > CLOSE[0] for run, error in zip(runs, errors, strict=True))
    near = "  ".join(summary([run.products(reference, within) for run in runs]) for within in CLOSE)
    say(
        f"  {name:<34}{len(runs):4}  {near}  {summary(stops)}  "
        f"{statistics.median(errors):8.1e} {max(errors):8.1e}  {wrong:3}"
    )


def summary(values: Sequence[float]) -> str:
    return f"{statistics.median(values):6.1f} {max(values):6.1f}"


def others(problem: Problem, operator: Hessian, reference: float, args: argparse.Namespace) -> None:
    few, cap = (1, 12) if args.quick else (min(5, args.seeds), 100)
    model, data = problem.model, problem.data

    def answers(name: str, ask: Callable[[int], peers.Answer]) -> None:
        def lines() -> None:
            found = [ask(seed) for seed in range(few)]
            errors = [abs(answer.value / reference - 1) for answer in found]
            wrong = sum(a.converged is not False and e > CLOSE[0] for a, e in zip(found, errors, strict=True))
            say(
                f"  {name:<34}{few:4}  {'':13}  {'':13}  {summary([a.products for a in found])}  "
                f"{statistics.median(errors):8.1e} {max(errors):8.1e}  {wrong:3}"
            )

        told(name, lines)

    def things(seed: int, **options: object) -> peers.Answer:
        return peers.eigenthings_top(peers.eigenthings_of(operator), seed, **options)

    answers("PyHessian eigenvalues", lambda seed: peers.pyhessian_top(model, data, seed, cap))
    answers(
        "scipy eigsh, our product", lambda seed: peers.eigsh_top(lambda v: operator @ v, problem.n, args.device, seed)
    )
    answers("eigenthings lanczos k=1 (default)", things)
    answers("eigenthings lanczos k=1, 20 steps", partial(things, most=20))
    answers("eigenthings lanczos k=10 (default)", partial(things, k=10, which="LM"))


def flagged_section(problem: Problem, args: argparse.Namespace) -> None:
    """25 runs that start from the noisy gradient and from noise in turn: taken for converged while wrong."""
    say(f"flagged, {problem.name}")
    operator = Hessian(problem.objective, problem.weights)
    reference = reference_of(operator, args)
    found = []
    for seed in range(4 if args.quick else 25):
        start, _ = begin(("noisy", "random")[seed % 2], operator, seed)
        found.append(lanczos_run(operator, start, reference, 100))
    stopped = [run for run in found if run.stop is not None]
    wrong = sum(run.error(reference) > CLOSE[0] for run in stopped)
    worst = max((run.error(reference) for run in stopped), default=0.0)
    say(
        f"  {len(found)} runs, {len(stopped)} flagged converged by the default rule, {wrong} of these off by more than "
        f"1 %, worst {worst:.1e}"
    )
    say()
