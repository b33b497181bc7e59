"""One process or several under torchrun: each takes its share of every batch, and gradients are averaged once a step.

No wrapper around the model and no hooks: what is differentiated is the model itself, and one process does the same
arithmetic as without this file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist


@dataclass(frozen=True)
class Ranks:
    """This process among `size` that train one model."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and reports."""
        return self.rank == 0

    def mean(self, tensors: list[Tensor]) -> None:
        """Put the mean over all ranks into `tensors`, which are of one type, in one message."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """The ranks torchrun started, or this process alone, each on its own `device`."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks(device=device)
        return
    own = device
    if torch.device(device).type == "cuda":
        own = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(own)
    dist.init_process_group("nccl" if own.startswith("cuda") else "gloo")
    try:
        yield Ranks(dist.get_rank(), size, own)
    finally:
        dist.destroy_process_group()
