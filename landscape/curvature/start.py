"""Where a Lanczos iteration begins."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from landscape.curvature import vectors
from landscape.curvature.lanczos import Krylov
from landscape.curvature.operators import LinearOperator
from landscape.curvature.probes import gaussian


def noisy(gradient: Tensor, seed: int, share: float = 0.1, out: Tensor | None = None) -> Tensor:
    """The gradient's direction with noise of a given share of its squared length; noise alone where it vanishes.

    The gradient leans towards the sharp directions. The noise keeps a symmetry of the model from hiding one. The result
    is in `out`, if it is given.
    """
    noise = gaussian(len(gradient), gradient, seed, *vectors.piece(), out=out)
    noise /= vectors.norm(noise)
    length = vectors.norm(gradient)
    if not length > 0:
        return noise
    return noise.mul_(math.sqrt(share)).add_(gradient, alpha=math.sqrt(1 - share) / length)


def draft(operator: LinearOperator, start: Tensor, share: float = 0.25, steps: int = 8) -> tuple[Tensor, float]:
    """A start vector from a Lanczos run on a share of the data, and what it cost in products with all of them.

    The sharpest directions of a part of the batches are close to those of all. Its Ritz vectors, weighted by the
    square of their Ritz values, can hold hundreds of times more of the eigenvectors sought than the gradient does.
    """
    own, ranks = operator.parts(), operator.ranks
    parts = sum(ranks.collect(len(own)))
    taken = max(1, math.floor(share * parts))
    some = _Sum(own[: len(ranks.share(taken))], operator)
    krylov = Krylov.begin(start)
    while krylov.size < steps and krylov.following is not None:
        krylov.extend(some)
    values, columns, _ = krylov.ritz()
    mixed = (columns * values[None] ** 2).sum(axis=1)
    return torch.from_numpy(mixed).to(krylov.basis) @ krylov.basis, krylov.size * taken / parts


class _Sum(LinearOperator):
    def __init__(self, terms: Sequence[LinearOperator], like: LinearOperator) -> None:
        super().__init__(like.n, like.dtype, like.device)
        self.terms, self.ranks = list(terms), like.ranks

    def _multiply(self, rows: Tensor) -> Tensor:
        return self.ranks.sum(sum(((term @ rows.T).T for term in self.terms), torch.zeros_like(rows)))
