"""Both ends of the spectrum from one Krylov space, or its top found in bfloat16 first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from landscape import curvature, inputs
from landscape.config import SharpnessConfig
from landscape.curvature.checks import explained, gradient
from landscape.curvature.ledger import Ledger
from landscape.machine.ranks import ALONE, Ranks
from landscape.reporting import Reporter
from landscape.sharpness.windows import Spread

_DRAFT_FROM = 4  # batches: with fewer, a part of the data says too little of the whole
_SPACE = 0.5  # of the free memory, for the vectors of a Krylov space
_LEAST = 8  # vectors beside those wanted, whatever the memory
_PAYS = 0.75  # a gradient in bfloat16 must take less than this of one in float32


class Spectrum:
    """The eigenvalues at either end, of a measurement that may have been interrupted.

    Args:
        config: how many, how well.
        operator: the exact one.
        gradient: where to begin, unless `start` is given.
        ledger: what an interrupted measurement left.
        reporter: told what happens.
        start: a vector near the eigenvectors sought.
        keep: called with the eigenvectors (k, n) of an end when they are found.
        spread: tells how far other windows would move an eigenvalue.
    """

    def __init__(
        self,
        config: SharpnessConfig,
        operator: curvature.LinearOperator,
        gradient: torch.Tensor,
        ledger: Ledger,
        reporter: Reporter,
        spread: Spread,
        start: torch.Tensor | None = None,
        keep: Callable[[str, torch.Tensor], None] = lambda which, vectors: None,
    ) -> None:
        self._config, self._operator, self._gradient = config, operator, gradient
        self._given, self._keep, self._spread = start, keep, spread
        self._ledger, self._reporter = ledger, reporter
        self._rule = curvature.StopRule(tolerance=config.tolerance)
        self._krylov = ledger.load_krylov("krylov", operator.empty(), operator.new)

    def end(self, which: str, k: int, before: int = 0, rough: curvature.Operator | None = None) -> dict[str, Any]:
        """The k eigenvalues at one end, as a section.

        Args:
            which: "top" or "bottom".
            k: how many.
            before: products that the space had seen when this end was begun.
            rough: the same Hessian in bfloat16, to look with before the exact one is asked.
        """
        k = min(k, self._operator.n)
        if self._krylov is None:
            given = self._gradient if self._given is None else self._given
            start = curvature.noisy(given, self._config.seed, out=self._operator.new(self._operator.n))
            if rough is not None:
                found = self._refined(rough, start, which, k)
                if self._operator.ranks.told(bool(found.converged.all())):
                    return self._section(which, found, "bfloat16, refined in float32")
                start = found.vectors.sum(0)
            elif self._given is None:
                start = self._drafted(start)
            self._krylov = curvature.Krylov.begin(start, out=start)
        found = self._lanczos("krylov", self._operator, self._krylov, which, k, before)
        if restarts := len(self._krylov.dropped):
            self._reporter.note(f"{restarts} restarts of the Krylov space for want of memory: they cost products")
        looked = self._ledger.load("rough")
        spent = 0 if looked is None else int(looked["products"]) + k
        drafted = self._ledger.load("draft")
        found = replace(found, products=spent + self._krylov.products)
        draft = 0.0 if drafted is None else float(drafted["products"])
        return self._section(which, found, "float32") | {"draft": draft}

    def release(self) -> None:
        """Forget the vectors."""
        self._krylov = None

    def _lanczos(
        self,
        name: str,
        operator: curvature.LinearOperator,
        krylov: curvature.Krylov,
        which: str,
        k: int,
        before: int = 0,
    ) -> curvature.Eigenvalues:
        most = self._config.max_products
        update = self._reporter.stage(f"eigenvalues from the {which}{' in bfloat16' if name == 'rough' else ''}")

        def on_product(krylov: curvature.Krylov) -> None:
            self._ledger.save_krylov(name, krylov)
            update(krylov.products - before, most)

        return curvature.eigenvalues(
            operator,
            self._gradient,
            k,
            which,  # type: ignore[arg-type]
            self._rule,
            most - (krylov.products - before),
            self._room(krylov, k),
            krylov,
            on_product,
        )

    def _refined(self, rough: curvature.Operator, start: torch.Tensor, which: str, k: int) -> curvature.Eigenvalues:
        krylov = self._ledger.load_krylov("rough", rough.empty()) or curvature.Krylov.begin(start)
        found = self._lanczos("rough", rough, krylov, which, k)
        rough.release()
        self._reporter.stage("the same in float32")
        found = replace(found, products=krylov.products)  # of an interrupted run too
        found = curvature.refine(self._operator, found, self._rule)
        if not found.converged.all():
            self._reporter.note("bfloat16 was too coarse for these eigenvalues: they were found again in float32")
        return found

    def _section(self, which: str, found: curvature.Eigenvalues, precision: str) -> dict[str, Any]:
        self._keep(which, found.vectors)
        self._reporter.stage("how far other windows would move them")
        errors = [self._spread.bend(v, value) for v, value in zip(found.vectors, found.values.tolist(), strict=True)]
        return {
            "values": found.values,
            "standard_errors": np.array(errors),
            "residuals": found.residuals,
            "converged": found.converged.astype(np.uint8),
            "missed": found.missed,
            "unseen": found.unseen,
            "products": found.products,
            "precision": precision,
        }

    def _room(self, krylov: curvature.Krylov, k: int) -> int | None:
        """Vectors that fit; fewer than may be needed mean restarts, and more products. None: all that may come."""
        each = self._operator.n * self._operator.empty().element_size()
        free = self._operator.ranks.told(self._operator.room())
        fit = len(krylov.store) + int(_SPACE * free / each)
        return None if fit > 2 * self._config.max_products else max(fit, k + _LEAST)

    def _drafted(self, start: torch.Tensor) -> torch.Tensor:
        if sum(self._operator.ranks.collect(len(self._operator.parts()))) < _DRAFT_FROM:
            return start
        self._reporter.stage("a start vector from a part of the data")
        drafted, products = curvature.draft(self._operator, start)
        self._ledger.save("draft", products=np.array(products))
        return drafted


def rough_hessian(
    config: SharpnessConfig, loaded: inputs.Loaded, ledger: Ledger, ranks: Ranks = ALONE
) -> curvature.Operator | None:
    """The Hessian under bfloat16 autocast, if the top alone is wanted and a timing of gradients says that it pays.

    A space that reaches down to λ_min, or a density, needs exact products by the dozen, and the top comes with them.
    """
    if config.rough == "none" or config.bottom or config.density_steps or config.adam or config.product != "reverse":
        return None
    half = replace(loaded.objective, dtype=torch.bfloat16)
    if config.rough == "auto" and ledger.load("rough") is None:
        if ledger.load("krylov") is not None:
            return None
        exact, coarse = (min(_seconds(o, loaded.theta) for _ in range(2)) for o in (loaded.objective, half))
        if ranks.told(coarse > _PAYS * exact):
            return None
    return curvature.over(ranks, half, lambda own: curvature.Hessian(own, loaded.theta, config.patterns))


def _seconds(objective: Any, theta: Mapping[str, torch.Tensor]) -> float:
    """One gradient of the first batch."""
    weights = {name: tensor.detach().requires_grad_() for name, tensor in theta.items()}
    device = next(iter(weights.values())).device
    started = time.perf_counter()
    with explained("batch 0"):
        gradient(objective(weights, objective.batches[0])[0], list(weights.values()))
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
