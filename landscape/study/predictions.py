"""ΔL expected from curvature and step sizes, layer by layer, without quantizing or without evaluating.

With tr H_l the trace over the weights of layer l, of n_l weights in d_l output channels:

    grid      ½ Σ tr(H_l) Δ_l²/12                 rounding errors as uniform over a grid step Δ_l, knowing nothing of H
    length    ½ Σ tr(H_l) ‖δ_l‖²/n_l              their real size; still as if they knew nothing of H
    outputs   ½ Σ tr(H_l) ‖Xδ_lᵀ‖²/(‖X‖² d_l)     H_l ≈ XᵀX ⊗ G with G like the identity: errors that avoid what the
                                                  layer's inputs X use, as those of GPTQ do, count for less

None of them has a slope: g·δ is taken to vanish on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Layer = Mapping[str, Any]


def _grid(layer: Layer) -> float:
    step = float(layer["grid_step"])
    return step * step / 12


def _length(layer: Layer) -> float:
    norm = float(layer["step_norm"])
    return norm * norm / int(layer["parameters"])


def _outputs(layer: Layer) -> float:
    return float(layer["output_shift"]) * int(layer["inputs"]) / int(layer["parameters"])


SUMS: dict[str, Callable[[Layer], float]] = {"grid": _grid, "length": _length, "outputs": _outputs}


def predict(layers: Sequence[Layer], traces: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """{sum: (nats, standard error)} from a quantizer's report and (tr H_l, its standard error) by layer.

    The errors of the traces are taken as independent. NaN where a layer has no trace, or the sum not what it needs.
    """
    found = {}
    for name, of in SUMS.items():
        value = error = 0.0
        for layer in layers:
            trace, trace_error = traces.get(layer["name"], (math.nan, math.nan))
            value += 0.5 * trace * of(layer)
            error = math.hypot(error, 0.5 * trace_error * of(layer))
        found[name] = (value, error) if layers else (math.nan, math.nan)
    return found
