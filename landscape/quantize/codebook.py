"""4-bit codes with levels that are not evenly spaced, a scale per block of consecutive weights: NF4 and FP4.

Dettmers et al. 2023, arXiv 2305.14314 (QLoRA): the sixteen values of NF4 are in its appendix E; FP4 is that of
bitsandbytes, one sign, two exponent and one mantissa bits with a smallest step of 1/192. A block, counted along the
flattened matrix, is divided by its largest magnitude and each weight goes to the nearest value. With double
quantization those magnitudes are, less their mean, kept in the 8-bit dynamic type of arXiv 2110.02861, 256 to a scale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from landscape.quantize.grid import Rounded

_POSITIVE_NF4 = (
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
_NEGATIVE_NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
)
_POSITIVE_FP4 = (1 / 192, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1.0)
CODES = {
    "nf4": (*_NEGATIVE_NF4, 0.0, *_POSITIVE_NF4),
    "fp4": (*(-value for value in reversed(_POSITIVE_FP4)), 0.0, *_POSITIVE_FP4),
}
_SCALES_PER_BLOCK = 256


def round_to_code(weight: Tensor, code: str, block: int = 64, double: bool = False) -> Rounded:
    """Ŵ for a matrix: w ↦ a·nearest(w / a), a the largest magnitude among the `block` weights around w.

    Blocks run along the flattened matrix, across the ends of its rows where these are not a multiple of the block.
    """
    values = torch.tensor(CODES[code], dtype=weight.dtype, device=weight.device)
    flat = torch.nn.functional.pad(weight.reshape(-1), (0, -weight.numel() % block)).view(-1, block)
    largest = flat.abs().amax(dim=1, keepdim=True)
    quotients = flat / torch.where(largest == 0, torch.ones_like(largest), largest)
    scale = _double(largest.squeeze(1)).unsqueeze(1) if double else largest
    index = _nearest(quotients, values)
    gaps = values.diff()
    below, above = gaps[(index - 1).clamp(min=0)], gaps[index.clamp(max=len(gaps) - 1)]
    outward = torch.where(quotients > values[index], above, below)  # the gap a weight lies in; at the ends the last one

    def restored(blocks: Tensor) -> Tensor:
        return blocks.reshape(-1)[: weight.numel()].view(weight.shape)

    return Rounded(restored(values[index] * scale), restored(outward * scale))


def bits_of_scale(double: bool) -> float:
    """What the scale of one block takes: 32 bits, or 8 and its share of the second scale."""
    return 8 + 32 / _SCALES_PER_BLOCK if double else 32


def _nearest(quotients: Tensor, values: Tensor) -> Tensor:
    """The index of the nearest of rising `values`; the lower one half-way."""
    return torch.bucketize(quotients, (values[1:] + values[:-1]) / 2)


def _double(scales: Tensor) -> Tensor:
    """Scales after quantization to 8 bits about their mean."""
    mean = scales.mean()
    values = _dynamic().to(scales)
    blocks = torch.nn.functional.pad(scales - mean, (0, -len(scales) % _SCALES_PER_BLOCK)).view(-1, _SCALES_PER_BLOCK)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    index = _nearest(blocks / torch.where(largest == 0, torch.ones_like(largest), largest), values)
    return (values[index] * largest).reshape(-1)[: len(scales)] + mean


def _dynamic() -> Tensor:
    """The 256 values of the signed 8-bit dynamic type: 2^i evenly spaced fractions in decade i − 6, for i = 0 … 6."""
    positive = []
    for i in range(7):
        edges = torch.linspace(0.1, 1, 2**i + 1, dtype=torch.float64)
        positive.append((edges[1:] + edges[:-1]) / 2 * 10.0 ** (i - 6))
    above = torch.cat(positive)
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    return torch.cat([-above, zero, above, one]).sort().values
