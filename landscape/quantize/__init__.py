"""Quantizers: Θ and calibration windows → Θ̂, dense weights in the coordinates of Θ, and a report per layer.

`quantize(parse("gptq-w3-g128"), model, windows)` does all; the others do one matrix.
"""

from landscape.quantize.codebook import CODES, round_to_code
from landscape.quantize.engine import quantize, quantize_blocks
from landscape.quantize.gptq import GptqResult, gptq
from landscape.quantize.grid import Grid, Rounded, fit
from landscape.quantize.hqq import half_quadratic
from landscape.quantize.int8 import vector_wise
from landscape.quantize.layers import linear_layers
from landscape.quantize.names import GRAMMAR, Quantizer, parse
from landscape.quantize.report import LayerReport, Report, output_error
from landscape.quantize.rotation import Rotation
from landscape.quantize.rtn import round_to_nearest

__all__ = [
    "CODES",
    "GRAMMAR",
    "GptqResult",
    "Grid",
    "LayerReport",
    "Quantizer",
    "Report",
    "Rotation",
    "Rounded",
    "fit",
    "gptq",
    "half_quadratic",
    "linear_layers",
    "output_error",
    "parse",
    "quantize",
    "quantize_blocks",
    "round_to_code",
    "round_to_nearest",
    "vector_wise",
]
