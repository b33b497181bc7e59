"""How numbers are computed while a job measures: float32 is float32, and on request every operation is repeatable.

The user's environment may have made float32 products coarser (TF32 on a GPU, bfloat16 on a CPU); a measurement takes
them whole whatever was set, and puts the setting back. What the rest of the environment is,
`landscape.machine.environment` writes down.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import torch

from landscape.errors import OptionError

Job = TypeVar("Job", bound=Callable[..., Any])
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS reads it when CUDA begins
_REPEATABLE = (":4096:8", ":16:8")
_REFUSED = "does not have a deterministic implementation"


def exactly(job: Job) -> Job:
    """`job`, a function whose first argument has a field `deterministic`, computed under `arithmetic`."""

    @wraps(job)
    def run(config: Any, *rest: Any, **named: Any) -> Any:
        with arithmetic(config.deterministic):
            return job(config, *rest, **named)

    return cast(Job, run)


@contextmanager
def arithmetic(deterministic: bool = False, threads: int | None = None) -> Iterator[None]:
    """Within, float32 products are float32, and everything is as it was afterwards.

    Args:
        deterministic: only operations that give the same bits every time; torch refuses all others.
        threads: of the CPU, which sums are split over; None for as many as there are.

    Raises:
        OptionError: deterministic where an operation cannot be, or where CUDA has begun without the setting it needs.
    """
    if deterministic:
        _prepare_cuda()
    before = _Before()
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        if threads is not None:
            torch.set_num_threads(threads)
        if deterministic:
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
            torch.backends.cudnn.benchmark = False
        yield
    except RuntimeError as error:
        if deterministic and _REFUSED in str(error):
            what = str(error).split(_REFUSED)[0].strip() or "an operation"
            raise OptionError(f"--deterministic: {what} cannot be computed so on this device; leave it out") from error
        raise
    finally:
        before.restore()


class _Before:
    """The settings as they are now."""

    def __init__(self) -> None:
        self._threads = torch.get_num_threads()
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._warns = torch.is_deterministic_algorithms_warn_only_enabled()
        self._fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        self._benchmark = torch.backends.cudnn.benchmark
        self._precision: str | None = None
        try:
            self._precision = torch.get_float32_matmul_precision()
            self._convolutions = torch.backends.cudnn.allow_tf32
        except RuntimeError:  # set through torch's two interfaces at once: it can no longer tell
            self._convolutions = False

    def restore(self) -> None:
        if self._precision is not None:
            torch.set_float32_matmul_precision(self._precision)
        torch.backends.cudnn.allow_tf32 = self._convolutions
        torch.backends.cudnn.benchmark = self._benchmark
        torch.use_deterministic_algorithms(self._deterministic, warn_only=self._warns)
        torch.utils.deterministic.fill_uninitialized_memory = self._fills  # type: ignore[attr-defined]
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)


def _prepare_cuda() -> None:
    if not torch.cuda.is_available() or os.environ.get(_WORKSPACE) in _REPEATABLE:
        return
    if torch.cuda.is_initialized():
        raise OptionError(
            f"--deterministic: CUDA has begun in this process without {_WORKSPACE}={_REPEATABLE[0]}; set that in the "
            "environment before Python starts"
        )
    os.environ[_WORKSPACE] = _REPEATABLE[0]
