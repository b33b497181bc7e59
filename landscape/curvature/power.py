"""Power iteration with deflation: the papers' method, for comparison.

It converges to the eigenvalue of largest *magnitude*, at the rate |λ₂/λ₁| per product, and its usual stop rule, a small
change of the Rayleigh quotient, says little about the error that is left. `lanczos.eigenvalues` is the one to use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from landscape.curvature import vectors
from landscape.curvature.operators import LinearOperator
from landscape.curvature.probes import gaussian
from landscape.errors import CurvatureError


@dataclass(frozen=True)
class PowerResult:
    """Eigenvalues of largest magnitude, in the order found.

    Attributes:
        values: Rayleigh quotients (k,).
        residuals: ‖Av − λv‖ (k,).
        converged: whether the change fell below the tolerance (k,): not that the value is right.
        products: vectors multiplied.
        vectors: (k, n) as rows.
    """

    values: np.ndarray
    residuals: np.ndarray
    converged: np.ndarray
    products: int
    vectors: Tensor


def power_iteration(
    operator: LinearOperator,
    k: int = 1,
    tolerance: float = 1e-3,
    max_products: int = 100,
    seed: int = 0,
    start: Tensor | None = None,
) -> PowerResult:
    """The k eigenvalues of largest magnitude, each found orthogonally to those before.

    Args:
        operator: symmetric.
        k: how many.
        tolerance: an eigenvalue is taken when its Rayleigh quotient changes by less than this, relatively.
        max_products: for each eigenvalue.
        seed: of the Gaussian start vectors.
        start: the first start vector instead.

    Raises:
        CurvatureError: a start vector without length.
    """
    like = operator.empty()
    found = torch.empty((0, operator.n), dtype=operator.dtype, device=operator.device)
    values, residuals, converged, products = [], [], [], 0
    for index in range(k):
        v = start.clone() if start is not None and index == 0 else gaussian(operator.n, like, seed, index)
        vectors.remove(v, found)
        value, met, residual = math.nan, False, math.inf
        for _ in range(max_products):
            length = vectors.norm(v)
            if not (length > 0 and math.isfinite(length)):
                raise CurvatureError(f"power iteration from a vector of length {length}: expected another start")
            v = v / length
            image = operator @ v
            products += 1
            previous, value = value, vectors.dot(v, image)
            residual = vectors.norm(image - value * v)
            eigenvector, v = v, image
            vectors.remove(v, found)
            if abs(value - previous) <= tolerance * (abs(previous) + 1e-6):
                met = True
                break
        found = torch.cat([found, eigenvector[None]])
        values.append(value)
        residuals.append(residual)
        converged.append(met)
    return PowerResult(np.array(values), np.array(residuals), np.array(converged), products, found)
