"""The files of a packed checkpoint: what its configuration says, and its tensors, read by name one at a time."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from landscape.errors import MissingExtraError, ModelError
from landscape.models.shards import shards

Settings = Mapping[str, Any]
Parts = dict[str, Tensor]


@dataclass(frozen=True)
class Dense:
    """One tensor of a packed checkpoint as floats.

    Attributes:
        name: of the parameter, as the checkpoint calls it.
        tensor: its values; of a tensor that is not quantized in the dtype they are stored in.
        bits: of one weight's code; None for a tensor that is not quantized.
        stored_bits: what the file spends on it, scales, zero points and index included.
        by_output: a matrix is (outputs, inputs) even where the model keeps it transposed, as GPT-2 does.
        activations: the layer would quantize its inputs too, at run time.
    """

    name: str
    tensor: Tensor
    bits: int | None = None
    stored_bits: int = 0
    by_output: bool = False
    activations: bool = False


class TensorFiles(Mapping[str, Tensor]):
    """The tensors of a directory by name, in the files' order; safetensors are read when asked for, pickles whole.

    Attributes:
        metadata: what the headers of the safetensors say beside the tensors.
    """

    def __init__(self, folder: Path) -> None:
        """Open what lies in `folder`: `model.safetensors` or `pytorch_model.bin`, whole or as their index names it.

        Raises:
            ModelError: no such file, or one that cannot be read.
        """
        self._open: dict[str, Callable[[str], Tensor]] = {}
        self.metadata: dict[str, str] = {}
        for path in _weight_files(folder):
            try:
                self._add(path)
            except Exception as error:  # each library has its own kinds; all mean that this file cannot be read
                raise ModelError(f"{path.name} cannot be read ({str(error)[:200]})") from error

    def _add(self, path: Path) -> None:
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            file: Any = safe_open(path, framework="pt")
            self.metadata.update(file.metadata() or {})
            self._open.update(dict.fromkeys(file.keys(), file.get_tensor))
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            self._open.update(dict.fromkeys(tensors, tensors.__getitem__))

    def __getitem__(self, name: str) -> Tensor:
        """The tensor called `name`, as stored."""
        return self._open[name](name)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._open)

    def __len__(self) -> int:
        """The number of tensors."""
        return len(self._open)


def layer_by_layer(
    files: TensorFiles,
    marker: str,
    parts: tuple[str, ...],
    unpack: Callable[[str, Parts], tuple[Tensor, int]],
    activations: Callable[[str], bool] = lambda layer: False,
) -> Iterator[Dense]:
    """Every tensor of `files`; a layer that has a `marker` is put together from its `parts` by `unpack(layer, parts)`.

    `unpack` gives the matrix (outputs, inputs) and the bits of a code.

    Raises:
        ModelError: a part that `unpack` needs is not in the files.
    """
    layers = [name.removesuffix(f".{marker}") for name in files if name.endswith(f".{marker}")]
    taken = set()
    for layer in layers:
        own = {part: files[f"{layer}.{part}"] for part in parts if f"{layer}.{part}" in files}
        taken |= {f"{layer}.{part}" for part in own}
        stored = 8 * sum(part.nbytes for part in own.values())
        try:
            tensor, bits = unpack(layer, own)
        except KeyError as error:
            raise ModelError(
                f"layer {layer}: its {error.args[0]} is not in the files; copy or download it again"
            ) from error
        yield Dense(f"{layer}.weight", tensor, bits, stored, by_output=True, activations=activations(layer))
    for name in files:
        if name not in taken:
            yield Dense(name, files[name])


def load_package(name: str, purpose: str) -> Any:
    """The module `name`, or the one line that says which extra brings it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0].replace("_", "-")
        raise MissingExtraError(package, "quant", f"reading {purpose}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`; empty where there is no such file.

    Raises:
        ModelError: it is damaged.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"model {path.parent.name}: {path.name} is damaged; copy or download it again") from error
    return content if isinstance(content, dict) else {}


def _weight_files(folder: Path) -> list[Path]:
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        if (index := folder / f"{name}.index.json").is_file():
            return shards(index)
    raise ModelError("it has no model.safetensors or pytorch_model.bin, as transformers saves them")
