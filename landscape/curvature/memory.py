"""How much memory there is, and how much a graph takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


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


def graph_bytes(build: Callable[[], Any]) -> int:
    """Bytes that autograd saves while `build()` runs, shared storages once; parameters, being leaves, do not count."""
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not (tensor.is_leaf and tensor.requires_grad):
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        held = build()
    del held
    return sum(sizes.values())
