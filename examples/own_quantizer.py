"""A quantizer of your own beside those of the suite: what it costs, and whether the second order saw it coming.

    python examples/own_quantizer.py

Half the trouble at 3 bits is a few large weights that stretch their group's grid. The quantizer here spaces its levels
by quantiles instead: as many weights of a row at each level. It knows nothing of the suite; the suite needs nothing but
the weights that it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from torch import Tensor

import landscape as ls
from landscape import curvature, quantize
from landscape.losses import compare, window_losses
from landscape.objective import batches
from landscape.texts import documents
from landscape.tokens import WindowReader

REFERENCE = Path(__file__).resolve().parent.parent / "data" / "reference"
BITS, GROUP = 3, 64


def by_quantiles(matrix: Tensor, bits: int, group: int) -> Tensor:
    """Every weight (outputs, inputs) at the nearest of 2^bits levels, the middles of equal shares of its group."""
    rows = matrix.unflatten(1, (-1, group))
    middles = (torch.arange(2**bits) + 0.5) / 2**bits
    levels = rows.quantile(middles, dim=-1)  # (levels, outputs, groups)
    nearest = (rows - levels.unsqueeze(-1)).abs().argmin(0)
    return levels.permute(1, 2, 0).gather(-1, nearest).flatten(1)


def with_matrices(model: torch.nn.Module, theta: ls.Weights, change: Callable[[Tensor], Tensor]) -> ls.Weights:
    """Θ with every matrix that quantizers touch replaced by `change(matrix)`."""
    names = {layer.weight_name for layer in quantize.linear_layers(model)}
    return ls.Weights({name: change(tensor) if name in names else tensor for name, tensor in theta.items()})


def main() -> None:
    """Evaluate Θ and three Θ̂ on the same windows, with what a quadratic model of the loss predicts."""
    transformers.utils.logging.disable_progress_bar()
    checkpoint = ls.resolve(str(REFERENCE / "mini-pythia"))
    model, tokenizer = ls.load_model(checkpoint), ls.load_tokenizer(checkpoint)
    reader = WindowReader(documents(str(REFERENCE / "corpus" / "validation.jsonl.xz")), tokenizer, seq_len=256)
    objective = ls.TokenCrossEntropy(model, batches(reader.take_tokens(8192), 8))
    calibration = reader.take(32)  # the windows after those

    theta = ls.Weights.of(model)
    gptq, _ = quantize.quantize(quantize.parse(f"gptq-w{BITS}-g{GROUP}"), model, calibration)
    hats = {
        "round to nearest": with_matrices(
            model, theta, lambda matrix: quantize.round_to_nearest(matrix, BITS, GROUP).weight
        ),
        "quantiles": with_matrices(model, theta, lambda matrix: by_quantiles(matrix, BITS, GROUP)),
        "GPTQ": gptq,
    }
    hessian = curvature.Hessian(objective, theta)
    before = window_losses(objective, theta)
    print(f"{checkpoint}: {before.mean:.4f} nats per token; {BITS} bits, groups of {GROUP}")
    print(f"{'':18}{'‖Θ̂ − Θ‖':>10}{'ΔL':>10}{'ΔQ, 95 %':>22}{'g·δ + ½ δᵀHδ':>16}")
    for name, hat in hats.items():
        found = compare(before, window_losses(objective, hat))
        step = hat - theta
        second = curvature.along(hessian, hessian.space.flatten(step))
        low, high = found.relative.low, found.relative.high
        interval = f"{found.relative.value:.2%} ({low:.2%} to {high:.2%})"
        print(f"{name:18}{step.norm():10.2f}{found.change.value:+10.4f}{interval:>26}{second.predicted:+12.4f}")


if __name__ == "__main__":
    main()
