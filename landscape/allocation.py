"""The job: a model, a quantizer and a bit budget in; which layers get more bits out, checked by quantizing so.

    traces of the layers × what b bits do to each  →  predicted ΔL of (layer, b)  →  the cheapest choice  →  evaluation

The choice is exact, a program in whole numbers: min Σ ΔL_lb x_lb with Σ_b x_lb = 1 and Σ bits_lb x_lb ≤ budget. What b
bits do to a layer is measured with all layers at b bits, since predictions are sums over layers: one pass for each b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from landscape import inputs, models, quantize
from landscape.config import AllocateConfig, EvaluateConfig, SharpnessConfig
from landscape.errors import OptionError
from landscape.evaluation import Evaluated, evaluate_model
from landscape.machine.arithmetic import exactly
from landscape.models.references import resolve
from landscape.quantize.report import LayerReport
from landscape.reporting import Reporter, Silent
from landscape.sharpness import measure_sharpness
from landscape.study.predictions import SUMS
from landscape.study.rows import traces_of


@dataclass(frozen=True)
class Allocation:
    """Bits by layer, and what came of it.

    Attributes:
        quantizer: the name that quantizes so.
        bits: of every layer.
        bits_per_weight: on average, scales included.
        predicted: {quantizer: ΔL in nats by the sum over layers} of this one and of all layers alike.
        results: their evaluations, in that order.
    """

    quantizer: str
    bits: Mapping[str, int]
    bits_per_weight: float
    predicted: Mapping[str, float]
    results: Sequence[Evaluated]


@exactly
def allocate_bits(config: AllocateConfig, reporter: Reporter | None = None) -> Allocation:
    """Choose bits for every layer, and evaluate the choice beside all layers alike.

    Raises:
        OptionError: a budget that no choice meets, or a sum that this quantizer does not give.
        LandscapeError: an input that cannot be used.
    """
    reporter = reporter or Silent()
    base = quantize.parse(config.quant)
    if base.overrides or base.method in ("int8", "nf4", "fp4"):
        raise OptionError(f"--quant {config.quant}: expected a method that takes bits, without layers that differ")
    shared = {
        name: getattr(config, name)
        for name in ("text", "tokenizer", "seq_len", "packing", "bos", "seed", "device", "overwrite", "remote_code")
    } | {"deterministic": config.deterministic}
    curved = measure_sharpness(
        SharpnessConfig(
            config.model, tokens=config.curvature_tokens, bottom=0, density_steps=0, layers=True,
            trace_error=config.trace_error, max_probes=config.max_probes, out=config.out, **shared,
        ),
        reporter,
    )  # fmt: skip
    traces = traces_of(curved.stored)
    names = {bits: str(replace(base, bits=bits)) for bits in config.levels}
    reports = _reports(config, names, reporter)
    layers = [layer.name for layer in reports[config.levels[0]]]
    costs = np.array([[_cost(config, layer, traces) for layer in reports[bits]] for bits in config.levels]).T
    sizes = np.array(
        [[layer.bits_per_weight * layer.parameters for layer in reports[bits]] for bits in config.levels]
    ).T
    if not np.isfinite(costs).all():
        raise OptionError(f"--by {config.by} with {config.quant}: it looks at no inputs; use --by length")
    weights = sum(layer.parameters for layer in reports[config.levels[0]])
    chosen = _cheapest(costs, sizes, config.bits * weights)
    if chosen is None:
        least = sizes.min(axis=1).sum() / weights
        raise OptionError(f"--bits {config.bits}: {config.choices} bits take at least {least:.2f} with scales")
    bits = {layer: config.levels[level] for layer, level in zip(layers, chosen, strict=True)}
    quantizer = str(quantize.parse(_named(names, bits)))
    rows = np.arange(len(layers))
    predicted = {quantizer: float(costs[rows, chosen].sum())}
    predicted |= {name: float(costs[:, level].sum()) for level, name in enumerate(names.values())}
    results = evaluate_model(
        EvaluateConfig(
            config.model, quant=",".join(predicted), tokens=config.tokens, calibration=config.calibration,
            calibration_windows=config.calibration_windows, calibration_packing=config.calibration_packing,
            batch_size=config.batch_size, out=config.out, **shared,
        ),
        reporter,
    )  # fmt: skip
    return Allocation(quantizer, bits, float(sizes[rows, chosen].sum() / weights), predicted, results)


def _reports(
    config: AllocateConfig, names: Mapping[int, str], reporter: Reporter
) -> dict[int, tuple[LayerReport, ...]]:
    """What each number of bits does to the layers."""
    checkpoint = resolve(config.model, remote_code=config.remote_code)
    quantizers = {bits: quantize.parse(name) for bits, name in names.items()}
    calibrate = any(quantizer.needs_calibration for quantizer in quantizers.values())
    text = inputs.read_text(config, checkpoint, calibrate, reporter.note)
    loaded = inputs.load(config, checkpoint, text, models.pick_device(config.device), "float32")
    found = {}
    for bits, quantizer in quantizers.items():
        on_layer = reporter.stage(f"quantizing to {quantizer}")
        calibration = text.calibration if quantizer.needs_calibration else None
        found[bits] = quantize.quantize(quantizer, loaded.model, calibration, config.batch_size, on_layer)[1].layers
    return found


def _cost(config: AllocateConfig, layer: LayerReport, traces: Mapping[str, tuple[float, float]]) -> float:
    return 0.5 * max(0.0, traces[layer.name][0]) * SUMS[config.by](asdict(layer))


def _cheapest(costs: np.ndarray, sizes: np.ndarray, budget: float) -> np.ndarray | None:
    """The level of each layer, (layers, levels) → (layers,); None where nothing fits."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import block_diag

    layers, levels = costs.shape
    one = LinearConstraint(block_diag([np.ones((1, levels))] * layers), 1, 1)
    within = LinearConstraint(sizes.reshape(1, -1) / budget, -np.inf, 1 + 1e-9)
    scale = costs.max() or 1.0
    found = milp(costs.ravel() / scale, integrality=np.ones(costs.size), bounds=Bounds(0, 1), constraints=[one, within])
    return np.asarray(found.x).reshape(layers, levels).argmax(axis=1) if found.x is not None else None


def _named(names: Mapping[int, str], bits: Mapping[str, int]) -> str:
    """The base with the most common number of bits, and the layers that differ."""
    counts = list(bits.values())
    usual = max(set(counts), key=lambda number: (counts.count(number), number))
    return "+".join([names[usual], *(f"{layer}=w{own}" for layer, own in bits.items() if own != usual)])
