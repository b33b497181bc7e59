"""Fill a slice: the named points first, then every cell, or the few places from which all cells are reconstructed.

Weights at a place are computed from the plane's masters, never from the place before, so its loss does not depend on
the order, on an interruption, or on any other place. The plane's tensors are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from landscape.slices.axes import Bounds
from landscape.slices.plane import Plane
from landscape.slices.reading import read_surface
from landscape.slices.reconstruct import Reconstruction, reconstruct
from landscape.slices.samples import CELL, CHECK, Place
from landscape.slices.store import SliceWriter
from landscape.weights import Weights, move_to

TILE = 4
_EXPECTED = 60  # evaluations that a smooth plane takes, for a first estimate of the time left
_ON_PLANE = 1e-5  # of its distance: a named point this near to the plane is a place on it

Loss = Callable[[Weights], float]
At = Callable[[Sequence[Place], bool], Iterator[float]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Losses:
    """The loss as a function of the weights, in nats per token.

    Attributes:
        scan: in the arithmetic of the scan.
        exact: in float32; the same where the scan is in float32.
    """

    scan: Loss
    exact: Loss

    @property
    def noisy(self) -> bool:
        """Whether the scan is less precise than float32."""
        return self.scan is not self.exact

    def on(self, plane: Plane) -> At:
        """(places, whether in float32) ↦ the losses there, in order, as they come.

        Here one place after the other. Whoever can do with several at a time (`landscape.slices.spread`) says so here.
        """
        move = Mover(plane)

        def at(places: Sequence[Place], exact: bool) -> Iterator[float]:
            loss = self.exact if exact else self.scan
            return (loss(move(*place)) for place in places)

        return at


def evaluate_points(writer: SliceWriter, points: dict[str, Weights], losses: Losses) -> None:
    """The float32 losses that `writer` misses at the named points; empties `points`, to free their memory."""
    for name in writer.pending_points():
        writer.write_point(name, losses.exact(points[name]))
    points.clear()


def scan(writer: SliceWriter, plane: Plane, losses: Losses, on_progress: Progress = lambda done, total: None) -> None:
    """Evaluate every place of the profile and every cell that `writer` still misses."""
    alpha, beta = writer.axes
    places, tiles = writer.pending_profile(), writer.pending_tiles(TILE)
    at = losses.on(plane)
    total = len(places) + sum((t[0].stop - t[0].start) * (t[1].stop - t[1].start) for t in tiles)
    done = 0
    on_progress(done, total)

    def evaluated(asked: Sequence[Place]) -> Iterator[float]:
        nonlocal done
        for loss in at(asked, False):
            done += 1
            on_progress(done, total)
            yield loss

    for (index, *_), loss in zip(places, evaluated([(a, b) for _, a, b in places]), strict=True):
        writer.write_profile(index, loss)
    for rows, columns in tiles:
        cells = [(a, b) for a in alpha[rows].tolist() for b in beta[columns].tolist()]
        values = np.array(list(evaluated(cells)))
        writer.write_tile((rows, columns), values.reshape(-1, columns.stop - columns.start))
    writer.finish()


def sample(
    writer: SliceWriter,
    plane: Plane,
    losses: Losses,
    tolerance: tuple[float, float],
    seed: int,
    most: int | None = None,
    on_progress: Progress = lambda done, total: None,
) -> Reconstruction:
    """Reconstruct the picture from the evaluations `writer` holds and those it still needs, then fill in its cells.

    The named points must have their losses. What is evaluated next depends on what came out before, and on nothing
    else: resumed, it asks for the same places again and finds them in the file.

    Args:
        writer: holds the file.
        plane: gives the weights.
        losses: in the arithmetic of the scan, and in float32.
        tolerance: of the error, as a share of the range of the losses and of the loss at the origin.
        seed: of the check points.
        most: evaluations, about, after which it ends with the error it has.
        on_progress: told evaluations done and expected.

    Raises:
        SliceError: the losses differ by less than the noise of one evaluation.
    """
    alpha, beta = writer.axes
    rows = {value: row for row, value in enumerate(alpha.tolist())}
    columns = {value: column for column, value in enumerate(beta.tolist())}
    made = writer.made()
    at = losses.on(plane)
    done = 0

    def stored(kind: str, a: float, b: float) -> float | None:
        return writer.cell(rows[a], columns[b]) if kind == CELL else made.get((kind, a, b))

    def store(kind: str, a: float, b: float, loss: float) -> None:
        if kind == CELL:
            i, j = rows[a], columns[b]
            writer.write_tile((slice(i, i + 1), slice(j, j + 1)), np.array([[loss]]))
        else:
            writer.write_node(len(made), kind, a, b, loss)
            made[kind, a, b] = loss

    def evaluate(kind: str, places: Sequence[Place]) -> list[float]:
        nonlocal done
        found = {place: loss for place in places if (loss := stored(kind, *place)) is not None}
        done += len(found)
        missing = [place for place in places if place not in found]
        for place, loss in zip(missing, at(missing, kind == CHECK), strict=True):
            store(kind, *place, loss)
            found[place] = loss
            done += 1
            on_progress(done, max(_EXPECTED, done + 1))
        return [found[place] for place in places]

    points = writer.points()
    origin = next(iter(points.values()))
    bounds = Bounds((alpha[0], alpha[-1]), (beta[0], beta[-1]))
    known = {
        (a, b): loss
        for name, (a, b, residual, loss) in points.items()
        if residual <= _ON_PLANE * plane.points[name].distance and bounds.hold(a, b)
    }
    found = reconstruct(evaluate, alpha, beta, tolerance, origin[3], known, seed, losses.noisy, most)
    places = {name: (a, b) for name, (a, b, _, _) in points.items()}
    rise = abs(list(points.values())[-1][3] - origin[3])
    reading = read_surface(found.surface, bounds, found.certificate.error, places, rise)
    writer.finish_reconstructed(found, reading.to_plain())
    on_progress(done, done)
    return found


class Mover:
    """Weights at places of the plane, in memory that is used again."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._scratch = plane.origin.clone()

    def __call__(self, alpha: float, beta: float) -> Weights:
        """Origin + α·u + β·v."""
        plane = self._plane
        with torch.no_grad():
            return move_to(self._scratch, plane.origin, alpha, plane.u, beta, plane.v)
