"""An interrupt that Python drops comes again; anything else that it drops is printed as before."""

from __future__ import annotations

import signal
import sys
import time
import weakref
from collections.abc import Iterator

import pytest

from landscape.machine import interrupts


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    """Tests that run in the background inherit SIGINT as ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Thing:
    pass


def drop(error: BaseException) -> None:
    """Raise `error` where Python ignores it: in the callback of a weak reference."""

    def callback(_: object) -> None:
        raise error

    thing = Thing()
    reference = weakref.ref(thing, callback)
    del thing
    assert reference() is None


def test_an_interrupt_in_a_callback_reaches_the_block():
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupts.heard():
        drop(KeyboardInterrupt())
        time.sleep(60)
    assert time.monotonic() - began < 50  # a wait is ended, too


def test_other_errors_in_callbacks_do_not(monkeypatch: pytest.MonkeyPatch):
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: seen.append(dropped.exc_type))
    with interrupts.heard():
        drop(ValueError("no interrupt"))
        time.sleep(0.2)
    assert seen == [ValueError]


def test_the_hook_of_before_is_back():
    before = sys.unraisablehook
    with interrupts.heard():
        assert sys.unraisablehook is not before
    assert sys.unraisablehook is before
