"""lm-eval as a guest: present or a clear error, silent in our terminal, with random numbers of its own."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from landscape.errors import MissingExtraError

OnProgress = Callable[[int, int], None]  # (done, total)
_TALKATIVE = ("lm_eval", "datasets", "huggingface_hub")


def require() -> None:
    """Raise `MissingExtraError` unless lm-eval can run a model of transformers."""
    try:
        import lm_eval.models.huggingface  # noqa: F401  (needs accelerate too)
    except ImportError as error:
        raise MissingExtraError("lm-eval", "eval", "accuracy on tasks") from error


@contextmanager
def quiet() -> Iterator[None]:
    """The terminal belongs to our reporter: no bars and no log lines of lm-eval and of what it calls."""
    import datasets
    from lm_eval.api import task as building

    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in loggers]
    had_bars, bar = not datasets.are_progress_bars_disabled(), building.tqdm
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    datasets.disable_progress_bars()
    building.tqdm = lambda items, **_options: items  # the one bar that has no switch
    try:
        yield
    finally:
        building.tqdm = bar
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if had_bars:
            datasets.enable_progress_bars()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What the code of tasks draws comes from `seed`; what the caller draws goes on as if nothing had been drawn."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def reason(error: BaseException) -> str:
    """What `error` says, in a line."""
    words = (str(error).strip().splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
