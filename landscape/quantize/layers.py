"""Which tensors are quantized: the linear layers inside the decoder blocks; not embeddings, not the output head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from landscape.decoder.blocks import decoder_blocks
from landscape.errors import QuantizerError


@dataclass(frozen=True)
class Layer:
    """One linear layer: `name` as in the model; GPT-2's `Conv1D` keeps its matrix as (inputs, outputs)."""

    name: str
    module: nn.Module
    transposed: bool

    @property
    def weight_name(self) -> str:
        """The parameter's name."""
        return f"{self.name}.weight"

    @property
    def weight(self) -> nn.Parameter:
        """The parameter itself, in its stored layout."""
        return cast(nn.Parameter, self.module.weight)

    @property
    def inputs(self) -> int:
        """The number of inputs."""
        return int(self.as_matrix(self.weight).shape[1])

    def as_matrix(self, tensor: Tensor) -> Tensor:
        """Stored layout → (outputs, inputs), and back."""
        return tensor.T if self.transposed else tensor


def linear_layers(model: nn.Module) -> list[Layer]:
    """The layers a quantizer rounds, in the model's order.

    Raises:
        ModelError: the model has no stack of blocks.
        QuantizerError: no linear layer in them.
    """
    prefix, blocks = decoder_blocks(model)
    layers = []
    for name, module in blocks.named_modules():
        is_conv1d = type(module).__name__ == "Conv1D" and hasattr(module, "nf")
        if isinstance(module, nn.Linear) or is_conv1d:
            layers.append(Layer(f"{prefix}.{name}", module, transposed=is_conv1d))
    if not layers:
        raise QuantizerError(f"{type(model).__name__}: no linear layer in {prefix}; nothing to quantize")
    return layers


def not_linear(model: nn.Module) -> int:
    """Parameters of the blocks with two axes or more that are in no linear layer: fused experts, convolutions."""
    ours = {id(layer.weight) for layer in linear_layers(model)}
    blocks = decoder_blocks(model)[1]
    return sum(p.numel() for p in blocks.parameters() if p.dim() > 1 and id(p) not in ours)
