"""How much memory a graph takes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

T = TypeVar("T")


def sized(build: Callable[[], T]) -> tuple[T, int]:
    """What `build()` returns, and the bytes its graph holds: shared storages once, without the parameters'."""
    packed: weakref.WeakSet[_Saved] = weakref.WeakSet()
    parameters: set[int] = set()

    def pack(tensor: Tensor) -> _Saved:
        if tensor.is_leaf and tensor.requires_grad:
            parameters.add(tensor.untyped_storage().data_ptr())
        saved = _Saved(tensor)
        packed.add(saved)
        return saved

    with saved_tensors_hooks(pack, lambda saved: saved.tensor):
        built = build()
    storages = {saved.tensor.untyped_storage().data_ptr(): saved.tensor.untyped_storage().nbytes() for saved in packed}
    return built, sum(size for place, size in storages.items() if place not in parameters)


class _Saved:
    """A tensor in a graph; gone when the graph is."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
