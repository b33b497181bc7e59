"""Small integers out of 32-bit words."""

from __future__ import annotations

import torch
from torch import Tensor


def unpack(words: Tensor, bits: int) -> Tensor:
    """The codes of `bits` bits in each row of `words`, lowest bits first; a code may reach from one word into the next.

    Args:
        words: (rows, n) int32.
        bits: 1 to 16.

    Returns:
        (rows, 32·n // bits) int32, each in [0, 2^bits).

    >>> unpack(torch.tensor([[0x21, 0x43]], dtype=torch.int32), 4)[0, [0, 1, 8, 9]].tolist()
    [1, 2, 3, 4]
    """
    mask = (1 << bits) - 1
    if 32 % bits == 0:
        shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
        return (words[:, :, None] >> shifts & mask).flatten(1)
    first = torch.arange(32 * words.shape[1] // bits, device=words.device) * bits
    unsigned = torch.nn.functional.pad(words.long() & 0xFFFFFFFF, (0, 1))
    low, high = unsigned[:, first // 32], unsigned[:, first // 32 + 1]
    return ((low | high << 32) >> first % 32 & mask).int()
