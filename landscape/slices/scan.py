"""Evaluate a slice: the named points, the profile, then the grid tile by tile, each stored as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from landscape.slices.plane import Plane
from landscape.slices.store import SliceWriter
from landscape.weights import Weights, move_to

TILE = 4


def scan(
    writer: SliceWriter,
    plane: Plane,
    points: Mapping[str, Weights],
    loss: Callable[[Weights], float],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Evaluate what `writer` still misses; `loss` maps weights to nats per token.

    Weights at a cell are computed from the plane's masters, never from the cell before, so a cell's number does not
    depend on the order, on an interruption, or on any other cell. The plane's tensors are only read.
    """
    alpha, beta = writer.axes
    names, places, tiles = writer.pending_points(), writer.pending_profile(), writer.pending_tiles(TILE)
    total = len(names) + len(places) + sum(_cells(tile) for tile in tiles)
    done = 0
    on_progress(done, total)
    with torch.no_grad():
        scratch = plane.origin.clone()

        def at(a: float, b: float) -> float:
            nonlocal done
            value = loss(move_to(scratch, plane.origin, a, plane.u, b, plane.v))
            done += 1
            on_progress(done, total)
            return value

        for name in names:
            writer.write_point(name, loss(points[name]))
            done += 1
            on_progress(done, total)
        for index, a, b in places:
            writer.write_profile(index, at(a, b))
        for rows, columns in tiles:
            losses = [[at(a, b) for b in beta[columns].tolist()] for a in alpha[rows].tolist()]
            writer.write_tile((rows, columns), np.asarray(losses))
    writer.finish()


def _cells(tile: tuple[slice, slice]) -> int:
    rows, columns = tile
    return int((rows.stop - rows.start) * (columns.stop - columns.start))
