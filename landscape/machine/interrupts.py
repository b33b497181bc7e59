"""Ctrl-C that is never lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_AGAIN = 0.05  # seconds: long enough to be out of the callback that dropped the interrupt


@contextmanager
def heard() -> Iterator[None]:
    """Repeat, within the block, a `KeyboardInterrupt` that Python dropped.

    One that is raised while a weak reference's callback or a `__del__` runs is printed as ignored and forgotten
    (docs.python.org, `sys.unraisablehook`); torch runs many of these, so that now and then a job would go on as if
    nobody had asked it to stop.
    """
    before = sys.unraisablehook

    def repeat(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            return before(dropped)
        # as a signal to the main thread it also ends a wait, which `_thread.interrupt_main` does not
        again = threading.Timer(_AGAIN, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = before
