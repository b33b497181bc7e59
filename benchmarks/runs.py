"""Iterations towards λ_max followed product by product, past where they would have stopped."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from torch import Tensor

from landscape.curvature import Hessian, Krylov, LinearOperator, StopRule, draft, noisy, power_iteration
from landscape.curvature.lanczos import outermost
from landscape.curvature.probes import gaussian

CLOSE = (0.01, 0.001)  # of the reference eigenvalue
RULE = StopRule()


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


def begin(kind: str, operator: Hessian, seed: int) -> tuple[Tensor, float]:
    """A start vector, and the products it took."""
    if kind == "random":
        return gaussian(operator.n, operator.theta, seed), 0.0
    start = noisy(operator.gradient(), seed)
    return draft(operator, start) if kind == "draft" else (start, 0.0)


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


def power_run(operator: LinearOperator, reference: float, seed: int, most: int) -> Run:
    watched = _Watched(operator, reference)
    with contextlib.suppress(_Enough):
        power_iteration(watched, tolerance=0.0, max_products=most, seed=seed)
    return Run(watched.quotients, watched.stop())


class _Enough(Exception):
    pass


class _Watched(LinearOperator):
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
