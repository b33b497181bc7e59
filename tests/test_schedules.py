"""Learning rates at every corner, against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from landscape.errors import OptionError
from landscape.training import SCHEDULES, make
from landscape.training.schedules import updates


def rates(kind: str, steps: int, **settings: object) -> list[float]:
    schedule = make(kind, **settings)
    return [schedule(step, steps) for step in range(steps)]


def test_constant_after_a_linear_warmup():
    assert rates("constant", 6, warmup=4) == [0.25, 0.5, 0.75, 1, 1, 1]
    assert rates("constant", 3, warmup=0) == [1, 1, 1]
    assert rates("constant", 200, warmup=0.01)[:3] == [0.5, 1, 1]


def test_a_linear_cooldown():
    expected = [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert rates("wsd", 10, warmup=2, cooldown=4) == pytest.approx(expected)
    assert rates("wsd", 10, warmup=0.2, cooldown=0.4) == pytest.approx(expected)
    to_a_tenth = rates("wsd", 10, warmup=2, cooldown=4, end=0.1)
    assert to_a_tenth[6:] == pytest.approx([1, 0.775, 0.55, 0.325])
    assert rates("wsd", 4, warmup=0, cooldown=0) == [1, 1, 1, 1]


def test_the_other_shapes_of_a_cooldown():
    sqrt = rates("wsd", 8, warmup=0, cooldown=4, shape="sqrt")
    assert sqrt[4:] == pytest.approx([1, 0.5, 1 - math.sqrt(0.5), 1 - math.sqrt(0.75)])
    cosine = rates("wsd", 8, warmup=0, cooldown=4, shape="cosine")
    assert cosine[4:] == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])


def test_a_cooldown_that_begins_in_the_warmup_is_their_product():
    assert rates("wsd", 4, warmup=4, cooldown=4) == pytest.approx([0.25, 0.5 * 0.75, 0.75 * 0.5, 0.25])


def test_decay_over_the_whole_run():
    cosine = rates("decay", 6, warmup=2, end=0.1)
    assert cosine == pytest.approx(
        [0.5, 1, 1, 0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2, 0.55, 0.1 + 0.45 * (1 - math.sqrt(0.5))]
    )
    assert rates("decay", 4, warmup=0, shape="linear", end=0.0) == [1, 0.75, 0.5, 0.25]


def test_warm_restarts():
    assert rates("sgdr", 6, warmup=0, period=2) == pytest.approx([1, 0.5] * 3)
    growing = rates("sgdr", 14, warmup=0, period=2, growth=2, shape="linear")
    assert growing == pytest.approx([1, 0.5, 1, 0.75, 0.5, 0.25, *(1 - i / 8 for i in range(8))])
    assert rates("sgdr", 5, warmup=1, period=2, end=0.5) == pytest.approx([1, 1, 0.75, 1, 0.75])


def test_oscillation_in_hot_phases_only():
    found = rates("oli", 16, warmup=0, level=0.5, amplitude=0.2, period=8, hot=0.5, waves=1)
    wave = [0.5, 0.55, 0.6, 0.55]  # sin² at 0, 1/4, 1/2 and 3/4 of its half turn
    assert found == pytest.approx((wave + [0.5] * 4) * 2)
    warmed = rates("oli", 12, warmup=4, level=0.5, amplitude=0.2, period=8, hot=0.5, waves=1)
    assert warmed == pytest.approx([0.125, 0.25, 0.375, 0.5, *wave, *[0.5] * 4])
    two = rates("oli", 8, warmup=0, level=0.5, amplitude=0.2, period=8, hot=0.5, waves=2)
    assert two == pytest.approx([0.5, 0.6, 0.5, 0.6, *[0.5] * 4])


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_every_schedule_gives_a_rate_above_zero_at_every_update(kind: str, steps: int):
    found = rates(kind, steps)
    assert len(found) == steps and all(0 < rate <= 1 for rate in found)
    assert rates(kind, steps) == found


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_run_scaled_down_keeps_its_proportions(kind: str):
    long, short = rates(kind, 10_000, warmup=0), rates(kind, 1000, warmup=0)
    assert long[::10] == pytest.approx(short, abs=1e-9)


def test_lengths():
    assert [updates(length, 200) for length in (0, 0.001, 0.01, 0.5, 1, 7, 1000)] == [0, 1, 2, 100, 1, 7, 1000]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("triangle", {}, "schedule triangle: expected one of constant, decay, wsd, sgdr, oli"),
        ("wsd", {"cooldwon": 3}, "schedule wsd: has no cooldwon; expected some of warmup, cooldown, shape, end"),
        ("wsd", {"warmup": -1}, "warmup=-1; expected a share of the run below 1, or updates"),
        ("wsd", {"cooldown": -0.1}, "cooldown=-0.1; expected a share"),
        ("decay", {"shape": "square"}, "shape=square; expected one of linear, sqrt, cosine"),
        ("decay", {"end": 1.5}, "end=1.5; expected a share from 0 to 1"),
        ("sgdr", {"period": 0}, "period=0; expected"),
        ("sgdr", {"growth": 0.5}, "growth=0.5; expected a factor of at least 1"),
        ("oli", {"level": 0}, "level=0; expected a share of the peak above 0"),
        ("oli", {"hot": 2}, "hot=2; expected a share from 0 to 1"),
        ("oli", {"waves": 0}, "waves=0; expected a whole number"),
        ("oli", {"waves": 1.5}, "waves=1.5; expected a whole number"),
        ("oli", {"amplitude": -1}, "amplitude=-1; expected at least 0"),
        ("wsd", {"warmup": math.nan}, "warmup=nan; expected a share of the run below 1, or updates"),
        ("wsd", {"warmup": "long"}, "warmup=long; expected a share"),
        ("wsd", {"end": True}, "end=True; expected a share from 0 to 1"),
    ],
)
def test_what_cannot_be(kind: str, settings: dict[str, object], message: str):
    with pytest.raises(OptionError) as error:
        make(kind, **settings)
    assert message in str(error.value)
