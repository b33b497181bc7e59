"""Losses on a plane whose origin and directions lie in scratch space: many places in one pass over the blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from landscape.slices.plane import Plane
from landscape.slices.samples import Place
from landscape.slices.scan import At, Losses
from landscape.streaming.objective import StreamedCrossEntropy
from landscape.weights import Weights, place


def losses_on_places(objective: StreamedCrossEntropy) -> Losses:
    """What a slice asks of `objective`, all places at once that it asks for at once."""
    exact = objective if objective.dtype == torch.float32 else replace(objective, dtype=torch.float32)

    def scan(weights: Weights) -> float:
        return next(objective.means([weights]))

    def exactly(weights: Weights) -> float:
        return next(exact.means([weights]))

    return _Streamed(scan, scan if exact is objective else exactly, objective, exact)


@dataclass(frozen=True)
class _Streamed(Losses):
    coarse: StreamedCrossEntropy
    fine: StreamedCrossEntropy

    def on(self, plane: Plane) -> At:
        """As `Losses.on`: every block of the plane is read once for as many places as memory allows."""

        def at(places: Sequence[Place], exact: bool) -> Iterator[float]:
            objective = self.fine if exact else self.coarse
            return objective.means(place(plane.origin, a, plane.u, b, plane.v) for a, b in places)

        return at
