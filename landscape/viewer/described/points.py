"""The named points of a slice, and the way of the run through them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from landscape.slices.stored import StoredPoint, StoredSlice
from landscape.viewer.described.words import text

ORIGIN, CHECKPOINT, QUANTIZED = "origin", "checkpoint", "quantized"
_SIGNS = (ORIGIN, CHECKPOINT, QUANTIZED)
_MANY = 3  # checkpoints from which on they are a run, drawn small and joined by a line
_OFF_PLANE = 1e-3  # of its distance: a point this far from the plane is not seen at its own loss


@dataclass(frozen=True)
class PointRow:
    """One named point.

    Attributes:
        role: "origin", "checkpoint", "quantized" or "other".
        what: the model reference or the quantizer behind the point.
        loss, perplexity: at the point itself, not at the nearest cell.
        change, relative: L − L(origin), and L/L(origin) − 1, which is ΔQ of a quantized point; None at the origin.
        share: where it lies on the rectangle, from (0, 0) at its lower left to (1, 1).
        below: the picture's loss where the point projects; None where the point lies on the plane.
        small: whether it is one of many and should not take much room.
    """

    name: str
    label: str
    role: str
    what: str
    loss: float
    perplexity: float
    change: float | None
    relative: float | None
    alpha: float
    beta: float
    distance: float
    residual: float
    share: tuple[float, float]
    below: float | None
    small: bool

    @property
    def sign(self) -> int:
        """Which marker it has: 0 for the origin, 1 for a checkpoint, 2 for a quantized point, 3 for any other."""
        return _SIGNS.index(self.role) if self.role in _SIGNS else len(_SIGNS)

    @property
    def inside(self) -> bool:
        """Whether the point lies on the slice's rectangle, give or take a rounding."""
        return all(-1e-6 <= share <= 1 + 1e-6 for share in self.share)

    @property
    def shown(self) -> float:
        """The loss at which it is drawn over the plane: the plane's where it lies off the plane, else its own."""
        return self.loss if self.below is None or not math.isfinite(self.below) else self.below


def point_rows(stored: StoredSlice) -> tuple[PointRow, ...]:
    """The points of `stored`, the origin first."""
    many = sum(point.role == CHECKPOINT for point in stored.points) >= _MANY
    return tuple(_row(stored, point, many and point.role == CHECKPOINT) for point in stored.points)


def run_path(points: tuple[PointRow, ...]) -> tuple[np.ndarray, np.ndarray]:
    """α and β of the way the run took, from one end to the other; empty where there are too few checkpoints.

    Checkpoints are in the order of the run, or in its reverse; the origin is joined to the end that is nearer.
    """
    run = [(point.alpha, point.beta) for point in points if point.role == CHECKPOINT]
    if len(run) < _MANY:
        return np.zeros(0), np.zeros(0)
    origin = points[0].alpha, points[0].beta
    if math.dist(run[0], origin) > math.dist(run[-1], origin):
        run.reverse()
    alpha, beta = np.array([origin, *run]).T
    return alpha, beta


def _row(stored: StoredSlice, point: StoredPoint, small: bool) -> PointRow:
    origin = stored.points[0]
    with np.errstate(all="ignore"):  # a loss above 709 has no perplexity that a float can hold
        perplexity, relative = float(np.exp(point.loss)), float(np.float64(point.loss) / origin.loss - 1)
    places = _share(point.alpha, stored.alpha), 0.5 if stored.is_line else _share(point.beta, stored.beta)
    off_plane = point.residual > _OFF_PLANE * point.distance
    return PointRow(
        name=point.name,
        label=point.label,
        role=point.role,
        what=text(point.what),
        loss=point.loss,
        perplexity=perplexity,
        change=None if point is origin else point.loss - origin.loss,
        relative=None if point is origin else relative,
        alpha=point.alpha,
        beta=point.beta,
        distance=point.distance,
        residual=point.residual,
        share=places,
        below=stored.at(point.alpha, point.beta) if off_plane and all(0 <= at <= 1 for at in places) else None,
        small=small,
    )


def _share(at: float, line: np.ndarray) -> float:
    return float((at - line[0]) / (line[-1] - line[0]))
