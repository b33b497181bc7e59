"""Where a Θ̂ comes from: a quantizer, or a checkpoint that somebody packed; and how it is made in memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from landscape import inputs, packed, quantize
from landscape.errors import OptionError
from landscape.models.checkpoint import Checkpoint
from landscape.reporting import Reporter
from landscape.weights import Weights

NONE = "none"


@dataclass(frozen=True)
class Way:
    """Where a Θ̂ comes from: a quantizer, or a checkpoint that somebody packed; from neither, it is Θ."""

    quantizer: quantize.Quantizer | None = None
    packed: Checkpoint | None = None

    def __str__(self) -> str:
        return str(self.quantizer or self.packed or NONE)

    @property
    def identity(self) -> str:
        """What makes it this one."""
        return self.packed.identity if self.packed is not None else str(self)

    @property
    def needs_calibration(self) -> bool:
        """Whether it looks at activations."""
        return self.quantizer is not None and self.quantizer.needs_calibration


def quantizers_of(names: str) -> tuple[Way, ...]:
    """The quantizers of a list with commas, each once."""
    if not names.strip():
        raise OptionError("--quant '': empty; name quantizers with commas, or 'none' for the model alone")
    parsed = [None if name.strip() == NONE else quantize.parse(name.strip()) for name in names.split(",")]
    return tuple(Way(quantizer) for quantizer in dict.fromkeys(parsed))


def theta_hat(
    way: Way, loaded: inputs.Loaded, text: inputs.Text, batch_size: int, reporter: Reporter
) -> tuple[Weights, dict[str, Any], tuple[str, ...]]:
    """(Θ̂, its report as stored, what a user should know of it)."""
    if way.quantizer is not None:
        weights, done = quantized(way.quantizer, loaded, text, batch_size, reporter)
        return weights, stored_report(done), done.notes
    assert way.packed is not None
    reporter.stage(f"reading {way}")
    weights, unpacked = packed.load_dense(way.packed, loaded.theta, loaded.model)
    sizes = {"bits": unpacked.size(loaded.theta), "bits_per_weight": unpacked.bits_per_weight(loaded.theta)}
    return weights, asdict(unpacked) | sizes, unpacked.notes


def quantized(
    quantizer: quantize.Quantizer, loaded: inputs.Loaded, text: inputs.Text, batch_size: int, reporter: Reporter
) -> tuple[Weights, quantize.Report]:
    """(Θ̂, report), with progress."""
    on_layer = reporter.stage(f"quantizing to {quantizer}")
    calibration = text.calibration if quantizer.needs_calibration else None
    return quantize.quantize(quantizer, loaded.model, calibration, batch_size, on_layer)


def stored_report(report: quantize.Report) -> dict[str, Any]:
    """The report as it goes into a file."""
    return asdict(report) | {"bits": report.bits, "bits_per_weight": report.bits_per_weight}
