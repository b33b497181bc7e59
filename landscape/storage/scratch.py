"""Tensors in files instead of memory: the system brings in what is used and takes out what is not, as memory allows.

The files have no names, so that nothing is left of them when their tensors are gone, or the process is.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from landscape.errors import StoreError
from landscape.machine.words import byte_size
from landscape.storage.files import disk_errors
from landscape.weights import Weights


@dataclass(frozen=True)
class Scratch:
    """Space for tensors on the disk that `folder` lies on."""

    folder: Path

    def new(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor of zeros.

        Raises:
            StoreError: the disk is full, or the folder cannot be written.
        """
        count = math.prod(shape)
        size = count * dtype.itemsize
        if not count:
            return torch.zeros(shape, dtype=dtype)
        try:
            with disk_errors(self.folder), tempfile.TemporaryFile(dir=self.folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a page that finds no place later ends the process
                found = torch.from_file(f"/dev/fd/{file.fileno()}", shared=True, size=count, dtype=dtype)
        except StoreError as error:
            raise StoreError(f"{error}; {byte_size(size)} of scratch space were needed there at once") from error
        return found.view(shape)

    def keep(self, tensor: Tensor) -> Tensor:
        """A copy of `tensor`."""
        return self.new(*tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        """A copy of `tensors` in float32; what is made from it will be in scratch space too."""
        return Weights({name: self.new(*t.shape).copy_(t.detach()) for name, t in tensors.items()}, self.keep)
