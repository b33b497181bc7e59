"""Which parameters a curvature operator covers, and their order in its vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from landscape.errors import CurvatureError


@dataclass(frozen=True)
class ParameterSpace:
    """Named tensors laid one after the other in a vector of n elements.

    >>> weights = {"a.weight": torch.zeros(2, 3), "a.bias": torch.zeros(2), "b.weight": torch.zeros(4)}
    >>> space = ParameterSpace.select(weights, ["*", "!*.bias"])
    >>> space.n, space.names
    (10, ('a.weight', 'b.weight'))
    >>> space.layers()
    {'a': (slice(0, 6, None),), 'b': (slice(6, 10, None),)}
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @classmethod
    def select(cls, weights: Mapping[str, Tensor], patterns: str | Iterable[str] = "*") -> ParameterSpace:
        """The tensors of `weights` whose names match a pattern (`*`, `?`, `[…]`) and none that begins with `!`.

        Raises:
            CurvatureError: nothing matches, or the matches are not float32 or float64 masters on one device.
        """
        patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        wanted = [p for p in patterns if not p.startswith("!")] or ["*"]
        unwanted = [p[1:] for p in patterns if p.startswith("!")]
        chosen = [
            name
            for name in weights
            if any(fnmatchcase(name, p) for p in wanted) and not any(fnmatchcase(name, p) for p in unwanted)
        ]
        if not chosen:
            examples = ", ".join(list(weights)[:3])
            raise CurvatureError(
                f"parameters {' '.join(patterns)}: match none of {len(weights)} tensors; expected patterns over "
                f"names such as {examples}"
            )
        first = weights[chosen[0]]
        for name in chosen:
            if weights[name].dtype not in (torch.float32, torch.float64) or weights[name].dtype != first.dtype:
                raise CurvatureError(
                    f"parameter {name} is {_word(weights[name].dtype)}: curvature needs masters of one dtype, float32 "
                    "or float64; load the model so, and let the objective compute in bfloat16 if it should"
                )
            if weights[name].device != first.device:
                raise CurvatureError(
                    f"parameters on {first.device} and {weights[name].device}: expected one device; choose some with a "
                    "pattern, or take differences of gradients"
                )
        return cls(tuple(chosen), tuple(weights[name].shape for name in chosen))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements per tensor."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def n(self) -> int:
        """Elements in all."""
        return sum(self.sizes)

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The chosen tensors as a new vector (n,)."""
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.names])

    def split(self, vector: Tensor) -> list[Tensor]:
        """`vector` (n,) as views in the shapes of the tensors."""
        pieces = vector.split(self.sizes)
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """`vector` (n,) as named views."""
        return dict(zip(self.names, self.split(vector), strict=True))

    def where(self) -> dict[str, slice]:
        """The place of each tensor in a vector."""
        places, start = {}, 0
        for name, size in zip(self.names, self.sizes, strict=True):
            places[name] = slice(start, start + size)
            start += size
        return places

    def layers(self) -> dict[str, tuple[slice, ...]]:
        """The places of each module's tensors: names without their last part."""
        found: dict[str, tuple[slice, ...]] = {}
        for name, place in self.where().items():
            module = name.rpartition(".")[0] or name
            found[module] = (*found.get(module, ()), place)
        return found

    def per_layer(self, elements: Sequence[Tensor] | Tensor) -> dict[str, float]:
        """Σ of an elementwise vector (n,) over each layer, accumulated in float64."""
        vector = elements if isinstance(elements, Tensor) else torch.cat(list(elements))
        return {
            name: math.fsum(float(vector[place].sum(dtype=torch.float64)) for place in places)
            for name, places in self.layers().items()
        }


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
