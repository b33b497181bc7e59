"""The outer eigenvalues of an operator by Lanczos iteration with full reorthogonalization.

A Krylov space holds span{x, Ax, A²x, …} as orthonormal rows Q with T = QAQᵀ. Its Ritz values converge to the outer
eigenvalues, the top one long before a power iteration does. Whatever the products are worth, everything else is
accumulated in float64: without that, Lanczos stalls at three digits.

Two things are known about a Ritz value θ with Ritz vector y, and both are reported:

* the residual r = ‖Ay − θy‖: some eigenvalue lies within r of θ;
* how much could be missing. Any eigenvector v with eigenvalue λ obeys (λ − T)Qv = β⟨q₊, v⟩e_m, so the share of the
  start vector that it can hold is at most (s·z)²/(1 + ‖z‖²), with z = β(λ − T)⁻¹e_m and s the start in the basis. It is
  the Christoffel function of the start vector's spectral measure: it falls exponentially with every step for λ beyond
  the Ritz values. No Krylov method can exclude an eigenvector that the start vector does not contain; this number says
  how little of it there must be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from landscape.curvature import vectors
from landscape.curvature.operators import LinearOperator
from landscape.errors import CurvatureError

Progress = Callable[[int, int], None]
MARGIN = 0.05  # what is excluded is an eigenvalue this much further out
_COLUMNS = 1 << 20
_SPAN_END = 1e-6  # β below this times ‖T‖: the Krylov space holds all the start vector can reach


@dataclass(frozen=True)
class Eigenvalues:
    """Outer eigenvalues of an operator, from the outermost inwards.

    Attributes:
        which: "top" (largest algebraic) or "bottom" (smallest algebraic).
        values: Ritz values (k,).
        residuals: ‖Ay − θy‖ of each (k,): some eigenvalue lies this near.
        converged: which of them met the stop rule (k,).
        missed: another eigenvector beyond values[-1] holds at most this many times the share of the start vector
            that those found hold.
        unseen: the largest share of the start vector that an eigenvector more than 5 % (of the largest Ritz value
            in magnitude) beyond values[0] can hold.
        scale: the largest magnitude of all Ritz values, what small residuals are measured by.
        products: vectors multiplied.
        vectors: eigenvectors (k, n) as rows.
    """

    which: Literal["top", "bottom"]
    values: np.ndarray
    residuals: np.ndarray
    converged: np.ndarray
    missed: float
    unseen: float
    scale: float
    products: int
    vectors: Tensor


@dataclass
class Krylov:
    """An orthonormal basis, the operator projected on it, and what comes next: all that is needed to go on."""

    store: Tensor  # (capacity, n), of which the first m rows are the basis
    projected: np.ndarray  # (m, m), T = QAQᵀ
    following: Tensor | None  # q₊ (n,), the next basis vector; None when the space is exhausted
    beta: float  # ‖A q_m − its projection‖
    dropped: list[tuple[np.ndarray, ...]] = field(default_factory=list)  # what restarts left out; see `_start`
    products: int = 0  # so far

    @classmethod
    def begin(cls, start: Tensor, out: Tensor | None = None) -> Krylov:
        """The space that holds nothing yet and goes on with `start`, which `out` may be.

        Raises:
            CurvatureError: a zero or non-finite start vector.
        """
        length = vectors.norm(start)
        if not (length > 0 and math.isfinite(length)):
            raise CurvatureError(f"a start vector of length {length}: expected one that is neither zero nor infinite")
        first = torch.div(start, length, out=out)
        return cls(start.new_empty((0, len(start))), np.zeros((0, 0)), first, 0.0)

    @property
    def size(self) -> int:
        """The dimension m."""
        return len(self.projected)

    @property
    def basis(self) -> Tensor:
        """Q, orthonormal rows (m, n)."""
        return self.store[: self.size]

    def extend(self, operator: LinearOperator, room: int | None = None) -> None:
        """One product: q₊ joins the basis, A q₊ minus its projection is what follows. At most `room` vectors."""
        assert self.following is not None
        image = operator @ self.following
        if not math.isfinite(vectors.norm(image)):
            raise CurvatureError("a product with a non-finite result: the loss has no curvature at this point")
        m = self.size
        if m == len(self.store):
            larger = operator.new(min(max(16, 2 * m), room or operator.n), operator.n)
            larger[:m] = self.store
            self.store = larger
        self.store[m] = self.following
        along = vectors.remove(image, self.store[: m + 1]).numpy()
        # what is decided from these must be decided alike on all ranks
        along, self.beta = operator.ranks.told((along, vectors.norm(image)))
        grown = np.zeros((m + 1, m + 1))
        grown[:m, :m] = self.projected
        grown[m, :] = grown[:, m] = along
        self.projected = grown
        exhausted = self.beta <= _SPAN_END * float(np.abs(grown).max()) or m + 1 == operator.n
        self.following = None if exhausted else image.div_(self.beta)
        self.products += 1

    def ritz(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ritz values in descending order (m,), their coordinates as columns (m, m), and residuals (m,)."""
        values, columns = np.linalg.eigh(self.projected)
        values, columns = values[::-1], columns[:, ::-1]
        return values, columns, self.beta * np.abs(columns[-1])

    def unseen(self, at: float) -> float:
        """The largest share of the start vector in an eigenvector with eigenvalue `at`, beyond the Ritz values."""
        if self.following is None:
            return 0.0
        last = np.zeros(self.size)
        last[-1] = self.beta
        z = np.linalg.solve(at * np.eye(self.size) - self.projected, last)
        return float((self._start(at) @ z) ** 2 / (1.0 + z @ z))

    def missed(self, which: str, k: int) -> float:
        """How much less of the start another eigenvector beyond the k outermost Ritz values can hold than these do.

        As `unseen`, for eigenvectors orthogonal to the k Ritz vectors found, at the k-th Ritz value, over the smallest
        share of the start among those found.
        """
        if self.following is None:
            return 0.0
        values, columns, _ = self.ritz()
        if which == "bottom":
            values, columns = values[::-1], columns[:, ::-1]
        if len(values) <= k:
            return math.inf
        at = values[k - 1]
        start = columns.T @ self._start(at)
        gaps = np.where(values[k:] == at, np.finfo(float).tiny, at - values[k:])
        z = self.beta * columns[-1, k:] / gaps
        least = float((start[:k] ** 2).min())
        return float((start[k:] @ z) ** 2 / (1.0 + z @ z)) / least if least else math.inf

    def _start(self, at: float) -> np.ndarray:
        """The start vector in the basis (m,). What a restart dropped acts on an eigenvector with eigenvalue `at`
        through its remainder, and counts as part of the vector that came next.
        """  # noqa: D205
        start = np.ones(1)
        for columns, values, last, keep in self.dropped:
            start = np.pad(start, (0, len(columns) - len(start)))
            start = np.append(keep.T @ start, (columns.T @ start) @ (last / (at - values)))
        return np.pad(start, (0, self.size - len(start)))

    def shrink(self, keep: np.ndarray) -> None:
        """Thick restart (Wu and Simon 2000): only the Ritz vectors with coordinates `keep` (m, p) stay in the basis."""
        values, columns = np.linalg.eigh(self.projected)
        out = np.linalg.norm(keep.T @ columns, axis=0) < 0.5
        self.dropped.append((columns[:, out], values[out], self.beta * columns[-1, out], keep))
        mix = torch.from_numpy(keep.T.copy()).to(self.basis)
        for some in self.basis.split(_COLUMNS, dim=1):  # in place: restarts happen where memory is short
            some[: len(mix)] = mix @ some
        self.projected = keep.T @ self.projected @ keep


@dataclass(frozen=True)
class StopRule:
    """When the k outermost Ritz values are taken for eigenvalues.

    Attributes:
        tolerance: the residual of each, relative to its Ritz value, or to a tenth of the largest if it is smaller.
        missed: see `Eigenvalues.missed`. A residual says that some eigenvalue is near, not that it is the top one.
    """

    tolerance: float = 1e-2
    missed: float = 1e-3

    def small(self, values: np.ndarray, residuals: np.ndarray, scale: float) -> np.ndarray:
        """Which residuals are within the tolerance."""
        return residuals <= self.tolerance * np.maximum(np.abs(values), 0.1 * scale)


def eigenvalues(
    operator: LinearOperator,
    start: Tensor,
    k: int = 1,
    which: Literal["top", "bottom"] = "top",
    rule: StopRule = StopRule(),
    max_products: int = 100,
    max_basis: int | None = None,
    krylov: Krylov | None = None,
    on_product: Callable[[Krylov], None] | None = None,
) -> Eigenvalues:
    """The k largest (or smallest) algebraic eigenvalues of `operator`.

    Args:
        operator: symmetric.
        start: a vector with a share in the eigenvectors sought, such as the gradient plus noise, or the eigenvector
            of the checkpoint before.
        k: how many.
        which: from the top or from the bottom.
        rule: when to stop.
        max_products: stop there in any case; what has not met the rule is then marked.
        max_basis: vectors kept at a time (≥ k + 3); reaching it restarts with the best. None: never.
        krylov: a space to go on with instead of `start`; it is extended in place.
        on_product: called with the space after each product.

    Raises:
        CurvatureError: a start vector without length, or k that does not fit.
    """
    if not 1 <= k <= operator.n:
        raise CurvatureError(f"k = {k} eigenvalues: expected 1 to {operator.n}")
    if max_basis is not None and max_basis < k + 3:
        raise CurvatureError(f"a basis of {max_basis} vectors: {k} eigenvalues need at least {k + 3}")
    krylov = krylov or Krylov.begin(start)
    products = 0
    while True:
        if krylov.size:
            found = outermost(krylov, k, which, rule)
            if found.converged.all() or krylov.following is None or products >= max_products:
                return _with_vectors(found, krylov, k, which, products, operator.new(len(found.values), operator.n))
        if max_basis is not None and krylov.size >= max_basis:
            _, columns, _ = krylov.ritz()
            order = columns if which == "top" else columns[:, ::-1]
            krylov.shrink(order[:, : min(k + (max_basis - k) // 2, max_basis - 2)])
        krylov.extend(operator, max_basis)
        products += 1
        if on_product is not None:
            on_product(krylov)


def outermost(krylov: Krylov, k: int, which: str, rule: StopRule) -> Eigenvalues:
    """What the space says now of the k outermost eigenvalues, without their vectors."""
    values, _, residuals = krylov.ritz()
    scale = float(np.abs(values).max()) or 1.0
    if which == "bottom":
        values, residuals = values[::-1], residuals[::-1]
    beyond = values[0] + (MARGIN * scale if which == "top" else -MARGIN * scale)
    unseen = krylov.unseen(beyond)
    complete = krylov.following is None
    enough = len(values) >= k or complete
    missed = krylov.missed(which, k) if enough else math.inf
    met = rule.small(values[:k], residuals[:k], scale) & (missed <= rule.missed) | complete
    values, residuals = values[:k].copy(), residuals[:k].copy()
    return Eigenvalues(which, values, residuals, met, missed, unseen, scale, 0, torch.empty(0))  # type: ignore[arg-type]


def _with_vectors(found: Eigenvalues, krylov: Krylov, k: int, which: str, products: int, out: Tensor) -> Eigenvalues:
    _, columns, _ = krylov.ritz()
    chosen = (columns if which == "top" else columns[:, ::-1])[:, :k]
    rows = torch.mm(torch.from_numpy(chosen.T.copy()).to(krylov.basis), krylov.basis, out=out)
    return replace(found, products=products, vectors=rows)
