"""tr A by Hutchinson's estimator, with its standard error, and per layer from the same probes.

    tr A = E[zᵀ A z]   for independent random signs z

For A = Σ_b A_b, every batch gets probes of its own. The expectation and the cost are the same, and the variance is
smaller, by up to the number of batches where their matrices are alike.

Sampling stops on the standard error of the mean, never on the mean's own changes: those are small now and then by luck.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from landscape.curvature import vectors
from landscape.curvature.operators import LinearOperator
from landscape.curvature.probes import rademacher
from landscape.errors import CurvatureError

Places = Mapping[str, tuple[slice, ...]]


@dataclass(frozen=True)
class Budget:
    """When sampling stops: at the relative standard error asked for, but within these numbers of rounds."""

    relative_error: float = 0.01
    minimum: int = 10
    maximum: int = 200

    def __post_init__(self) -> None:
        if not (self.relative_error >= 0 and 2 <= self.minimum <= self.maximum):
            raise CurvatureError(
                f"probes from {self.minimum} to {self.maximum} at a relative error of {self.relative_error}: expected "
                "2 ≤ minimum ≤ maximum and an error of at least 0"
            )

    def met(self, value: float, standard_error: float, rounds: int) -> bool:
        """Whether `rounds` are enough."""
        if rounds >= self.maximum:
            return True
        return rounds >= self.minimum and standard_error <= self.relative_error * abs(value)

    def expected(self, samples: np.ndarray) -> int:
        """Rounds in all, as far as these samples tell."""
        value, error = mean_and_error(samples)
        if not (math.isfinite(error) and value and self.relative_error):
            return self.maximum
        needed = math.ceil(len(samples) * (error / (self.relative_error * value)) ** 2)
        return min(max(needed, self.minimum, len(samples)), self.maximum)


@dataclass(frozen=True)
class Trace:
    """An estimate of a trace.

    Attributes:
        value, standard_error: of the whole trace.
        samples: one unbiased estimate per round (rounds,).
        reached: whether the relative error asked for was reached.
        products: vectors multiplied, or 0 where only losses were evaluated.
        method: how it was found.
        layers: (value, standard error) per layer.
        disagreement: for differences, how far the two step sizes disagree, in units of the trace.
    """

    value: float
    standard_error: float
    samples: np.ndarray
    reached: bool
    products: int
    method: str
    layers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    disagreement: float = 0.0


def mean_and_error(samples: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean and standard error of independent samples; the error of fewer than two is infinite."""
    values = np.asarray(samples, dtype=float)
    if len(values) < 2:
        return (float(values.mean()) if len(values) else math.nan), math.inf
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def hutchinson(
    operator: LinearOperator,
    budget: Budget = Budget(),
    seed: int = 0,
    block: int = 8,
    layers: Places | None = None,
    deflate: Tensor | None = None,
    known: np.ndarray | None = None,
    on_round: Callable[[np.ndarray], None] | None = None,
) -> Trace:
    """Hutchinson's estimate of tr A.

    Args:
        operator: its parts are probed independently.
        budget: when to stop. A round is one probe for every part: the cost of one product with A.
        seed: names the probes.
        block: rounds whose products share their graphs.
        layers: places of elements whose share of the trace is wanted too.
        deflate: orthonormal rows Q (k, n), such as a Krylov basis. tr(QᵀAQ) is then exact, for k products, and only
            the rest is sampled. Not together with `layers`.
        known: samples of earlier rounds, (rounds, 1 + number of layers), to go on from.
        on_round: called with all samples so far, after every block.
    """
    if deflate is not None and layers:
        raise CurvatureError("per-layer traces and deflation: choose one; a basis is spread over all layers")
    places = dict(layers or {})
    parts, like, ranks = operator.parts(), operator.empty(), operator.ranks
    rows = [] if known is None else list(np.atleast_2d(known))
    exact, fresh = 0.0, len(rows)
    if deflate is not None and len(deflate):
        images = (operator @ deflate.T).T
        exact = math.fsum(vectors.dot(q, image) for q, image in zip(deflate, images, strict=True))
    while True:
        samples = np.array(rows).reshape(len(rows), 1 + len(places))
        value, error = mean_and_error(samples[:, 0] + exact)
        if budget.met(value, error, len(rows)):
            break
        wanted = min(block, budget.maximum - len(rows))
        first = len(rows)
        own = [np.zeros((wanted, 1 + len(places))) for _ in parts]
        for index, part, found in zip(itertools.count(ranks.rank, ranks.size), parts, own, strict=False):
            z = torch.stack([rademacher(operator.n, like, seed, first + i, index) for i in range(wanted)])
            if deflate is not None:
                for row in z:
                    vectors.remove(row, deflate)
            images = (part @ z.T).T
            for i in range(wanted):
                if places:
                    product = z[i] * images[i]
                    found[i, 1:] += [
                        math.fsum(float(product[place].sum(dtype=torch.float64)) for place in pieces)
                        for pieces in places.values()
                    ]
                found[i, 0] += vectors.dot(z[i], images[i])
        rows.extend(sum(ranks.merged(own), np.zeros((wanted, 1 + len(places)))))
        if on_round is not None:
            on_round(np.array(rows))
    products = len(rows) - fresh + (len(deflate) if deflate is not None else 0)
    return Trace(
        value,
        error,
        samples[:, 0] + exact,
        bool(error <= budget.relative_error * abs(value)),
        products,
        "hutchinson" + ("-deflated" if deflate is not None else ""),
        {name: mean_and_error(samples[:, 1 + i]) for i, name in enumerate(places)},
    )
