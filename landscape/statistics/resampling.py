"""Rows drawn again as they came: whole blocks of neighbouring checkpoints, each from within one run.

Checkpoints of one run are no independent draws: each is a little training away from the one before. Blocks of them keep
what neighbours share (the circular block bootstrap of Politis and Romano, 1992). Blocks come from all runs alike, so
that a run may be drawn twice or not at all: what differs between runs is part of the uncertainty. A short run is one
block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SHORT, _SEVERAL = 4, 5


def runs_of(names: Sequence[object]) -> list[NDArray[np.intp]]:
    """Places of each run's rows, in order of first appearance.

    >>> [list(map(int, own)) for own in runs_of(["a", "b", "a"])]
    [[0, 2], [1]]
    """
    places: dict[object, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return [np.array(own, dtype=np.intp) for own in places.values()]


def block_length(rows: int, runs: int = 1) -> int:
    """Checkpoints in a block: the cube root of a run's rows, rounded up, the rate at which the bias vanishes.

    Among several runs, one of up to four rows is one block: what differs between runs is then more than what differs
    within this one.

    >>> block_length(60), block_length(3, runs=20), block_length(3)
    (4, 3, 2)
    """
    return max(1, int(np.ceil(rows ** (1 / 3))), min(rows, _SHORT) if runs >= _SEVERAL else 0)


def blocks(names: Sequence[object], block: int | None = None) -> int:
    """How many blocks a resampling draws: what it has of independent numbers."""
    runs = runs_of(names)
    return sum(-(-len(own) // (block or block_length(len(own), len(runs)))) for own in runs)


def resample(names: Sequence[object], draws: int, seed: int = 0, block: int | None = None) -> NDArray[np.intp]:
    """Places of rows, intp (draws, rows), every row as likely as any other.

    Args:
        names: the run of every row; rows of a run in the order of training.
        draws: how many resamplings.
        seed: of the draws.
        block: rows in a block; None for `block_length` of each run.
    """
    random = np.random.default_rng(seed)
    n = len(names)
    following, length = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.intp)
    runs = runs_of(names)
    for own in runs:
        following[own] = np.roll(own, -1)
        length[own] = min(len(own), block or block_length(len(own), len(runs)))
    count = -(-n // int(length.min()))
    place = random.integers(n, size=(draws, count))  # where each block begins
    left = length[place]
    parts, used = [], []
    for step in range(int(length.max())):
        parts.append(place)
        used.append(step < left)
        place = following[place]
    rows = np.stack(parts, axis=2).reshape(draws, -1)
    kept = np.stack(used, axis=2).reshape(draws, -1)
    order = np.argsort(~kept, axis=1, kind="stable")[:, :n]  # those that belong to a block, as they came
    return np.take_along_axis(rows, order, axis=1)
