"""An orthogonal change of basis that spreads outliers over all coordinates: the randomized Hadamard transform.

Rounding W R in place of W, with R orthogonal, is what QuaRot (Ashkboos et al. 2024, arXiv 2404.00456) and QuIP#
(arXiv 2402.04396) do: X Wᵀ = (X R)(W R)ᵀ, so a model whose inputs are rotated computes the same, and W R has no large
entries. Here every linear layer has an R of its own, and Ŵ = Q(W R) Rᵀ comes back in the coordinates of W.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotation:
    """R = diag(signs)·(O ⊗ H) on n = m·2^k coordinates: random signs, H the Hadamard matrix of 2^k, O orthogonal m × m.

    m is odd, so that Hadamard does all it can; O is Haar distributed. R is orthogonal to the precision of the weights.
    """

    signs: Tensor
    odd: Tensor

    @classmethod
    def random(cls, n: int, seed: int = 0) -> Rotation:
        """The rotation of n coordinates that belongs to this seed, on any machine."""
        generator = torch.Generator().manual_seed(seed)
        signs = torch.randint(0, 2, (n,), generator=generator, dtype=torch.float64) * 2 - 1
        m = n // (n & -n)
        normal = torch.randn(m, m, generator=generator, dtype=torch.float64)
        q, r = torch.linalg.qr(normal)
        return cls(signs, q * r.diagonal().sign())

    def apply(self, rows: Tensor) -> Tensor:
        """Rows times R, (…, n) → the same shape."""
        parts = (rows * self.signs.to(rows)).unflatten(-1, (len(self.odd), -1))
        return _hadamard(torch.einsum("...mk,mj->...jk", parts, self.odd.to(rows))).flatten(-2)

    def undo(self, rows: Tensor) -> Tensor:
        """Rows times Rᵀ."""
        parts = _hadamard(rows.unflatten(-1, (len(self.odd), -1)))  # H is symmetric
        return torch.einsum("...mk,jm->...jk", parts, self.odd.to(rows)).flatten(-2) * self.signs.to(rows)

    def gram(self, gram: Tensor) -> Tensor:
        """RᵀXᵀX R from XᵀX."""
        return self.apply(self.apply(gram).T)


def _hadamard(rows: Tensor) -> Tensor:
    """Rows times the normalized Hadamard matrix of their length, a power of two, in n log n operations."""
    n, width = rows.shape[-1], 1
    while width < n:
        pairs = rows.unflatten(-1, (-1, 2, width))
        left, right = pairs[..., 0, :], pairs[..., 1, :]
        rows = torch.stack([left + right, left - right], dim=-2).flatten(-3)
        width *= 2
    return rows / n**0.5
