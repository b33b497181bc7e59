"""Random vectors that a seed and a number name: the same on every device, drawn again when a run goes on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_AT_ONCE = 1 << 20


def rademacher(n: int, like: Tensor, *name: int, start: int = 0) -> Tensor:
    """±1 with equal probability (n,), in the dtype and on the device of `like`; `name` is the seed and any numbers.

    With `start` these are the elements from there on of the vector with this name; those before need not be made.
    """
    words, before = divmod(start, 64)
    generator = np.random.PCG64(_key(name))
    generator.advance(words)
    bits = np.frombuffer(np.random.Generator(generator).bytes((before + n + 7) // 8), dtype=np.uint8)
    signs = torch.from_numpy(np.unpackbits(bits, count=before + n)[before:])
    return signs.to(like.device).to(like.dtype).mul_(2).sub_(1)


def gaussian(n: int, like: Tensor, *name: int, out: Tensor | None = None) -> Tensor:
    """Independent standard normal elements (n,), in the dtype and on the device of `like`; in `out`, if it is given."""
    noise = torch.empty(n, dtype=like.dtype, device=like.device) if out is None else out
    generator = np.random.default_rng(_key(name))
    for some in noise.split(_AT_ONCE):
        some.copy_(torch.from_numpy(generator.standard_normal(len(some), dtype=np.float32)))
    return noise


def _key(name: tuple[int, ...]) -> tuple[int, ...]:
    """With its length, as numpy takes (3, 1) and (3, 1, 0) for the same seed."""
    return (*name, len(name))
