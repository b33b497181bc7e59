"""Θ as a vector: named tensors with the operations of a Euclidean space.

Every reduction accumulates in float64. float32 sums over long vectors are inexact on a CPU (a dot product over
160 million elements is off by 2e-2), which would bend the geometry of a plane before anything is measured on it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from landscape.errors import ModelError

_BLOCK = 1 << 20  # elements upcast to float64 at a time: 8 MB, so a reduction costs no second copy of Θ


class Weights(Mapping[str, Tensor]):
    """Named tensors of one model, a tied tensor once, as one vector of a Euclidean space.

    Immutable by convention: operations return new weights. Two weights can be combined when their names, order and
    shapes agree.

    >>> a = Weights({"w": torch.tensor([3.0, 0.0]), "b": torch.tensor([4.0])})
    >>> a.norm()
    5.0
    >>> (a - 0.5 * a).norm(), a.dot(a), a.numel()
    (2.5, 25.0, 3)

    Attributes:
        keep: where operations put a tensor that they made; what they return keeps there, too.
    """

    def __init__(self, tensors: Mapping[str, Tensor], keep: Callable[[Tensor], Tensor] = lambda made: made) -> None:
        """Take the tensors as they are, without copying."""
        self._tensors, self.keep = dict(tensors), keep

    @classmethod
    def of(cls, module: nn.Module) -> Weights:
        """The parameters of `module`, tied ones once and under their first name; shares their memory."""
        return cls({name: parameter.detach() for name, parameter in module.named_parameters()})

    def __getitem__(self, name: str) -> Tensor:
        """The tensor called `name`."""
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in the model's order."""
        return iter(self._tensors)

    def __len__(self) -> int:
        """The number of tensors."""
        return len(self._tensors)

    def __add__(self, other: Weights) -> Weights:
        """Θ + Θ'."""
        return self._with(other, torch.add)

    def __sub__(self, other: Weights) -> Weights:
        """Θ − Θ'."""
        return self._with(other, torch.sub)

    def __mul__(self, factor: float) -> Weights:
        """c·Θ."""
        return self.made(lambda name: self[name] * factor)

    __rmul__ = __mul__

    def _with(self, other: Weights, operation: Callable[[Tensor, Tensor], Tensor]) -> Weights:
        check_same_space(self, other)
        return self.made(lambda name: operation(self[name], other[name]))

    def made(self, make: Callable[[str], Tensor]) -> Weights:
        """Other weights of this space: what `make` gives for each name, kept where these keep theirs."""
        return Weights({name: self.keep(make(name)) for name in self}, self.keep)

    def scale_(self, factor: float) -> Weights:
        """c·Θ in the memory of Θ."""
        for tensor in self.values():
            tensor.mul_(factor)
        return self

    def numel(self) -> int:
        """The dimension n of the space."""
        return sum(tensor.numel() for tensor in self.values())

    def dot(self, other: Weights) -> float:
        """⟨Θ, Θ'⟩, accumulated in float64."""
        check_same_space(self, other)
        return math.fsum(_dot(tensor, other[name]) for name, tensor in self.items())

    def norm(self) -> float:
        """‖Θ‖₂, accumulated in float64."""
        return math.sqrt(self.dot(self))

    def clone(self) -> Weights:
        """A copy with memory of its own."""
        return self.made(lambda name: self[name].detach().clone())

    def equal(self, other: Weights) -> bool:
        """Whether both hold the same numbers, bit for bit up to the sign of zero."""
        check_same_space(self, other)
        return all(torch.equal(tensor, other[name]) for name, tensor in self.items())

    def fingerprint(self) -> str:
        """SHA-256 over names, shapes and bytes: equal exactly when names and bits are equal."""
        digest = hashlib.sha256()
        for name, tensor in self.items():
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()


def check_same_space(a: Weights, b: Weights) -> None:
    """Raise `ModelError` unless `a` and `b` have the same names, in order, and the same shapes."""
    if list(a) != list(b):
        odd = sorted(set(a) ^ set(b))
        what = f"{odd[0]} is in one only" if odd else "the order of the tensors differs"
        raise ModelError(f"two models with different tensors ({what}): both must have the same architecture")
    for name in a:
        if a[name].shape != b[name].shape:
            raise ModelError(
                f"tensor {name} has shape {tuple(a[name].shape)} in one model and {tuple(b[name].shape)} in the "
                "other: both must have the same architecture"
            )


class Lazy(Mapping[str, Tensor]):
    """Named tensors that are made each time they are asked for, and not kept: weights that memory need not hold.

    >>> Lazy(["w"], lambda name: torch.ones(2))["w"]
    tensor([1., 1.])
    """

    def __init__(self, names: Iterable[str], make: Callable[[str], Tensor]) -> None:
        """`make` gives the tensor of a name."""
        self._names, self._make = tuple(names), make

    def __getitem__(self, name: str) -> Tensor:
        """The tensor called `name`, made now."""
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._names)

    def __len__(self) -> int:
        """The number of tensors."""
        return len(self._names)


def move_to(out: Weights, origin: Weights, alpha: float, u: Weights, beta: float, v: Weights | None) -> Weights:
    """Set `out` to origin + α·u + β·v, computed from the masters in memory that exists, so nothing drifts.

    With α = β = 0 the result equals `origin` exactly. Without v it is origin + α·u.
    """
    for name, target in out.items():
        torch.add(origin[name], u[name], alpha=alpha, out=target)
        if v is not None:
            target.add_(v[name], alpha=beta)
    return out


def place(origin: Weights, alpha: float, u: Weights, beta: float, v: Weights | None) -> Lazy:
    """The weights that `move_to` would give, to the bit, a tensor at a time."""

    def make(name: str) -> Tensor:
        moved = torch.add(origin[name], u[name], alpha=alpha)
        return moved if v is None else moved.add_(v[name], alpha=beta)

    return Lazy(origin, make)


def random_direction(like: Weights, seed: int, by: str = "filter") -> Weights:
    """A seeded Gaussian direction, normalized `by` filter or layer: its rows, or matrices, have the norms of `like`'s.

    Vectors (biases and norms) are left out (zero), as in Li et al. 2018, arXiv 1712.09913, section 4. Drawn on the
    CPU in float32, so a seed means one direction on every device.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(name: str) -> Tensor:
        tensor = like[name]
        drawn = torch.randn(tensor.shape, generator=generator).to(tensor)
        if tensor.ndim < 2:
            return torch.zeros_like(tensor)
        rows, filters = (t.flatten(1) if by == "filter" else t.reshape(1, -1) for t in (drawn, tensor))
        scale = torch.linalg.vector_norm(filters, dim=1) / torch.linalg.vector_norm(rows, dim=1)
        return (rows * scale[:, None]).reshape(tensor.shape)

    return like.made(noise)


def _dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩ in float64, a block at a time."""
    a, b = a.flatten(), b.flatten()
    blocks = zip(a.split(_BLOCK), b.split(_BLOCK), strict=True)
    return math.fsum(torch.dot(x.double(), y.double()).item() for x, y in blocks)
