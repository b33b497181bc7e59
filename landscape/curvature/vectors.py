"""Reductions over long vectors, accumulated in float64.

float32 sums over millions of elements are off by 1e-4 to 1e-2 on a CPU, enough to stall Lanczos at three digits. Here
short blocks are summed in the vectors' own precision, and the blocks in float64: as exact as converting the vectors,
without the second copy of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from landscape.machine.ranks import ALONE, Ranks

_CACHED = 1 << 18
_BLOCK = 1 << 10  # a float32 dot product over 1024 elements is good to about 1e-7
_ranks: ContextVar[Ranks] = ContextVar("ranks", default=ALONE)


@contextmanager
def in_pieces(ranks: Ranks) -> Iterator[None]:
    """Within, every vector lies in pieces on `ranks`, all of which run the same lines: reductions add up theirs."""
    before = _ranks.set(ranks)
    try:
        yield
    finally:
        _ranks.reset(before)


def piece() -> tuple[int, ...]:
    """What tells this rank's piece from others; nothing where vectors are whole."""
    ranks = _ranks.get()
    return () if ranks.size == 1 else (ranks.rank,)


def length(tensors: Iterable[Tensor]) -> float:
    """‖v‖₂ of tensors laid one after the other."""
    own, ranks = math.hypot(*map(_norm, tensors)), _ranks.get()
    return own if ranks.size == 1 else math.hypot(*ranks.gather(torch.tensor(own, dtype=torch.float64)))


def norm(vector: Tensor) -> float:
    """‖v‖₂, of a block of vectors too."""
    return length([vector])


def _norm(vector: Tensor) -> float:
    if vector.device.type != "cpu" or vector.dtype == torch.float64:
        return float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    # torch converts all of it first: some at a time are in the cache then, and need no second copy of the vector
    parts = vector.reshape(-1).split(_CACHED)
    return math.hypot(*(float(torch.linalg.vector_norm(part, dtype=torch.float64)) for part in parts))


def dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩."""
    return float(coefficients(a[None], b)[0])


def coefficients(rows: Tensor, vector: Tensor) -> Tensor:
    """⟨row, v⟩ for each row of a block (k, n); float64 (k,), on the CPU."""
    found, ranks = _coefficients(rows, vector), _ranks.get()
    return found if ranks.size == 1 else sum(ranks.gather(found), torch.zeros_like(found))


def _coefficients(rows: Tensor, vector: Tensor) -> Tensor:
    k, n = rows.shape
    if vector.dtype == torch.float64:
        return (rows @ vector).cpu()
    whole = n - n % _BLOCK
    total = (rows[:, whole:].double() @ vector[whole:].double()).cpu()
    blocks = vector[:whole].view(-1, _BLOCK, 1)  # (blocks, _BLOCK, 1)
    for i in range(k if whole else 0):
        products = torch.bmm(rows[i, :whole].view(-1, 1, _BLOCK), blocks)  # (blocks, 1, 1)
        total[i] += products.sum(dtype=torch.float64).cpu()
    return total


def combine(rows: Tensor, weights: Tensor) -> Tensor:
    """Σ weightsᵢ · rowᵢ: (k, n) and (k,) to (n,). A sum over k elements only."""
    return weights.to(rows) @ rows


def remove(vector: Tensor, rows: Tensor) -> Tensor:
    """Take the components along orthonormal rows (k, n) out of `vector`, in place; the coefficients, float64 (k,).

    Where much is taken out, rounding leaves some of it behind, and a second pass takes that too. Without it the rows of
    a growing basis lose their orthogonality by a factor per row (twice is enough: Giraud et al. 2005).
    """
    found = torch.zeros(len(rows), dtype=torch.float64)
    before = norm(vector)
    for _ in range(2 if len(rows) else 0):
        along = coefficients(rows, vector)
        vector.addmv_(rows.T, along.to(vector), alpha=-1)
        found += along
        after = norm(vector)
        if after > 0.7 * before:
            break
        before = after
    return found


def orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows that span what the rows (k, n) span, those that depend on others left out."""
    basis = rows.new_empty((0, rows.shape[1]))
    for row in rows:
        length = norm(row)
        rest = row / length if length > 0 else row.clone()
        for _ in range(2):
            remove(rest, basis)
        left = norm(rest)
        if left > 1e-5:
            basis = torch.cat([basis, (rest / left)[None]])
    return basis
