"""A symmetric matrix known by its products, and what can be built from one without looking inside."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from landscape.curvature import vectors
from landscape.errors import CurvatureError
from landscape.machine.memory import available
from landscape.machine.ranks import ALONE, Ranks


class LinearOperator(ABC):
    """A symmetric n×n matrix A: `A @ v` for a vector (n,), `A @ V` for a block of k vectors (n, k).

    Blocks lie in memory as k rows of n elements: `V = rows.T` costs nothing, and `(A @ V).T` is contiguous.

    Attributes:
        n: the dimension.
        dtype, device: of its vectors.
        products: vectors multiplied so far.
        ranks: those that multiply together, all with the same vector; `parts` are those of this one.
    """

    ranks: Ranks = ALONE

    def __init__(self, n: int, dtype: torch.dtype, device: torch.device) -> None:
        self.n, self.dtype, self.device = n, dtype, device
        self.products = 0

    def empty(self) -> Tensor:
        """No elements, but of the dtype and on the device of the operator's vectors."""
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def new(self, *shape: int) -> Tensor:
        """A tensor of zeros where the operator's vectors are: on the disk, where memory does not hold them."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def room(self) -> int:
        """Bytes that are free for vectors."""
        return available(self.device)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return self.n, self.n

    def __matmul__(self, v: Tensor) -> Tensor:
        """A·v or A·V.

        Raises:
            CurvatureError: a vector of another length, dtype or device, or one that is not finite.
        """
        if v.ndim not in (1, 2) or v.shape[0] != self.n:
            raise CurvatureError(
                f"a vector of shape {tuple(v.shape)}: expected ({self.n},) or ({self.n}, k), an element per parameter"
            )
        if v.dtype != self.dtype or v.device.type != self.device.type:
            raise CurvatureError(
                f"a vector of {v.dtype} on {v.device}: expected {self.dtype} on {self.device}, as the parameters"
            )
        if not math.isfinite(vectors.norm(v)):
            raise CurvatureError("a vector that is not finite: expected numbers; was the loss it came from finite?")
        rows = v[None] if v.ndim == 1 else v.T.contiguous()
        self.products += len(rows)
        product = self._multiply(rows.detach())
        return product[0] if v.ndim == 1 else product.T

    @abstractmethod
    def _multiply(self, rows: Tensor) -> Tensor:
        """A applied to each of k rows (k, n); new rows (k, n)."""

    def release(self) -> None:  # noqa: B027 - most keep nothing
        """Forget what is kept from product to product; the next one makes it again."""

    def parts(self) -> Sequence[LinearOperator]:
        """Operators that add up to this one and cost as much together as it does; itself where there are none.

        Of several ranks each has some: those of `ranks.share`.
        """
        return [self]


class Matrix(LinearOperator):
    """A dense symmetric matrix as an operator: for tests, and for matrices that are small."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(len(matrix), matrix.dtype, matrix.device)
        self.matrix = matrix

    def _multiply(self, rows: Tensor) -> Tensor:
        return rows @ self.matrix.T


class Scaled(LinearOperator):
    """D A D for a diagonal D (n,). Its trace is Σ D_i² A_ii: what of δᵀAδ, D = δ, is due to each element alone.

    Raises:
        CurvatureError: a diagonal of another shape.
    """

    def __init__(self, operator: LinearOperator, scale: Tensor) -> None:
        super().__init__(operator.n, operator.dtype, operator.device)
        if scale.shape != (operator.n,):
            raise CurvatureError(f"a diagonal of shape {tuple(scale.shape)}: expected ({operator.n},)")
        self.operator, self.ranks = operator, operator.ranks
        self.scale = scale.to(device=operator.device, dtype=operator.dtype)

    def _multiply(self, rows: Tensor) -> Tensor:
        return (self.operator @ (rows * self.scale).T).T * self.scale

    def parts(self) -> Sequence[LinearOperator]:
        """The parts of the operator, each scaled."""
        inner = self.operator.parts()
        return [self] if inner[0] is self.operator else [Scaled(part, self.scale) for part in inner]


class Preconditioned(Scaled):
    """P^{−1/2} A P^{−1/2} for a positive diagonal P (n,).

    With Adam's P = √v̂ + ε this is the matrix whose largest eigenvalue meets 2/η (more exactly (2 + 2β₁)/((1 − β₁)η)) at
    the edge of stability of Adam (Cohen et al. 2022, arXiv 2207.14484).

    Raises:
        CurvatureError: an element of the diagonal is not positive and finite.
    """

    def __init__(self, operator: LinearOperator, diagonal: Tensor) -> None:
        odd = int((~(torch.isfinite(diagonal) & (diagonal > 0))).sum())
        if odd:
            raise CurvatureError(
                f"a preconditioner with {odd} elements that are not positive and finite: add ε before preconditioning"
            )
        super().__init__(operator, diagonal.to(operator.device).double().rsqrt())
