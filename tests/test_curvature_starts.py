"""Probes, start vectors and drafts: named, reproducible, and leaning where they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from landscape.curvature import LinearOperator, Matrix, draft, noisy
from landscape.curvature.probes import gaussian, rademacher


class Parts(LinearOperator):
    def __init__(self, terms: list[LinearOperator]) -> None:
        super().__init__(terms[0].n, terms[0].dtype, torch.device("cpu"))
        self.terms = terms

    def _multiply(self, rows: Tensor) -> Tensor:
        return torch.stack([(term @ rows.T).T for term in self.terms]).sum(0)

    def parts(self) -> list[LinearOperator]:
        return self.terms


def rotated(spectrum: np.ndarray, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A matrix with this spectrum, and its eigenvectors as rows."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((len(spectrum), len(spectrum))))[0]
    return torch.from_numpy((q * spectrum) @ q.T), torch.from_numpy(q.T.copy())


def vector(n: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng([77, seed]).standard_normal(n))


def test_probes_are_named():
    like = torch.empty(0, dtype=torch.float64)
    for draw in (rademacher, gaussian):
        assert torch.equal(draw(1001, like, 3, 1), draw(1001, like, 3, 1))
        others = [draw(1001, like, *name) for name in ((3, 2), (4, 1), (3,), (3, 1, 0), (1, 3))]
        for other in others:  # uncorrelated, not only different
            assert abs(float(other @ draw(1001, like, 3, 1))) < 5 * 1001**0.5
        assert draw(5, like, 0).dtype == torch.float64
        assert draw(5, torch.empty(0), 0).dtype == torch.float32
        assert torch.equal(draw(1001, like, 7).float(), draw(1001, torch.empty(0), 7))
    signs = rademacher(100_003, torch.empty(0), 0)
    assert signs.unique().tolist() == [-1, 1]
    assert len(signs) == 100_003
    assert abs(float(signs.mean())) < 5 / 100_003**0.5
    normal = gaussian(100_000, like, 0)
    assert abs(float(normal.mean())) < 5 / 100_000**0.5
    assert float(normal.var()) == pytest.approx(1, rel=0.03)


def test_the_share_of_noise():
    gradient = 3e-4 * vector(5000)
    for share in (0.0, 0.1, 0.6):
        start = noisy(gradient, 0, share)
        held = float(start @ gradient) ** 2 / float((start @ start) * (gradient @ gradient))
        assert held == pytest.approx(1 - share, abs=0.05)
    noise = noisy(torch.zeros(5000, dtype=torch.float64), 0)
    assert float(noise.norm()) == pytest.approx(1)
    assert torch.allclose(
        noise,
        noise.dtype.is_floating_point
        and gaussian(5000, noise, 0) / noise.norm() * 1.0 / gaussian(5000, noise, 0).norm(),
    )
    assert torch.isfinite(noisy(gradient, 0)).all()


def test_a_draft_from_some_of_the_data_leans_to_the_top():
    rng = np.random.default_rng(0)
    base, _ = rotated(np.r_[10, 5, 0.3 * rng.standard_normal(198)])
    terms = []
    for _ in range(8):
        noise = torch.from_numpy(rng.standard_normal((200, 200))) * 0.05
        terms.append(Matrix((base + noise + noise.T) / 8))
    operator = Parts(terms)
    top = torch.from_numpy(np.linalg.eigh(sum(t.matrix for t in terms).numpy())[1][:, -1].copy())
    start = vector(200)
    better, cost = draft(operator, start)
    assert [term.products for term in terms] == [8, 8, 0, 0, 0, 0, 0, 0]
    assert cost == 8 * 2 / 8

    def held(x: Tensor) -> float:
        return float((x @ top) ** 2 / (x @ x))

    assert held(start) < 0.05
    assert held(better) > 0.5
    assert draft(operator, start, share=0.01, steps=3)[1] == 3 / 8
    assert draft(Matrix(base), start, steps=2)[1] == 2
