"""An interrupt that Python drops comes again; anything else that it drops is printed as before."""

from __future__ import annotations

import signal
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import h5py
import pytest

from landscape.machine import interrupts
from landscape.storage import hdf5


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


def test_an_interrupt_that_became_an_error_is_one_still():
    """As h5py does: https://github.com/h5py/h5py, `_conv.pyx`, whose callbacks log and may not fail."""
    with pytest.raises(KeyboardInterrupt) as seen, interrupts.heard():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise TypeError("operation not defined") from None
    assert isinstance(seen.value.__cause__, TypeError)
    with pytest.raises(TypeError), interrupts.heard():
        raise TypeError("one that nobody asked for")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_attributes_are_read_is_no_damage(tmp_path: Path):
    """At every call that is made for it, h5py's included: whoever uses no command has no block around it."""
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.attrs.update({"model": "run@step30", "cosine": 0.5})
        after = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal left
            left -= event == "call" and frame.f_globals["__name__"] != weakref.__name__  # these are dropped
            if left == 0:
                raise KeyboardInterrupt

        while True:
            left = after = after + 1
            sys.setprofile(count)
            try:
                read = hdf5.attributes(file)
            except KeyboardInterrupt:
                continue
            finally:
                sys.setprofile(None)
            break
    assert left > 0  # none was lost
    assert after > 20
    assert read == {"model": "run@step30", "cosine": 0.5}


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
