"""A reconstructed picture: that it follows from what the file itself holds. No model is needed.

Cells, profile and check points must be what the stored surface gives, the surface must pass by what was evaluated
within the error stated, and what is read off it must come out again.
"""

from __future__ import annotations

import numpy as np

from landscape import slices
from landscape.slices.polynomial import Polynomial
from landscape.slices.samples import CHECK, NODE
from landscape.slices.surface import on_grid, patches
from landscape.verifying.verdict import Item, Verdict, pairs
from landscape.verifying.yardstick import FLOAT64

_WHY = "float64 rounding"
_READ = 1e-6  # share of a number read off a surface, where places are found by search


def check(stored: slices.StoredSlice, verdict: Verdict) -> None:
    """Check what a slice derives from its own evaluations; nothing where every cell was evaluated."""
    surface, certificate = stored.surface, stored.certificate
    if surface is None or certificate is None:
        return
    cells = on_grid(surface, stored.alpha, stored.beta)
    for patch in patches(surface):  # a seam may blend its cells, the picture has them as they were evaluated
        cells[np.ix_(np.isin(stored.alpha, patch.alpha), np.isin(stored.beta, patch.beta))] = patch.loss
    verdict.add_worst("picture as its surface gives it", _arrays("cell", stored.loss, cells))
    losses, inside = stored.profile[1], np.isfinite(stored.profile[1])
    along = surface(*line(stored)[inside].T)
    verdict.add_worst("profile as the surface gives it", _arrays("place", losses[inside], along))
    alpha, beta, loss, there = stored.checks.T
    verdict.add_worst("check points as the surface gives them", _arrays("place", there, surface(alpha, beta)))
    made = {(a, b): value for kind in (NODE, CHECK) for a, b, value in stored.nodes[kind].tolist()}
    again = np.array([made.get((a, b), value) for a, b, value in stored.checks[:, :3].tolist()])
    verdict.add_worst("check points as evaluated", _arrays("place", loss, again))
    worst = _largest(loss - there)
    verdict.add("largest error at check points", certificate.worst_check, worst, FLOAT64, _WHY)
    verdict.add("which the error stated covers", certificate.error, worst, FLOAT64, _WHY, at_most=True)
    if isinstance(surface, Polynomial) and stored.attributes["dtype"] == "float32":  # else patches, or noise
        a, b, value = stored.nodes[NODE].T
        off = _largest(surface(a, b) - value)
        verdict.add("as it covers the nodes", certificate.error, off, FLOAT64, _WHY, at_most=True)
    places = {point.name: (point.alpha, point.beta) for point in stored.points}
    rise = abs(stored.points[-1].loss - stored.points[0].loss)
    reading = slices.read_surface(surface, stored.bounds, certificate.error, places, rise).to_plain()
    verdict.add_worst("what is read off the picture", pairs(stored.reading, reading, _READ, "places found by search"))


def line(stored: slices.StoredSlice) -> np.ndarray:
    """(n, 2) the places of the profile."""
    first, last = (np.array([point.alpha, point.beta]) for point in (stored.points[0], stored.points[-1]))
    return np.asarray(first + stored.profile[0][:, None] * (last - first))


def _arrays(what: str, stored: np.ndarray, found: np.ndarray) -> list[Item]:
    finite = np.abs(stored[np.isfinite(stored)])
    tolerance = FLOAT64 * float(finite.max(initial=0.0))
    return [
        Item(f"{what} {', '.join(map(str, index))}", float(stored[index]), float(found[index]), tolerance, _WHY)
        for index in np.ndindex(stored.shape)
    ]


def _largest(errors: np.ndarray) -> float:
    return float(np.abs(errors[np.isfinite(errors)]).max(initial=0.0))
