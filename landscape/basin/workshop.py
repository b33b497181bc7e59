"""What planes are made with: weights that are loaded and quantized as they are asked for, and the loss on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from landscape import inputs, quantize, slices
from landscape.basin.sources import Sources
from landscape.config import SliceConfig
from landscape.models.checkpoint import Checkpoint
from landscape.objective import TokenCrossEntropy, mean
from landscape.reporting import Reporter
from landscape.slices import Named
from landscape.streaming import StreamedCrossEntropy, losses_on_places, quantize_to_scratch
from landscape.weights import Weights

THETA, HAT = "Θ_K", "Θ̂_K"


@dataclass(frozen=True)
class Workshop:
    """What the kinds of planes are made with."""

    config: SliceConfig
    checkpoint: Checkpoint
    sources: Sources
    loaded: inputs.Loaded
    load: Callable[[Checkpoint], Weights]
    quantized: Callable[[quantize.Quantizer], tuple[Weights, quantize.Report]]

    @property
    def theta(self) -> Weights:
        """Θ_K."""
        return self.loaded.theta

    def origin(self) -> Named:
        """What Θ_K is."""
        return Named(THETA, "origin", str(self.checkpoint))

    def hat(self) -> tuple[Weights, quantize.Report, Named]:
        """Θ̂_K by the first quantizer."""
        quantizer = self.sources.quantizers[0]
        weights, report = self.quantized(quantizer)
        return weights, report, Named(HAT, "quantized", str(quantizer))


def furnished(
    config: SliceConfig,
    checkpoint: Checkpoint,
    sources: Sources,
    text: inputs.Text,
    loaded: inputs.Loaded,
    device: str,
    reporter: Reporter,
) -> Workshop:
    """What planes are made with: other checkpoints and quantized weights are loaded and made as they are asked for."""

    def load(other: Checkpoint) -> Weights:
        reporter.stage(f"loading {other}")
        return inputs.load_other(config, other, checkpoint, loaded, device)

    def quantized(quantizer: quantize.Quantizer) -> tuple[Weights, quantize.Report]:
        on_layer = reporter.stage(f"quantizing to {quantizer}")
        calibration = text.calibration if quantizer.needs_calibration else None
        if loaded.scratch is not None:
            return quantize_to_scratch(
                quantizer, loaded.model, loaded.theta, calibration, config.batch_size, loaded.scratch, on_layer
            )
        return quantize.quantize(quantizer, loaded.model, calibration, config.batch_size, on_layer)

    return Workshop(config, checkpoint, sources, loaded, load, quantized)


def losses_of(objective: TokenCrossEntropy, dtype: str) -> slices.Losses:
    """The loss as the scan computes it, and in float32."""
    if isinstance(objective, StreamedCrossEntropy):
        return losses_on_places(objective)

    def scan(weights: Weights) -> float:
        return mean(objective, weights)

    if dtype == "float32":
        return slices.Losses(scan, scan)
    exact = replace(objective, dtype=torch.float32)
    return slices.Losses(scan, lambda weights: mean(exact, weights))
