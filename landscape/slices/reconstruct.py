"""The loss on a rectangle from few evaluations, with a stated error; where that fails, from all of them.

One polynomial first, through all nodes; where it takes many, one that is nearest to the losses at twice as many nodes
as it has coefficients. Where that takes too many, or a loss is not finite, the rectangle is cut in two that overlap,
each with a polynomial of its own from the evaluations made so far and new ones; and so on. A piece that has hardly
more cells than a polynomial needs nodes is evaluated cell by cell, and so is all that is left when polynomials have
cost two fifths of what all cells would. Where so many evaluations are not allowed, one polynomial takes those that
are, which serves better than pieces with few of them each, and states the error it then has.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from landscape.errors import SliceError
from landscape.slices.axes import Bounds
from landscape.slices.panel import CHECKED, LEAST_CHECKS, REPEATS, Attempt, attempt
from landscape.slices.samples import CELL, Evaluate, Place, Samples
from landscape.slices.surface import Patch, Seam, Surface

_MOST_NODES = 400  # of one polynomial
_SMOOTH = 150  # nodes after which a loss is taken for rough: waves that a polynomial cannot follow, it magnifies
_WORTH_IT = 3  # cells per evaluation below which a polynomial saves too little
_LEAST_NODES = {1: 12, 2: 31}  # evaluations below which no polynomial is accepted, by number of axes
_OVERLAP = 0.04  # of the side that is cut, to both sides of the cut
_SHARE_SPENT = 0.4  # of the cells, in evaluations for polynomials, before all that is left is evaluated cell by cell
_LOST = 6.0  # a hundred evaluations of one loss have a range of about so many standard deviations
_PER_NODE = 1.4  # evaluations, check points included
_STOPPED = "; it ended there because no more evaluations are allowed"


@dataclass(frozen=True)
class Certificate:
    """What a reconstruction says of itself.

    Attributes:
        error: largest absolute error expected anywhere on the picture, nats; 0 where every cell is evaluated.
        target: the error asked for, nats.
        reached: whether `error` is within `target`.
        evaluations: all that were made for the surface, named points among them only where they serve as nodes.
        nodes, checks, cells: how they were used.
        worst_check: largest error at the check points where both losses are finite, nats.
        noise: standard deviation of one evaluation, nats.
        pieces: rectangles that the picture was cut into; 1 when one polynomial sufficed.
        evaluated: share of the picture's cells that were evaluated themselves.
        why: in words, how it came to more than one polynomial; empty where it did not.
    """

    error: float
    target: float
    reached: bool
    evaluations: int
    nodes: int
    checks: int
    cells: int
    worst_check: float
    noise: float
    pieces: int
    evaluated: float
    why: str


@dataclass(frozen=True)
class Reconstruction:
    """A surface with its certificate.

    Attributes:
        surface: the loss at any place.
        certificate: how far it can be trusted.
        checked: (n, 4) the check points: α, β, loss evaluated there, loss the surface has there.
    """

    surface: Surface
    certificate: Certificate
    checked: np.ndarray


def reconstruct(
    evaluate: Evaluate,
    alpha: np.ndarray,
    beta: np.ndarray,
    tolerance: tuple[float, float],
    scale: float,
    known: Mapping[Place, float],
    seed: int,
    noisy: bool = False,
    most: int | None = None,
) -> Reconstruction:
    """The loss on the rectangle of the grid lines `alpha`, `beta`, one of which may be a single line.

    Args:
        evaluate: (kind, places) → nats; a "check" in float32, a "node" or "cell" in the arithmetic of the scan.
        alpha: grid lines of the picture; cells are evaluated only where polynomials fail.
        beta: likewise.
        tolerance: of the maximal error over the picture, as a share of the range of its losses and of `scale`.
        scale: the loss at the origin.
        known: float32 losses at places of the rectangle.
        seed: of the check points.
        noisy: whether the arithmetic of the scan is less precise than float32.
        most: evaluations, about, after which it ends with the error it has; None for no end. Evaluating every cell is
            a way out only where that many are allowed.

    Raises:
        SliceError: the losses differ by less than the noise of one evaluation.
    """
    samples = Samples(evaluate, tolerance, scale, noisy)
    samples.add(known)
    pieces = _Pieces(samples, alpha, beta, seed, most)
    surface = pieces.build(Bounds((alpha[0], alpha[-1]), (beta[0], beta[-1])), 1, pieces.room)
    return Reconstruction(surface, *pieces.certify(surface))


class _Pieces:
    """The recursion over rectangles, and what it has come to."""

    def __init__(self, samples: Samples, alpha: np.ndarray, beta: np.ndarray, seed: int, most: int | None) -> None:
        self.samples, self.alpha, self.beta, self.seed = samples, alpha, beta, seed
        self.axes = 2 if len(beta) > 1 else 1
        self.evaluated = np.zeros((len(alpha), len(beta)), dtype=bool)
        cells = self.evaluated.size
        self.spendable, self.room = max(_SHARE_SPENT * cells, 2 * _PER_NODE * _LEAST_NODES[self.axes]), sys.maxsize
        if most is not None and most < (1 + _SHARE_SPENT) * cells:
            self.spendable, self.room = np.inf, most
        self.attempts: list[Attempt] = []
        self.patches = 0
        self.why = ""

    def build(self, bounds: Bounds, path: int, room: int) -> Surface:
        """The surface over `bounds` from about `room` evaluations; `path` numbers the rectangles, the whole being 1."""
        rows, columns = _within(self.alpha, bounds.alpha), _within(self.beta, bounds.beta)
        before, cells = self.samples.evaluations, len(rows) * len(columns)
        dense_is_a_way_out = self.spendable < np.inf
        left = self.spendable - (before - self.evaluated.sum()) if dense_is_a_way_out else room
        most = int(min(_MOST_NODES if dense_is_a_way_out else np.inf, cells / _WORTH_IT, left / _PER_NODE))
        if most < _LEAST_NODES[self.axes]:
            few = f"{cells} cells are" if cells / _WORTH_IT < _LEAST_NODES[self.axes] else f"{room} evaluations are"
            self.why = self.why or f"{few} too few for a polynomial"
            return self._patch(bounds, rows, columns, room)
        rng = np.random.default_rng([self.seed, path])
        smooth = most if self.samples.noisy else min(most, _SMOOTH)
        result = attempt(self.samples, bounds, smooth, rng, gives_up=dense_is_a_way_out)
        if result.ended == "nodes" and result.polynomial and smooth < most:
            result = attempt(self.samples, bounds, most, rng, gives_up=dense_is_a_way_out, per_coefficient=REPEATS)
        if result.ended != "nodes":
            return self._accept(result)
        if not self.why:
            self.why = (
                f"a polynomial through {result.nodes} places was still off by {result.error:.1e} nats"
                if result.polynomial
                else "some losses are not finite"
            )
        room -= self.samples.evaluations - before
        if result.polynomial and not dense_is_a_way_out:
            self.why = f"{self.why.removesuffix(_STOPPED)}{_STOPPED}"
            return self._accept(result if len(result.checks) else self._checked(result, bounds))
        if room < 2 * _PER_NODE * _LEAST_NODES[self.axes]:
            return self._patch(bounds, rows, columns, room)
        lines = (len(rows), len(columns))
        axis = result.steep if 4 * lines[result.steep] >= lines[1 - result.steep] else 1 - result.steep
        return self._cut(bounds, axis, path, room)

    def _accept(self, result: Attempt) -> Surface:
        assert result.polynomial is not None
        if self.samples.spread < _LOST * self.samples.noise:
            raise SliceError(
                f"the losses on this rectangle differ by {self.samples.spread:.1e} nats, less than the noise of "
                f"evaluations ({self.samples.noise:.1e}) can make: widen it with --bounds or --margin, or use --dtype "
                "float32"
            )
        self.attempts.append(result)
        return result.polynomial

    def _cut(self, bounds: Bounds, axis: int, path: int, room: int) -> Surface:
        name = ("alpha", "beta")[axis]
        low, high = getattr(bounds, name)
        middle, overlap = (low + high) / 2, _OVERLAP * (high - low)
        start, end = middle - overlap, middle + overlap
        before = self.samples.evaluations
        below = self.build(replace(bounds, **{name: (low, end)}), 2 * path, room // 2)
        room -= self.samples.evaluations - before
        above = self.build(replace(bounds, **{name: (start, high)}), 2 * path + 1, room)
        return Seam(axis, start, end, below, above)

    def _patch(self, bounds: Bounds, rows: np.ndarray, columns: np.ndarray, room: int) -> Patch:
        """All cells of the piece, or as many of their lines as there is room for."""
        stride = 1
        while len(rows[::stride]) * len(columns[::stride]) > max(room, _LEAST_NODES[self.axes]):
            stride += 1
        if is_coarse := stride > 1:
            rows, columns = (np.union1d(lines[::stride], lines[-1:]) for lines in (rows, columns))
        self.patches += 1
        self.evaluated[np.ix_(rows, columns)] = True
        alpha, beta = self.alpha[rows], self.beta[columns]
        places = np.stack(np.meshgrid(alpha, beta, indexing="ij"), axis=-1)
        losses = self.samples.nodes(places.reshape(-1, 2), CELL)
        patch = Patch(alpha, beta, losses.reshape(len(alpha), len(beta)))
        if is_coarse:
            self.attempts.append(self._checked(Attempt(None, 0.0, "nodes", 0, 0, np.zeros((0, 2))), bounds, patch))
        return patch

    def _checked(self, result: Attempt, bounds: Bounds, patch: Patch | None = None) -> Attempt:
        """`result` compared with the truth at random places, which it was not when it ended for want of evaluations."""
        rng = np.random.default_rng([self.seed, self.samples.evaluations])
        axes = [rng.uniform(*side, LEAST_CHECKS[self.axes]) for side in (bounds.alpha, bounds.beta)]
        surface = result.polynomial or patch
        assert surface is not None
        errors = np.abs(surface(*axes) - self.samples.checks(np.column_stack(axes)))
        worst = CHECKED * float(errors[np.isfinite(errors)].max(initial=0.0))
        return replace(result, error=max(result.error, worst), checks=np.column_stack(axes))

    def certify(self, surface: Surface) -> tuple[Certificate, np.ndarray]:
        """The certificate of the whole, and the check points with the loss evaluated and the surface's."""
        samples, cells = self.samples, int(self.evaluated.sum())
        places = np.concatenate([np.zeros((0, 2)), *(result.checks for result in self.attempts)])
        if samples.noisy and self.patches:
            places = np.concatenate([places, self._some_cells()])
        losses, shown = samples.checks(places), surface(places[:, 0], places[:, 1])
        differences = np.abs(losses - shown)
        worst = float(differences[np.isfinite(differences)].max(initial=0.0))
        error = max([worst, *(result.error for result in self.attempts)])
        if samples.noisy and self.patches:
            error = max(error, CHECKED * worst)
        certificate = Certificate(
            error=error,
            target=samples.target,
            reached=error <= samples.target,
            evaluations=samples.evaluations,
            nodes=sum(result.nodes for result in self.attempts),
            checks=len(places),
            cells=cells,
            worst_check=worst,
            noise=samples.noise,
            pieces=sum(result.polynomial is not None for result in self.attempts) + self.patches,
            evaluated=cells / self.evaluated.size,
            why=self.why,
        )
        return certificate, np.column_stack([places, losses, shown])

    def _some_cells(self) -> np.ndarray:
        """Cells to compare with float32, where the scan is less precise: as many as check points of a polynomial."""
        cells = np.argwhere(self.evaluated)
        rng = np.random.default_rng(self.seed)
        rows, columns = cells[rng.choice(len(cells), min(len(cells), LEAST_CHECKS[self.axes]), replace=False)].T
        return np.column_stack([self.alpha[rows], self.beta[columns]])


def _within(lines: np.ndarray, interval: tuple[float, float]) -> np.ndarray:
    """Indices of the grid lines in `interval`, its ends included."""
    slack = 1e-9 * (lines[-1] - lines[0])
    return np.flatnonzero((lines >= interval[0] - slack) & (lines <= interval[1] + slack))
