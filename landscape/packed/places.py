"""Where the tensors of a checkpoint belong in Θ: names, tied names, layout, and what belongs nowhere."""

from __future__ import annotations

import re

from torch import Tensor, nn

from landscape.errors import ModelError
from landscape.packed.stored import Dense
from landscape.weights import Weights

# Buffers that older transformers stored and newer ones compute: frequencies of rotary embeddings, masks.
_COMPUTED = re.compile(r"(rotary_emb\.inv_freq|attn\.(masked_)?bias|attention\.(masked_)?bias)$")
# The output head of GPT-NeoX is `embed_out` in files and in transformers 4, `lm_head` in transformers 5.
_HEADS = ("lm_head", "embed_out")


def is_transposed(module: nn.Module) -> bool:
    """Whether a layer keeps its matrix as (inputs, outputs): GPT-2's `Conv1D`."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


class Places:
    """The parameters of a model by every name they go under."""

    def __init__(self, model: nn.Module, theta: Weights) -> None:
        """Names and shapes are those of `theta`; `model` knows its tied names, its layers and its buffers."""
        self._theta = theta
        first = {id(parameter): name for name, parameter in model.named_parameters()}
        self._first = {name: first[id(p)] for name, p in model.named_parameters(remove_duplicate=False)}
        self._first |= _heads(model, first)
        self._transposed = {f"{name}.weight" for name, module in model.named_modules() if is_transposed(module)}
        self._prefix = f"{getattr(model, 'base_model_prefix', '')}."
        self._buffers = {name for name, _ in model.named_buffers()}

    def place(self, dense: Dense) -> tuple[str, Tensor] | None:
        """The name in Θ of a tensor, and the tensor in the layout of Θ; None for one that Θ rightly lacks.

        Raises:
            ModelError: a tensor that the model has no use for, or of another shape.
        """
        name = self._name(dense.name)
        if name is None:
            if not self._is_idle(dense):
                raise ModelError(
                    f"tensor {dense.name} is not in the float model; expected a checkpoint of the same model"
                )
            return None
        tensor = dense.tensor
        if dense.by_output and name in self._transposed:
            tensor = tensor.T
        if tensor.shape != self._theta[name].shape:
            raise ModelError(
                f"tensor {name} has shape {tuple(tensor.shape)} in the packed checkpoint and "
                f"{tuple(self._theta[name].shape)} in the float model; expected a checkpoint of the same model"
            )
        return name, tensor

    def _name(self, stored: str) -> str | None:
        """The name in Θ; a checkpoint of the bare decoder leaves its prefix out."""
        for name in (stored, self._prefix + stored):
            if name in self._first:
                return self._first[name]
        return None

    def _is_idle(self, dense: Dense) -> bool:
        """Whether a tensor without a place changes nothing: a buffer, or a bias of zeros, as AutoGPTQ always wrote."""
        if dense.name in self._buffers or _COMPUTED.search(dense.name):
            return True
        return dense.name.endswith(".bias") and not bool(dense.tensor.any())


def _heads(model: nn.Module, first: dict[int, str]) -> dict[str, str]:
    """Every name that the output head may have in a file → its name in Θ."""
    find = getattr(model, "get_output_embeddings", None)
    head = find() if find else None
    if not isinstance(head, nn.Module):
        return {}
    return {f"{name}.{part}": first[id(p)] for name in _HEADS for part, p in head.named_parameters()}
