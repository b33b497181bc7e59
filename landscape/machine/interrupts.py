"""Ctrl-C that is never lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN = 0.05  # seconds: long enough to be out of the callback that dropped the interrupt


@contextmanager
def heard() -> Iterator[None]:
    """Give back, within the block, a `KeyboardInterrupt` that was dropped, or that a library made something else of.

    One that is raised while a weak reference's callback or a `__del__` runs is printed as ignored and forgotten
    (docs.python.org, `sys.unraisablehook`); torch runs many of these, so that now and then a job would go on as if
    nobody had asked it to stop: it is repeated. One that is raised within a callback of HDF5's comes back as
    "operation not defined for data type", which looks like a damaged file: any error after Ctrl-C is taken for it.

    Raises:
        KeyboardInterrupt: Ctrl-C, and whatever came of it.
    """
    drop, handler = sys.unraisablehook, signal.getsignal(signal.SIGINT)
    pressed = False

    def repeat(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            return drop(dropped)
        # as a signal to the main thread it also ends a wait, which `_thread.interrupt_main` does not
        again = threading.Timer(_AGAIN, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        again.daemon = True
        again.start()

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.default_int_handler(number, frame)

    # another's handler stays, and a job in the background goes on ignoring it
    ours = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    sys.unraisablehook = repeat
    if ours:
        signal.signal(signal.SIGINT, press)
    try:
        yield
    except Exception as error:
        if pressed:
            raise KeyboardInterrupt from error
        raise
    finally:
        sys.unraisablehook = drop
        if ours:
            signal.signal(signal.SIGINT, handler)
