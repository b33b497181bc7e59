"""A Ray cluster: every task on whatever worker is free; one that is lost with its worker is tried again.

Workers write where the study lies, which has to be a folder that all of them see.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

from landscape.config import StudyConfig
from landscape.errors import LandscapeError, MissingExtraError, StudyError
from landscape.models.mapped import stored_parameters
from landscape.models.references import resolve
from landscape.reporting import Reporter
from landscape.study.plan import Task
from landscape.study.work import do

Done = Callable[[Task, str], None]
_PATIENCE = 5.0  # seconds for a cluster to answer
_BYTES = 24  # a parameter: Θ, Θ̂, their difference, a vector and its product, and room for a graph


def run(config: StudyConfig, tasks: Sequence[Task], reporter: Reporter, on_done: Done) -> None:
    """Do `tasks` on the cluster at `config.address`, or on one begun here; `on_done` hears of each as it ends.

    Raises:
        MissingExtraError: Ray is not installed.
        StudyError: no cluster at the address, or a task whose workers were lost more often than `config.retries`.
        LandscapeError: what is wrong with every checkpoint.
    """
    ray = _ray()
    begun = not ray.is_initialized()
    if begun:
        _begin(ray, config.address)
    try:
        needs = _needs(config, tasks[0], ray)
        remote = ray.remote(do).options(max_retries=config.retries, **needs)
        waiting = {remote.remote(task, config.out.resolve()): task for task in tasks}
        while waiting:
            ended, _ = ray.wait(list(waiting), num_returns=1)
            task = waiting.pop(ended[0])
            reporter.say(f"{len(waiting)} tasks to go on Ray; last {task}")
            on_done(task, _result(ray, ended[0], task, config))
    finally:
        if begun:
            ray.shutdown()


def _begin(ray: Any, address: str | None) -> None:
    refusal = f"--address {address}: no Ray cluster answers there; begin one with 'ray start', or leave --address out"
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():  # Ray itself would try for minutes
        try:
            socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
        except (OSError, OverflowError) as error:
            raise StudyError(refusal) from error
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (ConnectionError, ValueError) as error:
        raise StudyError(refusal) from error


def _result(ray: Any, ended: Any, task: Task, config: StudyConfig) -> str:
    try:
        return str(ray.get(ended))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LandscapeError):
            raise error.cause from None
        raise
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError) as error:
        raise StudyError(
            f"{task}: its worker was lost {config.retries + 1} times; run the same command again, with more memory or "
            "GPUs for each task if it was killed for want of them"
        ) from error


def _needs(config: StudyConfig, task: Task, ray: Any) -> dict[str, float]:
    """What a task occupies: a GPU or a share of one by the size of the model, else one processor."""
    gpus = config.gpus
    if gpus is None:
        gpus = 0.0
        if ray.cluster_resources().get("GPU") and config.device != "cpu":
            gpus = _share_of_gpu(task)
    return {"num_gpus": gpus, "num_cpus": 1}


def _share_of_gpu(task: Task) -> float:
    import torch

    if not torch.cuda.is_available():  # the driver has none to look at: a whole one
        return 1.0
    needed = _BYTES * stored_parameters(resolve(task.subject.point.reference))
    share = needed / torch.cuda.get_device_properties(0).total_memory
    return 1.0 if share > 0.5 else max(0.05, round(share, 2))


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "cluster", "--engine ray") from error
    return ray
