"""torchao: tensors that carry their own scales, flattened into safetensors by transformers 5, or pickled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from landscape.errors import ModelError
from landscape.packed.stored import Dense, Settings, TensorFiles, load_package

_KINDS = {"Int8Tensor": 8, "IntxUnpackedToInt8Tensor": 8, "Float8Tensor": 8}  # bits, where the tensor does not say
_RUN_TIME = ("act_quant_kwargs", "activation_quantization")


def read(folder: Path, settings: Settings, model: nn.Module) -> Iterator[Dense]:
    """Every tensor of a torchao checkpoint, dense, by its own `dequantize`.

    Raises:
        MissingExtraError: torchao is not installed.
        ModelError: a kind of tensor that only a GPU can unpack.
    """
    # Imported before the files are opened: torchao tells torch which of its classes a pickle may hold.
    load_package("torchao.quantization", "a torchao checkpoint")
    files = TensorFiles(folder)
    for name, tensor in _tensors(files).items():
        kind = type(tensor).__name__
        if isinstance(tensor, nn.Parameter) or type(tensor) is Tensor:
            yield Dense(name, tensor.detach())
        elif kind in _KINDS:
            bits = _bits(tensor)
            at_run_time = any(getattr(tensor, field, None) is not None for field in _RUN_TIME)
            yield Dense(name, _dequantize(tensor), bits, _stored_bits(tensor, bits), True, at_run_time)
        else:
            raise ModelError(f"tensor {name}: a torchao {kind}; expected one of {', '.join(_KINDS)}")


def _tensors(files: TensorFiles) -> Mapping[str, Tensor]:
    if "tensor_names" not in files.metadata:
        return files  # pickled
    support = load_package("torchao.prototype.safetensors.safetensors_support", "a torchao checkpoint")
    # The list of tensors has the names of transformers 5, where GPT-NeoX's head is another one than in its file: what
    # the list does not know is left as it is.
    tensors, left = support.unflatten_tensor_state_dict(dict(files), files.metadata)
    return {**tensors, **left}


def _dequantize(tensor: Tensor) -> Tensor:
    """The values in float32, before the rounding to the dtype that the model computes in."""
    try:
        return tensor.dequantize(output_dtype=torch.float32)  # type: ignore[call-arg]
    except TypeError:  # those that take no dtype follow their own
        return tensor.to(torch.float32).dequantize()


def _bits(tensor: Tensor) -> int:
    """Of one code: int4 codes are kept in whole bytes, but use 16 values of each."""
    narrow = str(getattr(tensor, "target_dtype", ""))
    return int(narrow.removeprefix("torch.int")) if narrow.startswith("torch.int") else _KINDS[type(tensor).__name__]


def _stored_bits(tensor: Tensor, bits: int) -> int:
    """Codes as narrow as they could be stored, scales and zero points as they are."""
    names = tensor.tensor_data_names  # type: ignore[attr-defined]
    rest = sum(
        8 * getattr(tensor, name).nbytes for name in names if name != "qdata" and getattr(tensor, name) is not None
    )
    return tensor.numel() * bits + rest
