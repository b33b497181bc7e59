"""The one grammar of quantizer names.

rtn-w4-g128            round to nearest, 4 bits, groups of 128 inputs, symmetric
rtn-w4-g128-asym       the same with a zero point
rtn-w8-channel         one scale per output channel
gptq-w3-g128           GPTQ as in arXiv 2510.06213: activation order, damping 0.05
gptq-w3-g128-noact     columns in their own order
gptq-w3-g128-static    grids fixed before the columns are reordered
gptq-w3-g128-damp0.01  another damping
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from landscape.errors import QuantizerError

GRAMMAR = (
    "rtn-w{2..8}-(g{size}|channel)[-asym] or gptq-w{2..8}-(g{size}|channel)[-asym][-noact][-static][-damp{fraction}], "
    "for example rtn-w4-g128-asym, rtn-w8-channel, gptq-w3-g128"
)
PLANNED = ("awq", "smoothquant", "int8", "nf4", "fp4", "hqq", "quarot")
BITS = range(2, 9)


@dataclass(frozen=True)
class Quantizer:
    """What a name says.

    Attributes:
        method: `rtn` or `gptq`.
        bits: b, so that a weight takes one of 2^b levels.
        group_size: inputs that share a scale; None for one scale per output channel.
        symmetric: levels around zero; otherwise between the extremes of the group, with a zero point.
        act_order: GPTQ rounds the inputs of largest second moment first.
        static_groups: GPTQ fits the grids before it reorders, so that groups stay contiguous.
        damping: fraction of the mean diagonal that GPTQ adds to the diagonal of XᵀX.
    """

    method: str
    bits: int
    group_size: int | None
    symmetric: bool = True
    act_order: bool = True
    static_groups: bool = False
    damping: float = 0.05

    def __str__(self) -> str:
        """The canonical name: parses back to an equal quantizer."""
        parts = [self.method, f"w{self.bits}", f"g{self.group_size}" if self.group_size else "channel"]
        parts += [] if self.symmetric else ["asym"]
        if self.method == "gptq":
            parts += [] if self.act_order else ["noact"]
            parts += ["static"] if self.static_groups else []
            parts += [] if self.damping == 0.05 else [f"damp{self.damping}"]
        return "-".join(parts)

    @property
    def needs_calibration(self) -> bool:
        """Whether the method looks at activations."""
        return self.method == "gptq"


def parse(name: str) -> Quantizer:
    """The quantizer called `name`.

    >>> parse("gptq-w3-g128")
    Quantizer(method='gptq', bits=3, group_size=128, symmetric=True, act_order=True, static_groups=False, damping=0.05)
    >>> str(parse("rtn-w4-g32-asym"))
    'rtn-w4-g32-asym'

    Raises:
        QuantizerError: not in the grammar; the message lists it.
    """
    method, *rest = name.split("-")
    if method in PLANNED:
        raise QuantizerError(f"quantizer {name}: {method} is not implemented yet; expected {GRAMMAR}")
    if method not in ("rtn", "gptq"):
        raise QuantizerError(f"quantizer {name}: unknown method {method!r}; expected {GRAMMAR}")
    bits = _take(rest, r"w(\d+)")
    if bits is None or int(bits) not in BITS:
        raise QuantizerError(f"quantizer {name}: bits must be w2 to w8 after the method; expected {GRAMMAR}")
    group = _take(rest, r"g([1-9]\d*)")
    if group is None and _take(rest, r"(channel)") is None:
        raise QuantizerError(f"quantizer {name}: no g{{size}} or channel after the bits; expected {GRAMMAR}")
    symmetric = _take(rest, r"(asym)") is None
    act_order, static, damping = True, False, 0.05
    if method == "gptq":
        act_order = _take(rest, r"(noact)") is None
        static = _take(rest, r"(static)") is not None
        damping = float(_take(rest, r"damp(0?\.\d+)") or damping)
    if rest:
        raise QuantizerError(f"quantizer {name}: {'-'.join(rest)!r} does not fit; expected {GRAMMAR}")
    return Quantizer(method, int(bits), int(group) if group else None, symmetric, act_order, static, damping)


def _take(parts: list[str], pattern: str) -> str | None:
    """Remove the first part if it matches; its group."""
    found = re.fullmatch(pattern, parts[0]) if parts else None
    if found is None:
        return None
    del parts[0]
    return found[1]
