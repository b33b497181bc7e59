"""The spectral density by stochastic Lanczos quadrature.

    φ(t) = (1/n) Σᵢ δ(t − λᵢ) ≈ mean over probes of Σⱼ wⱼ δ(t − θⱼ)

For a probe x of unit length, m Lanczos steps give Ritz values θⱼ and weights wⱼ (squared first components of
T's eigenvectors) that integrate xᵀp(A)x exactly for polynomials p up to degree 2m − 1. With random signs the weights
sum to one and the first moment is Hutchinson's estimate of tr A / n (Ubaru, Chen and Saad 2017). Full
reorthogonalization keeps copies of converged eigenvalues out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from landscape.curvature.lanczos import Krylov
from landscape.curvature.operators import LinearOperator
from landscape.curvature.probes import rademacher
from landscape.errors import CurvatureError


@dataclass(frozen=True)
class Density:
    """Quadrature nodes and weights, one row per probe.

    Attributes:
        nodes: Ritz values (probes, m).
        weights: non-negative, each row sums to one (probes, m).
        n: the operator's dimension.
        products: vectors multiplied.
    """

    nodes: np.ndarray
    weights: np.ndarray
    n: int
    products: int

    def moment(self, order: int = 1) -> tuple[float, float]:
        """(1/n) tr Aᵖ and its standard error."""
        each = (self.weights * self.nodes**order).sum(axis=1)
        error = each.std(ddof=1) / math.sqrt(len(each)) if len(each) > 1 else math.inf
        return float(each.mean()), float(error)

    def smoothed(self, points: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """The density convolved with a normal distribution of standard deviation `width`, and its standard error, at
        `points`.
        """  # noqa: D205
        z = (points[None, None, :] - self.nodes[:, :, None]) / width  # (probes, m, points)
        each = (self.weights[:, :, None] * np.exp(-0.5 * z**2)).sum(axis=1) / (width * math.sqrt(2 * math.pi))
        error = each.std(axis=0, ddof=1) / math.sqrt(len(each)) if len(each) > 1 else np.full(len(points), np.inf)
        return each.mean(axis=0), error

    def above(self, threshold: float) -> tuple[float, float]:
        """The expected number of eigenvalues above `threshold`, and its standard error."""
        each = self.n * (self.weights * (self.nodes > threshold)).sum(axis=1)
        error = each.std(ddof=1) / math.sqrt(len(each)) if len(each) > 1 else math.inf
        return float(each.mean()), float(error)


def spectral_density(
    operator: LinearOperator,
    steps: int = 30,
    probes: int = 4,
    seed: int = 0,
    known: list[tuple[np.ndarray, np.ndarray]] | None = None,
    on_product: Callable[[int, int], None] | None = None,
    on_probe: Callable[[list[tuple[np.ndarray, np.ndarray]]], None] | None = None,
) -> Density:
    """Nodes and weights from `probes` runs of `steps` Lanczos steps.

    Args:
        operator: symmetric.
        steps: m, at most n.
        probes: random sign vectors.
        seed: names the probes.
        known: results of the first probes, to go on from.
        on_product: called with (products done, products in all).
        on_probe: called with the results so far after each probe.

    Raises:
        CurvatureError: fewer than one step or probe.
    """
    if steps < 1 or probes < 1:
        raise CurvatureError(f"a density from {probes} probes of {steps} steps: expected at least one of each")
    steps = min(steps, operator.n)
    like = operator.empty()
    done = list(known or [])[:probes]
    products = 0
    for index in range(len(done), probes):
        krylov = Krylov.begin(rademacher(operator.n, like, seed, index))
        while krylov.size < steps and krylov.following is not None:
            krylov.extend(operator)
            products += 1
            if on_product is not None:
                on_product(index * steps + krylov.size, probes * steps)
        values, columns = np.linalg.eigh(krylov.projected)
        pad = steps - len(values)  # an exhausted space is a shorter rule, exact all the same
        done.append((np.pad(values, (0, pad), mode="edge"), np.pad(columns[0] ** 2, (0, pad))))
        if on_probe is not None:
            on_probe(done)
    return Density(np.array([v for v, _ in done]), np.array([w for _, w in done]), operator.n, products)
