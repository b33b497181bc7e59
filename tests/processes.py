"""Functions run by several ranks: real processes that meet over gloo, forked where torch is already loaded."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import torch

PRELOADED = (
    "landscape.basin.job",
    "landscape.sharpness.job",
    "landscape.evaluation.job",
    "landscape.viewer",
    "transformers.models.gpt_neox.modeling_gpt_neox",
)


def together(function: Callable[..., None], size: int, *arguments: object) -> list[BaseProcess]:
    """`size` processes in which torchrun seems to have called `function`, one rank each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, function.__module__, *PRELOADED])
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # the server finds the tests there
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [context.Process(target=_as, args=(rank, size, port, function, arguments)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    return ranks


def ended(ranks: list[BaseProcess]) -> list[int | None]:
    """Their exit codes."""
    for rank in ranks:
        rank.join(600)
    return [rank.exitcode for rank in ranks]


def _as(rank: int, size: int, port: int, function: Callable[..., None], arguments: tuple[object, ...]) -> None:
    told = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in told.items()} | {"MASTER_ADDR": "127.0.0.1"}
    torch.set_num_threads(1)
    function(*arguments)
