"""How much memory there is, and how much a graph takes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

T = TypeVar("T")


def available(device: torch.device) -> int:
    """Free bytes on `device`: what the GPU reports, or the system's estimate within the limit of its control group."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pages = os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 1 << 20
        free = pages * 4096
    try:
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
        return max(0, min(free, limit))
    except (OSError, ValueError):  # no such group, or no limit ("max")
        return free


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
