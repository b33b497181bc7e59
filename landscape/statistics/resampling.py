"""Rows drawn again as they came: whole blocks of neighbouring checkpoints, each from within one run.

Checkpoints of one run are no independent draws: each is a little training away from the one before. Blocks of them keep
what neighbours share (the circular block bootstrap of Politis and Romano, 1992).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def runs_of(names: Sequence[object]) -> list[NDArray[np.intp]]:
    """Places of each run's rows, in order of first appearance.

    >>> [list(map(int, own)) for own in runs_of(["a", "b", "a"])]
    [[0, 2], [1]]
    """
    places: dict[object, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return [np.array(own, dtype=np.intp) for own in places.values()]


def block_length(rows: int) -> int:
    """Checkpoints in a block: the cube root of a run's rows, rounded up, the rate at which the bias vanishes.

    >>> block_length(20)
    3
    """
    return max(1, int(np.ceil(rows ** (1 / 3))))


def blocks(names: Sequence[object], block: int | None = None) -> int:
    """How many blocks a resampling draws: what it has of independent numbers."""
    return sum(-(-len(own) // (block or block_length(len(own)))) for own in runs_of(names))


def resample(names: Sequence[object], draws: int, seed: int = 0, block: int | None = None) -> NDArray[np.intp]:
    """Places of rows, intp (draws, rows): each run drawn as often as it has rows, in blocks of neighbours.

    Args:
        names: the run of every row; rows of a run in the order of training.
        draws: how many resamplings.
        seed: of the draws.
        block: rows in a block; None for `block_length` of each run.
    """
    random = np.random.default_rng(seed)
    parts = []
    for own in runs_of(names):
        n = len(own)
        length = min(n, block or block_length(n))
        count = -(-n // length)
        starts = random.integers(n, size=(draws, count))
        places = (starts[:, :, None] + np.arange(length)) % n  # (draws, blocks, length)
        parts.append(own[places.reshape(draws, -1)[:, :n]])
    return np.concatenate(parts, axis=1)
