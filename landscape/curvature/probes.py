"""Random vectors that a seed and a number name: the same on every device, drawn again when a run goes on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def rademacher(n: int, like: Tensor, *name: int) -> Tensor:
    """±1 with equal probability (n,), in the dtype and on the device of `like`; `name` is the seed and any numbers."""
    bits = np.frombuffer(np.random.default_rng(_key(name)).bytes((n + 7) // 8), dtype=np.uint8)
    signs = torch.from_numpy(np.unpackbits(bits, count=n))
    return signs.to(like.device).to(like.dtype).mul_(2).sub_(1)


def gaussian(n: int, like: Tensor, *name: int) -> Tensor:
    """Independent standard normal elements (n,), in the dtype and on the device of `like`."""
    noise = np.random.default_rng(_key(name)).standard_normal(n, dtype=np.float32)
    return torch.from_numpy(noise).to(like.device).to(like.dtype)


def _key(name: tuple[int, ...]) -> tuple[int, ...]:
    """With its length, as numpy takes (3, 1) and (3, 1, 0) for the same seed."""
    return (*name, len(name))
