"""What products, eigenvalues and traces cost over one gradient of the same data, ours and other packages'.

    python benchmarks/curvature.py [--only product,lambda,trace,memory] [--device cuda] [--quick]
    python benchmarks/curvature.py --only large
    pip install --no-deps -r benchmarks/peers.txt    # the other packages; without them their lines say so

The unit is one plain float32 gradient: `model(ids).logits`, torch's cross-entropy and `backward()` over 8 windows of
128 tokens in 4 micro-batches, with eager attention. One is timed right before everything that is timed, so a machine
that speeds up or slows down does so for both. Ratios are medians over the repeats, with their range.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import peers
import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from trained import REFERENCE, trained, windows

from landscape.curvature import (
    Budget,
    DifferenceHessian,
    GaussNewton,
    Hessian,
    Krylov,
    LinearOperator,
    StopRule,
    draft,
    eigenvalues,
    hutch_plus_plus,
    hutchinson,
    noisy,
    power_iteration,
    trace_by_losses,
    xtrace,
)
from landscape.curvature.batched import BatchedOperator
from landscape.curvature.lanczos import outermost
from landscape.curvature.probes import gaussian, rademacher
from landscape.models import load_model
from landscape.objective import Batch, TokenCrossEntropy, batches
from landscape.references import resolve
from landscape.tokens import Windows
from landscape.weights import Weights

SECTIONS = ("product", "lambda", "trace", "memory")
CLOSE = (0.01, 0.001)  # of the reference eigenvalue
RULE = StopRule()
CHECKPOINTS = ("step4800", "step8000")
PYTHIA_160M = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 50304,
    "tie_word_embeddings": False,
}


def say(text: str = "") -> None:
    print(text, flush=True)


class Problem:
    """A model with its data, as we take them and as the others do."""

    def __init__(self, name: str, model: nn.Module, data: Windows, size: int, device: str) -> None:
        self.name, self.device = name, device
        self.model = model.to(device).eval()
        self.cut: list[Batch] = batches(data, size, device)
        self.count = sum(batch.n_targets for batch in self.cut)
        self.data: peers.Data = [(batch.ids, batch.ids[:, 1:].flatten()) for batch in self.cut]
        self.weights = Weights.of(self.model)
        self.n = self.weights.numel()
        self.objective = TokenCrossEntropy(self.model, self.cut)
        self.like = torch.empty(0, device=device)

    def gradient(self) -> None:
        """The unit."""
        self.model.zero_grad(set_to_none=True)
        for batch in self.cut:
            logits = self.model(input_ids=batch.ids, use_cache=False).logits
            total = cross_entropy(logits[:, :-1].flatten(0, 1), batch.ids[:, 1:].flatten(), reduction="sum")
            (total / self.count).backward()

    def flops(self) -> float:
        """Of the matrix products in one gradient: 6 per parameter and token, and attention's over whole squares."""
        embedding = self.model.get_input_embeddings().weight
        inside = sum(p.numel() for p in self.model.parameters() if p.ndim == 2 and p is not embedding)
        tokens = sum(batch.ids.numel() for batch in self.cut)
        squares = sum(batch.ids.numel() * batch.ids.shape[1] for batch in self.cut)
        config = self.model.config
        return 6.0 * inside * tokens + 12.0 * config.num_hidden_layers * config.hidden_size * squares

    def rows(self, k: int) -> Tensor:
        """Random signs (k, n)."""
        return torch.stack([rademacher(self.n, self.like, 7, i) for i in range(k)])

    def synchronize(self) -> None:
        """Wait until a GPU has done what it was told."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()

    def seconds(self, item: Callable[[], object]) -> float:
        """How long one call takes."""
        gc.collect()  # PyHessian's graphs are cycles
        self.synchronize()
        started = time.perf_counter()
        item()
        self.synchronize()
        return time.perf_counter() - started


@dataclass(frozen=True)
class Ratio:
    """Time over that of a gradient: median, smallest and largest; and the medians of both in seconds."""

    median: float
    low: float
    high: float
    item: float
    gradient: float

    def __str__(self) -> str:
        return f"{self.median:8.2f} ({self.low:.2f} to {self.high:.2f})"


def compare(problem: Problem, item: Callable[[], object], repeats: int, per: int = 1, warm: bool = True) -> Ratio:
    """Time of `item` divided by `per`, over a gradient's, in turn."""
    if warm:
        problem.gradient()
        item()
    pairs = [(problem.seconds(problem.gradient), problem.seconds(item) / per) for _ in range(repeats)]
    problem.model.zero_grad(set_to_none=True)
    ratios = [b / a for a, b in pairs]
    gradient, own = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Ratio(statistics.median(ratios), min(ratios), max(ratios), own, gradient)


def peak_rate(device: str, repeats: int = 20) -> float:
    """float32 operations per second of a square matrix product: 1024 wide, 8192 on a GPU."""
    width = 8192 if device.startswith("cuda") else 1024
    a, b = torch.randn(width, width, device=device), torch.randn(width, width, device=device)
    best = float("inf")
    for _ in range(repeats):
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        started = time.perf_counter()
        a @ b
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2.0 * width**3 / best


def product_section(problem: Problem, args: argparse.Namespace) -> None:
    peak, flops = peak_rate(args.device), problem.flops()
    say(f"product, {problem.name}: time per vector over one gradient; operations over the peak rate")
    unit = compare(problem, problem.gradient, args.repeats)
    say(
        f"  one gradient: {flops / 1e9:.1f} GFLOP in {1e3 * unit.gradient:.0f} ms, "
        f"{flops / unit.gradient / 1e9:.0f} of {peak / 1e9:.0f} GFLOP/s: {flops / unit.gradient / peak:.0%}"
    )
    many = 2 if args.quick else 8
    half = TokenCrossEntropy(problem.model, problem.cut, torch.bfloat16)
    reverse = partial(Hessian, problem.objective, problem.weights)
    newton = partial(GaussNewton, problem.objective, problem.weights)

    def line(name: str, item: Callable[[], object], k: int, cost: float | None) -> None:
        """`cost`: matrix-product operations per vector, in gradients."""
        found = compare(problem, item, args.repeats, per=k)
        share = "" if cost is None else f"  {cost * flops / found.item / peak:4.0%} of peak"
        say(f"  {name:<58}{found} {1e3 * found.item:8.0f} ms{share}")

    def kept(name: str, build: Callable[..., BatchedOperator], counts: Sequence[int], cost: float | None) -> None:
        for workers in (1, None):
            operator = build(keep=True, workers=workers)
            for k in counts:
                v = problem.rows(k).T
                line(f"{name}, kept graphs, workers={workers}, k={k}", lambda op=operator, v=v: op @ v, k, cost)
            del operator

    kept("reverse", reverse, (1, many), 2)
    for workers in (1, None):
        operator = reverse(keep=False, workers=workers)
        for k in (1, many):
            v = problem.rows(k).T
            name = f"reverse, graphs built each time, workers={workers}, k={k}"
            line(name, lambda op=operator, v=v: op @ v, k, 2 + 1 / k)
    v1 = problem.rows(1)[0]
    line("reverse, operator made, graphs built and kept, k=1", lambda: reverse(keep=True) @ v1, 1, None)
    forward = reverse(product="forward")
    line("forward, k=1", lambda: forward @ v1, 1, 3)
    kept("Gauss-Newton", newton, (1, many), 4 / 3)
    kept("reverse in bfloat16", partial(Hessian, half, problem.weights), (1, many), None)
    expected = reverse(keep=False) @ v1
    for name, make in (
        ("PyHessian, k=1", peers.pyhessian_product),
        ("hessian-eigenthings, k=1", peers.eigenthings_product),
        ("curvlinops, k=1", peers.curvlinops_product),
    ):

        def peer(name: str = name, make: Callable[..., Callable[[Tensor], Tensor]] = make) -> None:
            product = make(problem.model, problem.data)
            off = float((product(v1) - expected).norm() / expected.norm())
            line(f"{name} (differs from ours by {off:.0e})", lambda: product(v1), 1, 3)

        told(name, peer)
    say()


def told(name: str, function: Callable[[], None]) -> None:
    """Run it, and say so in its line where it cannot."""
    reason = peers.attempt(function)
    if reason:
        say(f"  {name:<58}{reason}")


@dataclass(frozen=True)
class Run:
    """A Lanczos run: the top Ritz value after each product, and where the default rule stopped."""

    ritz: list[float]
    stop: int | None
    extra: float = 0.0  # products spent on the start

    def products(self, reference: float, within: float) -> float:
        """Until the value is this near, for good."""
        near = [abs(value / reference - 1) <= within for value in self.ritz]
        if not near[-1]:
            return float("inf")
        return self.extra + max((i + 2 for i, close in enumerate(near) if not close), default=1)

    def error(self, reference: float) -> float:
        """Relative, where the rule stopped."""
        return abs(self.ritz[(self.stop or len(self.ritz)) - 1] / reference - 1)


def lanczos_run(operator: LinearOperator, start: Tensor, reference: float, cap: int, extra: float = 0.0) -> Run:
    """On until the default rule has stopped and the value is near; within 0.1 %, or `cap` products."""
    krylov, ritz, stop = Krylov.begin(start), [], None
    while krylov.following is not None and krylov.size < cap:
        krylov.extend(operator)
        found = outermost(krylov, 1, "top", RULE)
        ritz.append(float(found.values[0]))
        if stop is None and found.converged[0]:
            stop = krylov.size
        if stop is not None and abs(ritz[-1] / reference - 1) <= min(CLOSE):
            break
    return Run(ritz, stop, extra)


def begin(kind: str, operator: Hessian, seed: int) -> tuple[Tensor, float]:
    if kind == "random":
        return gaussian(operator.n, operator.theta, seed), 0.0
    if kind == "bfloat16":
        return operator.theta, 0.0
    start = noisy(operator.gradient(), seed)
    return draft(operator, start) if kind == "draft" else (start, 0.0)


def summary(values: Sequence[float]) -> str:
    return f"{statistics.median(values):6.1f} {max(values):6.1f}"


def reference_of(operator: Hessian, most: int) -> float:
    found = eigenvalues(operator, noisy(operator.gradient(), 0), rule=StopRule(1e-4, 1e-8), max_products=most)
    say(
        f"  reference λ {found.values[0]:.6g}, residual {found.residuals[0] / found.values[0]:.0e}, "
        f"missed {found.missed:.0e}, {found.products} products{'' if found.converged[0] else ', NOT converged'}"
    )
    return float(found.values[0])


class _Enough(Exception):
    pass


class Watched(LinearOperator):
    """An operator that notes vᵀAv of unit vectors, and ends a power iteration once it is near and its rule was met."""

    def __init__(self, operator: LinearOperator, reference: float) -> None:
        super().__init__(operator.n, operator.dtype, operator.device)
        self.operator, self.reference, self.quotients = operator, reference, list[float]()

    def _multiply(self, rows: Tensor) -> Tensor:
        images = (self.operator @ rows.T).T
        self.quotients.append(float(rows[0].double() @ images[0].double()))
        if abs(self.quotients[-1] / self.reference - 1) <= 0.5 * min(CLOSE) and self.stop() is not None:
            raise _Enough
        return images

    def stop(self) -> int | None:
        """Products until the quotient changed by less than 1e-3, the usual rule."""
        q = self.quotients
        return next((i + 1 for i in range(1, len(q)) if abs(q[i] - q[i - 1]) <= 1e-3 * abs(q[i - 1])), None)


def power_run(operator: LinearOperator, reference: float, seed: int, most: int) -> Run:
    watched = Watched(operator, reference)
    with contextlib.suppress(_Enough):
        power_iteration(watched, tolerance=0.0, max_products=most, seed=seed)
    return Run(watched.quotients, watched.stop())


def table_line(name: str, runs: Sequence[Run], reference: float) -> None:
    errors = [run.error(reference) for run in runs]
    stops = [run.extra + run.stop if run.stop else float("inf") for run in runs]
    wrong = sum(run.stop is not None and error > CLOSE[0] for run, error in zip(runs, errors, strict=True))
    near = "  ".join(summary([run.products(reference, within) for run in runs]) for within in CLOSE)
    say(
        f"  {name:<34}{len(runs):4}  {near}  {summary(stops)}  "
        f"{statistics.median(errors):8.1e} {max(errors):8.1e}  {wrong:3}"
    )


def lambda_section(problem: Problem, args: argparse.Namespace) -> None:
    say(f"lambda, {problem.name}: products (median, worst) until the value is within 1 % and 0.1 % for good")
    operator = Hessian(problem.objective, problem.weights)
    most, cap = (15, 12) if args.quick else (80, 100)
    reference = reference_of(operator, most)
    seeds, few = (2, 1) if args.quick else (args.seeds, min(5, args.seeds))
    say(
        f"  {'start, or peer':<34}runs  {'to 1 %':>13}  {'to 0.1 %':>13}  {'at stop':>13}  {'error at stop':>17}  wrong"
    )
    runs: dict[tuple[str, int], Run] = {}
    for kind in ("noisy", "random", "draft"):
        for seed in range(seeds):
            start, extra = begin(kind, operator, seed)
            runs[kind, seed] = lanczos_run(operator, start, reference, cap, extra)
        table_line(f"ours, {kind}", [runs[kind, seed] for seed in range(seeds)], reference)
    table_line("power iteration (rule: 1e-3)", [power_run(operator, reference, s, cap) for s in range(few)], reference)

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

    model, data = problem.model, problem.data
    answers("PyHessian eigenvalues", lambda seed: peers.pyhessian_top(model, data, seed, cap))
    answers(
        "scipy eigsh, our product", lambda seed: peers.eigsh_top(lambda v: operator @ v, problem.n, args.device, seed)
    )

    def things(seed: int, **options: object) -> peers.Answer:
        return peers.eigenthings_top(peers.eigenthings_of(operator), seed, **options)

    answers("eigenthings lanczos k=1 (default)", things)
    answers("eigenthings lanczos k=1, 20 steps", partial(things, most=20))
    answers("eigenthings lanczos k=10 (default)", partial(things, k=10, which="LM"))
    flagged(problem.name, operator, reference, args, runs)
    operator.release()
    end_to_end(problem, reference, args)
    say()


def flagged(
    name: str, operator: Hessian, reference: float, args: argparse.Namespace, runs: dict[tuple[str, int], Run]
) -> None:
    """25 runs that start from the noisy gradient and from noise in turn: taken for converged while wrong."""
    kinds = [("noisy", "random")[seed % 2] for seed in range(4 if args.quick else args.seeds + 5)]
    found = []
    for seed, kind in enumerate(kinds):
        if (kind, seed) not in runs:
            runs[kind, seed] = lanczos_run(operator, begin(kind, operator, seed)[0], reference, 100)
        found.append(runs[kind, seed])
    stopped = [run for run in found if run.stop is not None]
    wrong = sum(run.error(reference) > CLOSE[0] for run in stopped)
    worst = max((run.error(reference) for run in stopped), default=0.0)
    say(
        f"  {name}: {len(found)} runs, {len(stopped)} flagged converged by the default rule, "
        f"{wrong} of these off by more than 1 %, worst {worst:.1e}"
    )


def end_to_end(problem: Problem, reference: float, args: argparse.Namespace) -> None:
    say(f"  end to end from a model to λ, time over one gradient ({problem.name})")
    model, data, cap = problem.model, problem.data, 12 if args.quick else 100
    answer: list[peers.Answer] = []

    def ours(kind: str) -> None:
        operator = Hessian(problem.objective, problem.weights)
        start, extra = begin(kind, operator, 0)
        if kind == "bfloat16":
            rough = Hessian(TokenCrossEntropy(model, problem.objective.batches, torch.bfloat16), problem.weights)
            drafted = eigenvalues(rough, noisy(rough.gradient(), 0), max_products=cap)
            start, extra = drafted.vectors[0], drafted.products
        found = eigenvalues(operator, start, max_products=cap)
        answer.append(peers.Answer(float(found.values[0]), found.products + round(extra), bool(found.converged[0])))

    def line(name: str, item: Callable[[], None]) -> None:
        def timed() -> None:
            found = compare(problem, item, min(3, args.repeats), warm=False)
            last = answer[-1]
            say(f"  {name:<40}{found}  {last.products} products, error {abs(last.value / reference - 1):.1e}")

        told(name, timed)

    line("ours, noisy gradient", partial(ours, "noisy"))
    line("ours, draft", partial(ours, "draft"))
    line("ours, in bfloat16 first", partial(ours, "bfloat16"))
    line("PyHessian", lambda: answer.append(peers.pyhessian_top(model, data, 0, cap)))
    line(
        "hessian-eigenthings, 20 steps",
        lambda: answer.append(peers.eigenthings_top(peers.eigenthings(model, data), most=20)),
    )
    line(
        "curvlinops and eigsh",
        lambda: answer.append(peers.eigsh_top(peers.curvlinops_product(model, data), problem.n, args.device)),
    )


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
    fixed, block = Budget(0.0, 2, rounds), Budget(0.0, 2, 4 if args.quick else 8)
    say(f"trace, {problem.name}: spread of one round; gradients to a standard error of 1 %, from {rounds} rounds")
    operator = Hessian(problem.objective, problem.weights)
    krylov = Krylov.begin(operator.gradient())
    for _ in range(3 if args.quick else 10):
        krylov.extend(operator)
    stamps: list[float] = []

    def stamp(_: np.ndarray) -> None:
        problem.synchronize()
        stamps.append(time.perf_counter())

    unit = compare(problem, problem.gradient, args.repeats)
    losses = trace_by_losses(problem.objective, problem.weights, budget=fixed, on_round=stamp)
    found = {
        "hutchinson, probes for each batch": hutchinson(operator, fixed),
        "hutchinson, shared probes": hutchinson(Whole(operator), fixed),
        f"hutchinson, deflated by {krylov.size}": hutchinson(operator, fixed, deflate=krylov.basis),
        "second differences of losses": losses,
    }
    each = compare(problem, lambda: hutchinson(operator, block), args.repeats, per=block.maximum)
    per_losses = statistics.median(np.diff(stamps)) / unit.gradient
    say(f"  {'':<40}spread  rounds  gradients a round  gradients to 1 %")
    shared = 0.0
    for name, trace in found.items():
        s = spread(trace.samples)
        shared = s if "shared" in name else shared
        needed = (s / 0.01) ** 2
        cost = per_losses if trace is losses else each.median
        extra = krylov.size * cost if "deflated" in name else 0.0
        say(f"  {name:<40}{s:6.1%}  {needed:6.0f}  {cost:17.2f}  {extra + needed * cost:16.0f}")
    for products in (12,) if args.quick else (48, 96):
        for name, method in (("Hutch++", hutch_plus_plus), ("XTrace", xtrace)):
            trace = method(operator, products)
            error = trace.standard_error / abs(trace.value)
            say(f"  {name}, {products} products: {trace.value:.5g}, standard error {error:.1%}")
        plain = spread(found["hutchinson, probes for each batch"].samples) / products**0.5
        say(f"  hutchinson, {products} products: standard error {plain:.1%}, from the spread")
    probes, model, data = 2 if args.quick else 4, problem.model, problem.data
    for name, item in (("PyHessian", peers.pyhessian_trace), ("hessian-eigenthings", peers.eigenthings_trace)):

        def peer(name: str = name, item: Callable[..., None] = item) -> None:
            ratio = compare(problem, lambda: item(model, data, probes), args.repeats, per=probes)
            needed = (shared / 0.01) ** 2
            say(f"  {name:<40}{shared:6.1%}  {needed:6.0f}  {ratio.median:17.2f}  {ratio.median * needed:16.0f}")

        told(name, peer)
    operator.release()
    check_traces(problem, args)
    say()


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


def measured_items(problem: Problem) -> dict[str, Callable[[Tensor], object]]:
    """What memory is measured for: V (k rows) to something."""
    of = (problem.objective, problem.weights)
    return {
        "gradient": lambda v: problem.gradient(),
        "reverse, keep=False": lambda v: Hessian(*of, keep=False) @ v.T,
        "reverse, keep=True": lambda v: Hessian(*of, keep=True) @ v.T,
        "forward": lambda v: Hessian(*of, product="forward") @ v.T,
        "Gauss-Newton, keep=False": lambda v: GaussNewton(*of, keep=False) @ v.T,
        "differences": lambda v: DifferenceHessian(*of) @ v.T,
        "losses, one round": lambda v: trace_by_losses(*of, budget=Budget(0.0, 2, 2)),
        "PyHessian": lambda v: peers.pyhessian_product(problem.model, problem.data)(v[0]),
    }


def measure_memory(problem: Problem, item: str, k: int) -> None:
    """Print the bytes that one call adds at its peak: made operator, result and all, but not V."""
    function, rows = measured_items(problem)[item], problem.rows(k)
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
    held = function(rows)
    after = torch.cuda.max_memory_allocated() if problem.device.startswith("cuda") else resident("VmHWM")
    del held
    say(json.dumps(after - before))


def resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def memory_section(name: str, args: argparse.Namespace) -> None:
    """Each in a process of its own, with an allocator that gives back what is freed."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    many = ("reverse, keep=False", "reverse, keep=True", "Gauss-Newton, keep=False")
    items = ["gradient", *many] if args.quick else list(measured_items(problem_of(name, args)))
    for size in (2,) if args.quick else (2, 8):
        shape = f"{len(text(args)) // size} micro-batches of {size} windows"
        say(f"memory, {name}, {shape}: peak of one call over that of a gradient")
        unit = 0
        for item in items:
            for k in (1, 8) if item in many else (1,):
                command = [sys.executable, __file__, "--models", name, "--device", args.device]
                command += ["--threads", str(torch.get_num_threads()), "--memory-item", f"{item}|{k}|{size}"]
                command += ["--quick"] * args.quick
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if done.returncode:
                    why = (done.stderr.splitlines() or ["killed"])[-1]
                    say(f"  {item:<34} k={k} {peers.MISSING if 'ModuleNotFoundError' in why else why}")
                    continue
                value = int(done.stdout.split()[-1])
                unit = unit or value
                say(f"  {item:<34} k={k} {value / 2**20:8.0f} MiB {value / unit:7.2f}")
    say()


def large_section(args: argparse.Namespace) -> None:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("gpt_neox", **PYTHIA_160M)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    problem = Problem("Pythia-160m, random", model, text(args), 2, args.device)
    repeats = 1 if args.quick else min(3, args.repeats)
    flops, peak = problem.flops(), peak_rate(args.device)
    say(f"large, {problem.name}: {problem.n:,} parameters, time per vector over one gradient")
    for k in (1, 2 if args.quick else 8):
        operator, v = Hessian(problem.objective, problem.weights, keep=False), problem.rows(k).T
        found = compare(problem, lambda op=operator, v=v: op @ v, repeats, per=k, warm=not args.quick)
        cost = (2 + 1 / k) * flops / found.item / peak
        say(
            f"  reverse, graphs built each time, k={k}   {found} {found.item:8.2f} s, "
            f"gradient {found.gradient:.2f} s  {cost:4.0%} of peak"
        )
    say()


def problem_of(name: str, args: argparse.Namespace, size: int = 2) -> Problem:
    """A model of `trained`, or a checkpoint of the bundled run."""
    if name in CHECKPOINTS:
        model = load_model(resolve(f"{REFERENCE / 'mini-pythia'}@{name}"), attention="eager")
    else:
        model = trained(name)
    return Problem(name, model, text(args), size, args.device)


def text(args: argparse.Namespace) -> Windows:
    data = windows("validation", 4, 32) if args.quick else windows("validation", 8, 128)
    assert data.lengths.unique().numel() == 1  # the others average over batches
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="llama,gpt_neox")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="only to see that everything runs")
    parser.add_argument("--seeds", type=int, default=20, help="start vectors of each kind")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"{', '.join(SECTIONS)}, large")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--memory-item", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    names, only = args.models.split(","), args.only.split(",")
    if args.memory_item:
        item, k, size = args.memory_item.split("|")
        measure_memory(problem_of(names[0], args, int(size)), item, int(k))
        return
    if args.quick:
        args.repeats = min(args.repeats, 2)
    unknown = set(only) - {*SECTIONS, "large"}
    if unknown:
        parser.error(f"--only {', '.join(sorted(unknown))}: expected {', '.join(SECTIONS)} or large")
    started = time.perf_counter()
    for name in names:
        for section, function in (("product", product_section), ("lambda", lambda_section), ("trace", trace_section)):
            if section in only:
                function(problem_of(name, args), args)
                gc.collect()
        if "memory" in only:
            memory_section(name, args)
    if "lambda" in only:
        for name in CHECKPOINTS:
            problem = problem_of(name, args)
            operator = Hessian(problem.objective, problem.weights)
            say(f"lambda, mini-pythia@{name}")
            flagged(name, operator, reference_of(operator, 15 if args.quick else 80), args, {})
    if "large" in only:
        large_section(args)
    say(
        f"python {' '.join(sys.argv)}: torch {torch.__version__}, {torch.get_num_threads()} threads, {args.device}, "
        f"{args.repeats} repeats, {time.perf_counter() - started:.0f} s"
    )


if __name__ == "__main__":
    main()
