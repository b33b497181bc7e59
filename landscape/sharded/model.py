"""A model cut into pieces by FSDP2: of every tensor each rank has some rows, and gathers a block's when it runs.

A rank reads its rows out of the file and never holds more than a block in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from landscape.decoder.blocks import decoder_blocks
from landscape.errors import OptionError
from landscape.machine.ranks import Ranks
from landscape.models.checkpoint import Checkpoint
from landscape.models.mapped import load_mapped
from landscape.objective import Batch, batches
from landscape.tokens import Windows


@dataclass(frozen=True)
class Pieces:
    """This rank's rows of every tensor.

    Attributes:
        rows: by name, in the model's order; the memory that the model computes with.
        starts: where each piece begins in its tensor, laid out as a vector.
        sizes: of the whole tensors.
    """

    rows: dict[str, Tensor]
    starts: dict[str, int]
    sizes: dict[str, int]

    @classmethod
    def of(cls, model: nn.Module, ranks: Ranks) -> Pieces:
        """Those of a model that `fully_shard` has cut."""
        rows, starts, sizes = {}, {}, {}
        for name, tensor in model.named_parameters():
            rows[name] = tensor.to_local().detach()  # type: ignore[attr-defined]
            whole, each = tensor.shape[0], math.ceil(tensor.shape[0] / ranks.size)
            starts[name] = min(ranks.rank * each, whole) * math.prod(tensor.shape[1:])
            sizes[name] = tensor.numel()
        return cls(rows, starts, sizes)


def load_sharded(checkpoint: Checkpoint, ranks: Ranks, remote_code: bool = False) -> nn.Module:
    """The model at `checkpoint` in float32, a piece of it on every rank; activations are recomputed block by block.

    Raises:
        ModelError: as `landscape.models.mapped.load_mapped`.
    """
    return shard(load_mapped(checkpoint, ranks.device, remote_code), ranks)


def shard(model: nn.Module, ranks: Ranks) -> nn.Module:
    """`model` cut into pieces, its blocks one after the other."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard  # a second of imports, which few jobs need

    mesh = init_device_mesh(torch.device(ranks.device).type, (ranks.size,))
    for block in decoder_blocks(model)[1]:
        for tensor in (*block.parameters(), *block.buffers()):
            tensor.data = tensor.data.to(ranks.device, torch.float32 if tensor.is_floating_point() else None)
        block.forward = partial(recomputed, block.forward, use_reentrant=False)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=True)  # also where no backward pass follows
    return model


def cut_evenly(windows: Windows, size: int, ranks: Ranks) -> Sequence[Batch]:
    """`windows` in batches of at most `size`, as many for each rank: all of them gather the same blocks together.

    Raises:
        OptionError: fewer windows than ranks.
    """
    count = math.ceil(len(windows) / size / ranks.size) * ranks.size
    if count > len(windows):
        raise OptionError(
            f"{len(windows)} windows, {ranks.size} ranks, --batch-size {size}: expected at least {count} windows; give "
            "more --tokens, or fewer ranks"
        )
    ends = [len(windows) * (i + 1) // count for i in range(count)]
    return [
        batch
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
        for batch in batches(Windows(windows.ids[begin:end], windows.lengths[begin:end]), end - begin, ranks.device)
    ]
