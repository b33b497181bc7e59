"""tr A from a sketch of A's range and probes of the rest: Hutch++ and XTrace, for a fixed number of products.

Both pay off when a few hundred products are affordable or the spectrum falls fast; below about a hundred products on
language models plain Hutchinson is as good or better.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from landscape.curvature import vectors
from landscape.curvature.operators import LinearOperator
from landscape.curvature.probes import rademacher
from landscape.curvature.trace import Trace, mean_and_error
from landscape.errors import CurvatureError


def hutch_plus_plus(operator: LinearOperator, products: int = 96, seed: int = 0) -> Trace:
    """Hutch++ (Meyer et al. 2021, arXiv 2010.09649, algorithm 1): a third of the products each to a sketch, to the
    trace within its range, and to probes of what is outside.

    Raises:
        CurvatureError: fewer than 6 products.
    """  # noqa: D205
    third = products // 3
    if third < 2:
        raise CurvatureError(f"Hutch++ with {products} products: expected at least 6")
    basis = vectors.orthonormal(_multiply(operator, _signs(operator, third, seed, 0)))
    within = torch.einsum("kn,kn->", basis.double(), _multiply(operator, basis).double()).item() if len(basis) else 0.0
    probes = _signs(operator, third, seed, 1)
    for probe in probes:
        vectors.remove(probe, basis)
    images = _multiply(operator, probes)
    samples = [within + vectors.dot(z, image) for z, image in zip(probes, images, strict=True)]
    value, error = mean_and_error(samples)
    return Trace(value, error, np.array(samples), True, 2 * third + len(basis), "hutch++")


def xtrace(operator: LinearOperator, products: int = 96, seed: int = 0) -> Trace:
    """XTrace (Epperly, Tropp and Webber 2024, arXiv 2301.07825, section 2.1): each probe is taken outside the range
    that the others sketch, and every probe serves for both.

    With Y = AΩ = QR, S the normalized columns of R⁻ᵀ, W = QᵀΩ, H = QᵀAQ and X = W − S diag(SᵀW), the estimates are
    tr H − diag(SᵀHS) + diag(ΩᵀY) − 2 diag(XᵀQᵀY) + diag(XᵀHX), whose mean is unbiased. They are not
    independent: the standard error taken from their spread is 10 to 30 % short in small problems.

    Raises:
        CurvatureError: fewer than 4 products, or more probes than dimensions.
    """  # noqa: D205
    k = products // 2
    if k < 2 or k > operator.n:
        raise CurvatureError(f"XTrace with {products} products: expected 4 to {2 * operator.n}")
    omega = _signs(operator, k, seed, 0)
    images = _multiply(operator, omega)
    q = torch.linalg.qr(images.T)[0].T.contiguous()  # (k, n)
    r, w, h = _gram(q, images), _gram(q, omega), _gram(q, _multiply(operator, q))
    left, sizes, right = torch.linalg.svd(r)
    live = sizes > k * torch.finfo(operator.dtype).eps * sizes[0]
    s = (left[:, live] / sizes[live]) @ right[live]  # R⁻ᵀ, on the range of R where A has a smaller rank
    s = s / s.norm(dim=0).clamp_min(1e-300)
    s[:, right[~live].norm(dim=0) > 1e-6] = 0.0  # to leave out a probe that depends on the others removes nothing
    x = w - s * (s * w).sum(0)
    outside = torch.tensor([vectors.dot(z, y) for z, y in zip(omega, images, strict=True)], dtype=torch.float64)
    samples = h.trace() - (s * (h @ s)).sum(0) + outside - 2 * (x * r).sum(0) + (x * (h @ x)).sum(0)
    value, error = mean_and_error(samples.numpy())
    return Trace(value, error, samples.numpy(), True, 2 * k, "xtrace")


def _signs(operator: LinearOperator, k: int, *name: int) -> Tensor:
    return torch.stack([rademacher(operator.n, operator.empty(), *name, i) for i in range(k)])


def _multiply(operator: LinearOperator, rows: Tensor, block: int = 8) -> Tensor:
    return torch.cat([(operator @ some.T).T for some in rows.split(block)]) if len(rows) else rows


def _gram(a: Tensor, b: Tensor) -> Tensor:
    """⟨aᵢ, bⱼ⟩ in float64 (len(a), len(b))."""
    return torch.stack([vectors.coefficients(a, row) for row in b], dim=1)
