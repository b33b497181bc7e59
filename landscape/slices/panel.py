"""One polynomial on one rectangle: raised in degree until it can be trusted, with an estimate of how wrong it still is.

The estimate is the larger of two things that see different failures: by how much the last fifth of the nodes changed
the polynomial anywhere on the rectangle, and `CHECKED` times the largest error at places that the polynomial never saw.
The factor is calibrated on the surfaces of tests/surfaces.py and on real planes: in at most 2 % of them the true
maximal error is larger than the one stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from landscape.slices.axes import Bounds
from landscape.slices.nodes import Nodes, candidates, check_places
from landscape.slices.polynomial import Polynomial, basis, from_unit, lower_set, to_unit
from landscape.slices.samples import Samples

CHECKED = 2.5
_FIRST_DEGREE = 4
_BACK = (5, 0.2)  # two levels are compared that differ by so many nodes, and by this share of them, at least
LEAST_CHECKS = {1: 6, 2: 16}  # at least so many check points, by number of axes …
_CHECK_SHARE = 0.35  # … and this share of the nodes: a surface that needs more nodes has more places to hide in
_FASTER = 3.0  # an axis is not raised while its highest coefficients are this much smaller than the other's
_UNFINISHED = 2.0  # where the errors fall so slowly, the last levels do not tell all that is left
_WORTH_ASKING = 100  # nodes from which on it is asked whether more of them would help
_HOPE = 2.0  # times as many nodes as are allowed: an extrapolation is not worth more than that
REPEATS = 2.0  # nodes per coefficient where an evaluation is noisy, or the loss rough
_NOISE = 3.0  # levels that differ by less than this many standard deviations of one evaluation differ by noise


@dataclass(frozen=True)
class Attempt:
    """What became of one rectangle.

    Attributes:
        polynomial: the last one; None where a loss is not finite.
        error: largest error expected anywhere on the rectangle, nats.
        ended: why it ended: the error asked for is "reached", the rest is "noise", or no more "nodes" are allowed.
        steep: the axis (0 or 1) along which the polynomial converges more slowly.
        nodes: how many it was fitted to.
        checks: (n, 2) the places (α, β) that it was compared with.
    """

    polynomial: Polynomial | None
    error: float
    ended: Literal["reached", "noise", "nodes"]
    steep: int
    nodes: int
    checks: np.ndarray


def attempt(
    samples: Samples,
    bounds: Bounds,
    most: int,
    rng: np.random.Generator,
    gives_up: bool = True,
    per_coefficient: float = 1.0,
) -> Attempt:
    """Raise the degree on `bounds` until the error is below `samples.target`, or `most` nodes are used.

    It `gives_up` before, where the errors fall too slowly for the nodes that are left. With more than one node
    `per_coefficient`, as noisy evaluations always have, the polynomial is the one nearest to the losses there.
    """
    per_coefficient = max(per_coefficient, REPEATS if samples.noisy else 1.0)
    axes = 2 if bounds.beta[0] < bounds.beta[1] else 1
    everywhere = candidates(axes)
    known = samples.inside(bounds)
    seen = samples.nodes(known)
    if not np.isfinite(seen).all():
        return Attempt(None, np.inf, "nodes", _longer(bounds), 0, np.zeros((0, 2)))
    nodes = Nodes(to_unit(bounds, known), axes)
    degree = np.array([_FIRST_DEGREE, _FIRST_DEGREE if axes == 2 else 0])
    checks = np.zeros((0, 2))
    if samples.noisy:  # how noisy, must be known before two levels can be compared
        checks = check_places(rng, nodes.places, everywhere, np.zeros(len(everywhere)), LEAST_CHECKS[axes], axes)
        samples.checks(from_unit(bounds, checks))
    levels: list[tuple[int, np.ndarray]] = []
    history: list[tuple[int, float]] = []
    while True:
        degrees = lower_set(*degree)
        nodes.grow(lower_set(*np.ceil(degree * per_coefficient**0.5)) if per_coefficient > 1 else degrees)
        places = from_unit(bounds, nodes.places)
        is_known = nodes.reused >= 0
        places[is_known] = known[nodes.reused[is_known]]  # to the bit, or they would be evaluated again
        values = samples.nodes(places)
        if not np.isfinite(values).all():
            return Attempt(None, np.inf, "nodes", _longer(bounds), len(values), np.zeros((0, 2)))
        polynomial = Polynomial.fit(bounds, nodes.places, values, degrees)
        tails = _tails(polynomial, degree)
        here = basis(everywhere, degrees) @ polynomial.coefficients[tuple(np.asarray(degrees).T)]
        n = len(values)
        before = [level for count, level in levels if count <= n - max(_BACK[0], _BACK[1] * n)]
        levels.append((n, here))
        change = np.abs(here - before[-1]) if before else np.full(len(here), np.inf)
        history.append((n, float(change.max())))
        floor = _NOISE * samples.noise
        settled = change.max() <= max(samples.target, floor)
        if settled:
            wanted = max(LEAST_CHECKS[axes], int(_CHECK_SHARE * n)) - len(checks)
            if wanted > 0:
                taken = np.concatenate([nodes.places, checks])
                checks = np.concatenate([checks, check_places(rng, taken, everywhere, change, wanted, axes)])
        off = _largest_error(samples, polynomial, checks)
        if off == np.inf:
            return Attempt(None, np.inf, "nodes", _longer(bounds), n, np.zeros((0, 2)))
        if not samples.noisy:  # what the rectangle before this one was found to miss is not forgotten
            off = max(off, float(np.abs(polynomial(*known.T) - seen).max(initial=0.0)))
        error = max(float(change.max()), CHECKED * off, floor / _NOISE)
        ended: Literal["reached", "noise", "nodes"] | None = None
        if settled and error <= samples.target:
            ended = "reached"
        elif change.max() <= floor:
            ended = "noise"
        elif n >= most or (gives_up and n >= _WORTH_ASKING and _nodes_needed(history, samples.target) > _HOPE * most):
            ended = "nodes"
        if ended == "nodes":
            error *= _UNFINISHED
        if ended:
            places = from_unit(bounds, checks)
            return Attempt(polynomial, error, ended, int(tails[1] > tails[0]), n, places)
        degree = degree + (tails * _FASTER >= tails[::-1]) * (degree > 0)


def _nodes_needed(history: list[tuple[int, float]], target: float) -> float:
    """How many nodes the change between levels should need to fall to `target`, if it goes on falling as it did.

    A polynomial of degree d has about d² coefficients, and the error of a smooth function falls by a factor per degree.
    """
    root, change = np.array([(np.sqrt(n), np.log(max(change, 1e-300))) for n, change in history if change < np.inf]).T
    late = root >= 0.6 * root[-1]
    if late.sum() < 3:
        return 0.0
    slope, start = np.polyfit(root[late], change[late], 1)
    needed = (np.log(max(target, 1e-300)) - start) / slope if slope < 0 else np.inf
    return float(needed**2)


def _largest_error(samples: Samples, polynomial: Polynomial, checks: np.ndarray) -> float:
    if not len(checks):
        return 0.0
    places = from_unit(polynomial.bounds, checks)
    errors = np.abs(polynomial(places[:, 0], places[:, 1]) - samples.checks(places))
    return float(errors.max()) if np.isfinite(errors).all() else np.inf


def _tails(polynomial: Polynomial, degree: np.ndarray) -> np.ndarray:
    """Size of the coefficients of the two highest degrees along each axis: (2,)."""
    size = np.abs(polynomial.coefficients)
    return np.array([size[max(1, degree[0] - 1) :].max(), size[:, max(1, degree[1] - 1) :].max(initial=0.0)])


def _longer(bounds: Bounds) -> int:
    return int(np.ptp(bounds.beta) > np.ptp(bounds.alpha))
