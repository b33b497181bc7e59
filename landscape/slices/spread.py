"""Places of a plane spread over ranks: the leader asks for some, every rank evaluates one of them, the leader writes.

A place's loss is computed by one rank, from the same bits of the plane and by the same loop as without other ranks:
the slice that comes out is the same to the bit, whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from landscape.machine.ranks import Ranks
from landscape.slices.plane import Plane
from landscape.slices.samples import Place
from landscape.slices.scan import At, Losses
from landscape.weights import Weights


def over(ranks: Ranks, losses: Losses) -> Losses:
    """`losses`, computed by all `ranks`, the others of which are in `follow`; end with `dismiss`."""
    return losses if ranks.size == 1 else _Spread(losses.scan, losses.exact, losses, ranks)


@dataclass(frozen=True)
class _Spread(Losses):
    here: Losses
    ranks: Ranks

    def on(self, plane: Plane) -> At:
        """As `Losses.on`, as many places at a time as there are ranks."""
        at_here, ranks = self.here.on(plane), self.ranks
        ranks.told(plane.v is not None)
        for direction in filter(None, (plane.u, plane.v)):
            _spread(direction, ranks)

        def at(places: Sequence[Place], exact: bool) -> Iterator[float]:
            for begin in range(0, len(places), ranks.size):
                asked = places[begin : begin + ranks.size]
                ranks.told((asked, exact))
                yield from chain(*ranks.collect(list(at_here(asked[:1], exact))))

        return at


def follow(losses: Losses, theta: Weights, ranks: Ranks) -> None:
    """Evaluate what the leader asks for on the plane through `theta`, until it says that this is all."""
    directions = [_spread(_like(theta), ranks) for _ in range(1 + ranks.told(True))]
    plane = Plane(theta, directions[0], directions[1] if len(directions) > 1 else None, {}, 0.0, (1.0, 1.0))
    at = losses.on(plane)
    while (told := ranks.told(None)) is not None:
        asked, exact = told
        ranks.collect(list(at(asked[ranks.rank :][:1], exact)))


def dismiss(ranks: Ranks) -> None:
    """Tell those in `follow` that this was all."""
    ranks.told(None)


def _like(theta: Weights) -> Weights:
    return Weights({name: torch.empty_like(tensor) for name, tensor in theta.items()})


def _spread(direction: Weights, ranks: Ranks) -> Weights:
    for tensor in direction.values():
        ranks.spread(tensor)
    return direction
