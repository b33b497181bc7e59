"""Which points of a trajectory: the grammar of `MODEL@SELECTION`.

Parts that colons separate narrow the choice one after the other. A part is one of

    A..B        steps from A to B, both included; either may be missing
    every=N     every N-th point, beginning with the first; the last one in any case
    log=N       N points whose steps are spaced evenly on a logarithmic axis
    apart=N     from the last one back, those at least N steps apart within a stage
    last=N      the last N
    NAMES       revisions by name, by step or by pattern, separated by commas: step1000,143000,stage2-*

so that `stage1-*:..100000:log=8` takes eight points of the first 100,000 steps of stage 1. Points stay in the order of
training. Where there are several runs, each part applies to each of them by itself, over all its stages; a name must be
found in one of them. `log` needs steps that rise from point to point, so stages that count from their own beginning
have to be told apart first; points without a step, and step 0, which has no logarithm, are never among its choice.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from landscape.errors import ModelError, OptionError
from landscape.storage.files import on_disk
from landscape.trajectories.points import MAIN, Point
from landscape.trajectories.revisions import parse

_GRAMMAR = "expected A..B, every=N, log=N, apart=N, last=N, or names, steps and patterns separated by commas"


def split(reference: str) -> tuple[str, str | None]:
    """Model and selection; a path that exists is a model, whatever it contains.

    >>> split("EleutherAI/pythia-160m@step1000..:log=5"), split("EleutherAI/pythia-160m")
    (('EleutherAI/pythia-160m', 'step1000..:log=5'), ('EleutherAI/pythia-160m', None))

    Raises:
        OptionError: nothing before the @, or nothing after it.
    """
    if "@" not in reference or on_disk(reference):
        return reference, None
    model, _, selection = reference.rpartition("@")
    if not model or not selection:
        raise OptionError(
            f"trajectory {reference}: nothing {'after' if model else 'before'} the @; "
            "expected MODEL@SELECTION, or a model without the @ for all of its checkpoints"
        )
    return model, selection


def select(points: Sequence[Point], selection: str) -> list[Point]:
    """The points that `selection` chooses, in their order.

    Raises:
        OptionError: not of this grammar, a number that cannot be, or `log` over steps that do not rise.
        ModelError: a name that no point has, or nothing that is left.
    """
    runs: dict[str, list[Point]] = {}
    for point in points:
        runs.setdefault(point.run, []).append(point)
    chosen = list(runs.values())
    for part in selection.split(":"):
        before, chosen = chosen, _narrowed(chosen, part.strip(), selection)
        if not any(chosen):
            raise ModelError(f"selection {selection}: {part} leaves nothing; there is {_extent(before)}")
    return [point for run in chosen for point in run]


def _narrowed(runs: list[list[Point]], part: str, selection: str) -> list[list[Point]]:
    """What one part leaves of every run."""
    keyword, equals, value = part.partition("=")
    if equals and keyword in _COUNTED:
        count = _whole(value, part, selection)
        return [_COUNTED[keyword](run, count) if run else run for run in runs]
    if ".." in part:
        low, high = _range(part, selection)
        return [[point for point in run if point.step is not None and low <= point.step <= high] for run in runs]
    names = [name.strip() for name in part.split(",")]
    if equals or not all(names):
        raise OptionError(f"selection {selection}: {part or 'an empty part'}; {_GRAMMAR}")
    for name in names:
        if not any(_is(point, name) for run in runs for point in run):
            raise ModelError(f"selection {selection}: no revision is {name}; {_nearest(name, runs)}")
    return [[point for point in run if any(_is(point, name) for name in names)] for run in runs]


def _every(run: list[Point], count: int) -> list[Point]:
    return [point for place, point in enumerate(run) if place % count == 0 or place == len(run) - 1]


def _last(run: list[Point], count: int) -> list[Point]:
    return run[-count:]


def _apart(run: list[Point], least: int) -> list[Point]:
    """Points without a step are never too near to another."""
    chosen: list[Point] = []
    nearest: dict[str | None, int] = {}
    for point in reversed(run):
        later = nearest.get(point.stage)
        if point.step is None or later is None or later - point.step >= least:
            chosen.append(point)
            if point.step is not None:
                nearest[point.stage] = point.step
    return chosen[::-1]


def _log(run: list[Point], count: int) -> list[Point]:
    """The points nearest to `count` steps in geometric progression, first and last among them, none of them twice."""
    stepped = [(point.step, point) for point in run if point.step]
    steps = [step for step, _ in stepped]
    if any(after <= before for before, after in pairwise(steps)):
        raise OptionError(
            f"selection log={count}: the steps of {run[0].run} begin anew from stage to stage; "
            "expected one stage, chosen before it as in stage1-*:log=8"
        )
    if len(stepped) <= count:
        return [point for _, point in stepped]
    if count == 1:
        return [stepped[-1][1]]
    logs = [math.log(step) for step in steps]
    places: list[int] = []
    for number in range(count):
        target = logs[0] + (logs[-1] - logs[0]) * number / (count - 1)
        # Between the one chosen last and those that the rest will need.
        free = range(places[-1] + 1 if places else 0, len(logs) - (count - 1 - number))
        places.append(min(free, key=lambda place: abs(logs[place] - target)))
    return [stepped[place][1] for place in places]


_COUNTED: dict[str, Callable[[list[Point], int], list[Point]]] = {
    "every": _every,
    "log": _log,
    "apart": _apart,
    "last": _last,
}


def _whole(value: str, part: str, selection: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,17}", value.strip(), re.ASCII):
        raise OptionError(f"selection {selection}: {part}; expected a whole number of at least 1 after the =")
    return int(value)


def _range(part: str, selection: str) -> tuple[float, float]:
    found = re.fullmatch(r"(\d*)\s*\.\.\s*(\d*)", part, re.ASCII)
    low, high = (found[1] or "0", found[2] or "inf") if found else ("1", "0")
    if not found or not (found[1] or found[2]) or float(low) > float(high):
        raise OptionError(
            f"selection {selection}: {part}; expected steps A..B with A ≤ B, such as 1000..50000 or 1000.."
        )
    return float(low), float(high)


def _name(point: Point) -> str:
    """What a point is called: a model that has no revision goes by its stage, and one alone by `main`."""
    return point.revision or point.stage or MAIN


def _is(point: Point, name: str) -> bool:
    is_step = name.isdecimal() and str(point.step) == (name.lstrip("0") or "0")
    return is_step or fnmatchcase(_name(point), name)


def _nearest(name: str, runs: list[list[Point]]) -> str:
    """The names that a person may have meant: by step where there is one, else by spelling."""
    known = {_name(point): point.step for run in runs for point in run}
    step = parse(name).step
    stepped = [(each, known_step) for each, known_step in known.items() if known_step is not None]
    if step is not None and stepped:
        near = [each for each, _ in sorted(stepped, key=lambda pair: abs(pair[1] - step))[:4]]
    else:
        near = difflib.get_close_matches(name, known, n=4, cutoff=0.0)
    return f"nearest: {', '.join(near)}"


def _extent(runs: list[list[Point]]) -> str:
    """How far the points go that a part was to choose from."""
    everything = [point for run in runs for point in run]
    steps = [point.step for point in everything if point.step is not None]
    span = f", with steps from {min(steps)} to {max(steps)}" if steps else ", none of them with a step"
    return f"{len(everything)} to choose from{span}"
