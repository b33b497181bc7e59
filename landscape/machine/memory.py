"""How much memory there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

_GROUPS = Path("/sys/fs/cgroup")
# control groups of version 2 and 1: their folder, the limit, what is used, and of that what caches files
_FILES = {
    "": ("", "memory.max", "memory.current", "file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
}


def available(device: torch.device | str) -> int:
    """Free bytes on `device`: what the GPU reports, or the system's estimate within the limit of its control group.

    Of main memory, processes that torchrun started side by side have a share each.
    """
    device = torch.device(device)
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    return max(0, min([_of_system(), *_left_in_group()])) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _of_system() -> int:
    try:
        return _entry(Path("/proc/meminfo"), "MemAvailable:") * 1024
    except (OSError, StopIteration):
        pages = os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 1 << 20
        return pages * 4096


def _left_in_group() -> Iterator[int]:
    """What is left of each limit, of the process's own groups and those around them."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, kinds, own in (line.split(":", 2) for line in lines):
        for kind in set(kinds.split(",")) & set(_FILES):
            folder, limit, used, cache = _FILES[kind]
            innermost = _GROUPS / folder / own.lstrip("/")
            for group in (innermost, *innermost.parents):
                with suppress(OSError, ValueError, StopIteration):  # no such group, or no limit ("max")
                    cached = _entry(group / "memory.stat", cache)  # given up when memory runs short
                    yield int((group / limit).read_text()) - int((group / used).read_text()) + cached


def _entry(path: Path, word: str) -> int:
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.split()[0] == word)
