"""The learning rate as a pure function of the step: a share of the peak rate, without memory.

Updates are counted from 0. A warm-up of w updates gives the first one 1/w of the peak and the last one all of it. What
decays reaches its end after the last update, not at it: an update at rate zero would be none.

Lengths (warmup, cooldown, period) are shares of the run below one and updates from one on, so that a run that is scaled
down keeps its proportions. Whoever takes values from a person takes them through `make`, which checks them.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from functools import partial

from landscape.errors import OptionError

Schedule = Callable[[int, int], float]  # (update, updates in all) → share of the peak rate

# from 1 to 0 as what is left of a decay goes from 1 to 0
SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda left: left,
    "sqrt": lambda left: 1 - math.sqrt(1 - left),
    "cosine": lambda left: (1 - math.cos(math.pi * left)) / 2,
}


def constant(step: int, steps: int, warmup: float = 0.01) -> float:
    """The peak rate, after a linear warm-up."""
    length = updates(warmup, steps)
    return (step + 1) / length if step < length else 1.0


def decay(step: int, steps: int, warmup: float = 0.01, shape: str = "cosine", end: float = 0.1) -> float:
    """From the peak to `end` of it, over all that follows the warm-up."""
    after, left = _after_warmup(step, steps, warmup)
    return constant(step, steps, warmup) if after < 0 else _between(end, shape, (left - after) / left)


def wsd(
    step: int, steps: int, warmup: float = 0.01, cooldown: float = 0.2, shape: str = "linear", end: float = 0.0
) -> float:
    """Warm-up, the peak rate, and over the last `cooldown` a decay to `end` (arXiv 2405.18392; arXiv 2510.06213)."""
    length = updates(cooldown, steps)
    begun = step - (steps - length)
    return constant(step, steps, warmup) * (_between(end, shape, (length - begun) / length) if begun > 0 else 1.0)


def sgdr(
    step: int,
    steps: int,
    warmup: float = 0.01,
    period: float = 0.25,
    growth: float = 1.0,
    shape: str = "cosine",
    end: float = 0.0,
) -> float:
    """Warm restarts (arXiv 1608.03983): decays of `period` from the peak, each `growth` times as long as the last."""
    after, left = _after_warmup(step, steps, warmup)
    if after < 0:
        return constant(step, steps, warmup)
    place, length = float(after), float(updates(period, left))
    while place >= length:
        place, length = place - length, length * growth
    return _between(end, shape, (length - place) / length)


def oli(
    step: int,
    steps: int,
    warmup: float = 0.01,
    level: float = 0.1,
    amplitude: float = 0.5,
    period: float = 0.1,
    hot: float = 0.5,
    waves: int = 4,
) -> float:
    """Oscillatory lock-in, of arXiv 2604.15167 as far as that tells: hot phases oscillate, cool ones settle.

    Every cycle of `period` begins with `waves` waves over its share `hot`, from `level` of the peak up to (1 +
    `amplitude`) times that and back; the rest of it stays at `level`. The paper gives no numbers; these are ours.
    """
    after, left = _after_warmup(step, steps, warmup)
    if after < 0:
        return level * constant(step, steps, warmup)
    length = updates(period, left)
    place = after % length / length
    wave = math.sin(math.pi * waves * place / hot) ** 2 if place < hot else 0.0
    return level * (1 + amplitude * wave)


SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant,
    "decay": decay,
    "wsd": wsd,
    "sgdr": sgdr,
    "oli": oli,
}
_LENGTH, _SHARE = "expected a share of the run below 1, or updates", "expected a share from 0 to 1"
_RULES: dict[str, tuple[Callable[[float], bool], str]] = {
    "warmup": (lambda x: x >= 0, _LENGTH),
    "cooldown": (lambda x: x >= 0, _LENGTH),
    "period": (lambda x: x > 0, _LENGTH),
    "end": (lambda x: 0 <= x <= 1, _SHARE),
    "hot": (lambda x: 0 <= x <= 1, _SHARE),
    "level": (lambda x: 0 < x <= 1, "expected a share of the peak above 0"),
    "amplitude": (lambda x: x >= 0, "expected at least 0"),
    "growth": (lambda x: x >= 1, "expected a factor of at least 1"),
    "waves": (lambda x: x >= 1 and x == int(x), "expected a whole number of at least 1"),
}


def make(kind: str, **settings: float | str) -> Schedule:
    """The schedule of this kind, with all but these settings as the function of its name has them.

    >>> schedule = make("wsd", cooldown=4, warmup=2)
    >>> [schedule(step, 8) for step in range(8)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]

    Raises:
        OptionError: no such kind, or a setting that it does not have, or a value that cannot be.
    """
    if kind not in SCHEDULES:
        raise OptionError(f"schedule {kind}: expected one of {', '.join(SCHEDULES)}")
    known = list(inspect.signature(SCHEDULES[kind]).parameters)[2:]
    for name, value in settings.items():
        if name not in known:
            raise OptionError(f"schedule {kind}: has no {name}; expected some of {', '.join(known)}")
        if name == "shape":
            holds, expected = isinstance(value, str) and value in SHAPES, f"expected one of {', '.join(SHAPES)}"
        else:
            rule, expected = _RULES[name]
            number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
            holds = abs(number) <= sys.float_info.max and rule(float(number))
        if not holds:
            raise OptionError(f"schedule {kind}: {name}={value}; {expected}")
    return partial(SCHEDULES[kind], **settings)


def updates(length: float, steps: int) -> int:
    """A length in updates: a share of `steps` below one, and then at least one update unless it is zero."""
    return round(length) if length >= 1 else max(1, round(length * steps)) if length else 0


def _after_warmup(step: int, steps: int, warmup: float) -> tuple[int, int]:
    """(updates since the warm-up, negative within it; updates after it in all)."""
    length = updates(warmup, steps)
    return step - length, steps - length


def _between(end: float, shape: str, left: float) -> float:
    return end + (1 - end) * SHAPES[shape](left)
