"""What a packed checkpoint turned out to be: quantized tensors, tensors that are as they were, and what was undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PackedLayer:
    """One quantized tensor, δ = Ŵ − W.

    Attributes:
        name: the tensor, as in Θ.
        bits: of one weight's code; 0 where the format does not say.
        bits_per_weight: what storing it takes, scales and zero points included.
        step_norm: ‖δ‖.
        weight_error: ‖δ‖ / ‖W‖.
        activations: the layer would quantize its inputs too, at run time.
    """

    name: str
    bits: int
    bits_per_weight: float
    step_norm: float
    weight_error: float
    activations: bool = False


@dataclass(frozen=True)
class PackedReport:
    """What was read, and how it compares with Θ.

    Attributes:
        format: as `is_packed` names it.
        layers: a row per quantized tensor, in the order of Θ.
        quantized_parameters, total_parameters: numbers of weights.
        rest_difference: of the tensors that were not quantized, the largest max|ŵ − w| / max|w|; 0 where they are equal
            bit for bit.
        rest_dtypes: what these are stored in; the difference is their rounding and no more.
        rescaled: tensors that were scaled back before they were compared, because the quantizer had moved scales from
            layer to layer (see `landscape.packed.scales`).
    """

    format: str
    layers: tuple[PackedLayer, ...]
    quantized_parameters: int
    total_parameters: int
    rest_difference: float
    rest_dtypes: tuple[str, ...]
    rescaled: tuple[str, ...] = ()

    @property
    def quantized(self) -> tuple[str, ...]:
        """The names of the tensors that were quantized."""
        return tuple(layer.name for layer in self.layers)

    @property
    def bits(self) -> tuple[int, ...]:
        """The numbers of bits of their codes, each once, ascending."""
        return tuple(sorted({layer.bits for layer in self.layers}))

    def size(self, theta: Mapping[str, Tensor]) -> float:
        """Bits that the whole model takes, with 16 for every parameter that is not quantized."""
        rounded = self.bits_per_weight(theta) * self.quantized_parameters
        return rounded + 16 * (self.total_parameters - self.quantized_parameters)

    def bits_per_weight(self, theta: Mapping[str, Tensor]) -> float:
        """What a quantized weight takes on average, scales included."""
        taken = sum(layer.bits_per_weight * theta[layer.name].numel() for layer in self.layers)
        return taken / self.quantized_parameters

    @property
    def notes(self) -> tuple[str, ...]:
        """What nobody should overlook, a sentence each."""
        notes = [f"read from {self.format}"]
        if self.weight_half:
            notes.append("the weight half alone; at run time the method rounds activations too")
        if self.rescaled:
            notes.append(f"{len(self.rescaled)} tensors carried scales of other layers, which were moved back")
        return tuple(notes)

    @property
    def weight_half(self) -> bool:
        """Whether the checkpoint would quantize activations too, at run time: Θ̂ is then its weight half."""
        return any(layer.activations for layer in self.layers)
