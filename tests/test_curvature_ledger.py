"""What is kept on the disk is what was in memory, through restarts too, and no more than that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from landscape.curvature import Krylov, Matrix, StopRule, eigenvalues
from landscape.curvature.ledger import Ledger

RULE = StopRule(1e-8, 1e-8)


@pytest.fixture
def matrix() -> torch.Tensor:
    noise = torch.randn(40, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return noise + noise.T


@pytest.mark.parametrize("max_basis", [None, 8])
@pytest.mark.parametrize("after", [1, 7, 8, 9, 13, 14])
def test_a_space_goes_on_from_the_disk(tmp_path: Path, matrix: torch.Tensor, max_basis: int | None, after: int):
    ledger, start = Ledger(tmp_path / "state", "key"), torch.ones(40, dtype=torch.float64)
    whole = eigenvalues(Matrix(matrix), start, rule=RULE, max_basis=max_basis)
    assert whole.products > 15

    def save(krylov: Krylov) -> None:
        ledger.save_krylov("space", krylov)

    eigenvalues(Matrix(matrix), start, rule=RULE, max_products=after, max_basis=max_basis, on_product=save)
    loaded = Ledger(tmp_path / "state", "key").load_krylov("space", torch.empty(0, dtype=torch.float64))
    assert loaded is not None and loaded.products == after
    again = eigenvalues(Matrix(matrix), start, rule=RULE, max_basis=max_basis, krylov=loaded, on_product=save)
    assert again.products == whole.products - after
    np.testing.assert_array_equal(again.values, whole.values)
    assert (again.missed, again.unseen) == pytest.approx((whole.missed, whole.unseen), rel=1e-6, abs=0)
    assert torch.equal(again.vectors, whole.vectors)
    kept = len(list((tmp_path / "state").glob("space-*.npz")))
    assert kept == loaded.size + (loaded.following is not None)  # nothing of before the last restart


def test_two_spaces_and_an_exhausted_one(tmp_path: Path, matrix: torch.Tensor):
    ledger, like = Ledger(tmp_path / "state", "key"), torch.empty(0, dtype=torch.float64)
    small = Krylov.begin(torch.ones(3, dtype=torch.float64))
    small.extend(Matrix(torch.eye(3, dtype=torch.float64)))
    assert small.following is None
    large = Krylov.begin(torch.ones(40, dtype=torch.float64))
    large.extend(Matrix(matrix))
    ledger.save_krylov("small", small)
    ledger.save_krylov("large", large)
    one, other = ledger.load_krylov("small", like), ledger.load_krylov("large", like)
    assert one is not None and one.following is None and torch.equal(one.basis, small.basis)
    assert other is not None and torch.equal(other.basis, large.basis)
    assert ledger.load_krylov("none", like) is None


def test_what_another_run_left_is_thrown_away(tmp_path: Path):
    Ledger(tmp_path / "state", "one").save("numbers", x=np.arange(3))
    assert Ledger(tmp_path / "state", "one").load("numbers") is not None
    assert Ledger(tmp_path / "state", "another").load("numbers") is None
