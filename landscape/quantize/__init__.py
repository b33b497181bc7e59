"""Quantizers: Θ and calibration windows → Θ̂, dense weights on a b-bit grid, and a report per layer.

`quantize(parse("gptq-w3-g128"), model, windows)` does all; `round_to_nearest` and `gptq` do one matrix.
"""

from landscape.quantize.engine import LayerReport, Report, quantize
from landscape.quantize.gptq import GptqResult, gptq
from landscape.quantize.layers import linear_layers
from landscape.quantize.names import GRAMMAR, Quantizer, parse
from landscape.quantize.rtn import round_to_nearest

__all__ = [
    "GRAMMAR",
    "GptqResult",
    "LayerReport",
    "Quantizer",
    "Report",
    "gptq",
    "linear_layers",
    "parse",
    "quantize",
    "round_to_nearest",
]
