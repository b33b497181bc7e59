"""One process, or several under torchrun that do one job together.

Two ways to do so. In lockstep, all ranks run the same lines, each on its share of the batches, and what they
found is added up: training, curvature, losses by window. Or one leads and the others answer: a slice, whose next place
depends on the places before it. Nothing is hooked into a model, and one process does the same
arithmetic as without this file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from landscape.errors import LandscapeError, RankError

T = TypeVar("T")
# How long one rank waits for another, which may be quantizing a model; a rank that died is found by torchrun, at once.
_PATIENCE = timedelta(days=1)
_GONE = ("closed by peer", "reset by peer", "broken pipe", "connection was", "connection closed")


@dataclass(frozen=True)
class Ranks:
    """This process among `size` that do one job."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and reports."""
        return self.rank == 0

    def share(self, n: int) -> range:
        """Which of n things are this rank's."""
        return range(self.rank, n, self.size)

    def mean(self, tensors: list[Tensor]) -> None:
        """Put the mean over all ranks into `tensors`, which are of one type, in one message."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def sum(self, tensor: Tensor) -> Tensor:
        """`tensor`, with the sum over all ranks put into it. All get the same bits."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, which are of one shape and type, in their order, in one message."""
        if self.size == 1:
            return [tensor]
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(found, tensor)
        return found

    def collect(self, value: T) -> list[T]:
        """What every rank has, on every rank, in their order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def merged(self, own: list[T]) -> list[T]:
        """All things in order, where `own` are those of `share`; their sum in this order is that of one rank."""
        shares = self.collect(own)
        return [shares[i % self.size][i // self.size] for i in range(sum(map(len, shares)))]

    def told(self, value: T) -> T:
        """The leader's `value`, on every rank.

        Raises:
            LandscapeError: the one that the leader told.
        """
        if self.size == 1:
            return value
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0)
        if not self.leads and isinstance(values[0], LandscapeError):
            raise values[0]
        return values[0]

    def spread(self, tensor: Tensor) -> Tensor:
        """`tensor`, with the leader's content put into it."""
        if self.size > 1:
            dist.broadcast(tensor, src=0)
        return tensor

    def given(self, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The leader's `tensors` on every rank, where `like` are the same on all; those that are not, are sent."""
        changed = self.told([name for name, tensor in tensors.items() if tensor is not like[name]])
        given = dict(tensors) if self.leads else dict(like)
        for name in changed:
            own = given[name].contiguous() if self.leads else torch.empty_like(like[name])
            given[name] = self.spread(own)
        return given

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.size > 1:
            dist.barrier()


ALONE = Ranks()


@contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """The ranks torchrun started, or this process alone, each on its own `device`.

    Raises:
        RankError: another rank ended.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks(device=device)
        return
    own = device
    if torch.device(device).type == "cuda":
        own = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(own)
    dist.init_process_group("cpu:gloo,cuda:nccl" if own.startswith("cuda") else "gloo", timeout=_PATIENCE)
    try:
        yield Ranks(dist.get_rank(), size, own)
        dist.barrier()  # who hangs up while another still listens may end it (gloo aborts)
    except RuntimeError as error:
        if any(word in str(error).lower() for word in _GONE):
            raise RankError(
                "another rank ended; its own message says why. The same command goes on from here"
            ) from error
        raise
    finally:
        dist.destroy_process_group()
