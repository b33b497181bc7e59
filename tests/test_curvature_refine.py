"""Eigenvalues of a matrix from those of another one near it: exact where that was near enough, marked where not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from landscape.curvature import Matrix, StopRule, eigenvalues, refine

N = 50
SPECTRUM = np.r_[10.0, 8.0, 5.0, np.linspace(1, -3, N - 3)]


def symmetric(seed: int) -> Tensor:
    """Random, of norm 1."""
    noise = np.random.default_rng(seed).standard_normal((N, N))
    noise = noise + noise.T
    return torch.from_numpy(noise / np.linalg.norm(noise, 2))


@pytest.fixture
def matrix() -> Tensor:
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((N, N)))[0]
    return torch.from_numpy((q * SPECTRUM) @ q.T)


def start() -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).standard_normal(N))


@pytest.mark.parametrize(("which", "k"), [("top", 1), ("top", 3), ("bottom", 2)])
def test_errors_are_squared(matrix: Tensor, which: str, k: int):
    off = []
    exact = SPECTRUM[:k] if which == "top" else np.sort(SPECTRUM)[:k]
    for size in (1e-2, 1e-3):
        rough = eigenvalues(Matrix(matrix + size * symmetric(2)), start(), k, which, StopRule(1e-10, 1e-10))
        operator = Matrix(matrix)
        found = refine(operator, rough, StopRule(tolerance=0.05))
        assert operator.products == k and found.products == rough.products + k
        assert found.converged.all() and found.which == which
        off.append((np.abs(rough.values - exact).max(), np.abs(found.values - exact).max()))
        truth = found.vectors @ matrix - torch.from_numpy(found.values)[:, None] * found.vectors
        assert found.residuals == pytest.approx(truth.norm(dim=1).numpy(), rel=1e-9)
        assert (found.vectors @ found.vectors.T).numpy() == pytest.approx(np.eye(k), abs=1e-12)
    (rough_1, found_1), (rough_2, found_2) = off
    assert rough_1 / rough_2 == pytest.approx(10, rel=0.3)
    assert found_1 / found_2 == pytest.approx(100, rel=0.3)
    assert found_1 < 0.1 * rough_1


def test_what_is_too_rough_is_marked_and_a_good_start(matrix: Tensor):
    rough = eigenvalues(Matrix(matrix + 4 * symmetric(3)), start())
    found = refine(Matrix(matrix), rough)
    assert rough.converged.all() and not found.converged.any()
    assert found.residuals[0] > 0.01 * found.values[0]
    on = eigenvalues(Matrix(matrix), found.vectors.sum(0))
    assert on.converged.all() and on.values == pytest.approx([10], rel=1e-4)
    assert on.products < eigenvalues(Matrix(matrix), start()).products


def test_what_had_not_converged_stays_so(matrix: Tensor):
    rough = eigenvalues(Matrix(matrix), start(), max_products=2)
    again = refine(Matrix(matrix), rough, StopRule(tolerance=10.0))
    assert not rough.converged.any() and not again.converged.any()
    assert again.values == pytest.approx(rough.values) and again.residuals == pytest.approx(rough.residuals)
