"""What a slice shows, before anything is drawn: points, colours, sentences, in plain text.

Losses are in nats per token; α, β and distances are L2 distances in weight space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.caption import caption, notices
from landscape.viewer.described.colours import ColourRange, colour_range
from landscape.viewer.described.facts import facts
from landscape.viewer.described.findings import Findings, findings
from landscape.viewer.described.points import PointRow, point_rows, run_path
from landscape.viewer.described.trust import Trust, trust
from landscape.viewer.described.words import text

_SAME_SCALE = 3.0  # sides that differ by more than this factor are not drawn to one scale
_FREE_SHAPE = 1.2  # width over height of a rectangle that need not be to scale


@dataclass(frozen=True)
class Description:
    """Everything a drawing of one slice needs besides the grid lines and the profile.

    Attributes:
        trust: whether the losses were evaluated or reconstructed, and how far they can be trusted.
        facts: (name, value) of what the slice was made from.
        caption: sentences for a reader who does not know the subject.
        notices: what a reader must know before trusting the picture.
        findings: what the slice says, in numbers.
        profile_line: α and β of the two ends of the profile; None where there is no way to go.
        path: α and β of the way the run took; empty where there are few checkpoints.
        alpha_title, beta_title: of the axes.
        decimals: digits after the point that a coordinate is worth.
        to_one_scale: whether α and β are drawn to one scale.
        shape: width over height of the rectangle as it is drawn.
        colours: None where no cell has a finite loss.
        finite: (alpha, beta) the losses, NaN where there is none or it is not a finite number.
        non_finite: (alpha, beta) where a cell has its loss, and that is NaN or infinite.
        is_line: whether there is α alone.
    """

    title: str
    trust: Trust
    facts: tuple[tuple[str, str], ...]
    caption: tuple[str, ...]
    notices: tuple[str, ...]
    findings: Findings
    points: tuple[PointRow, ...]
    profile_line: tuple[np.ndarray, np.ndarray] | None
    path: tuple[np.ndarray, np.ndarray]
    alpha_title: str
    beta_title: str
    decimals: int
    to_one_scale: bool
    shape: float
    colours: ColourRange | None
    finite: np.ndarray
    non_finite: np.ndarray
    is_line: bool

    @property
    def origin(self) -> PointRow:
        """The point all others are compared with, at t = 0 of the profile."""
        return self.points[0]

    @property
    def last(self) -> PointRow:
        """The point at t = 1 of the profile."""
        return self.points[-1]

    @property
    def labels(self) -> list[str]:
        """The points' labels."""
        return [point.label for point in self.points]


def describe(stored: StoredSlice) -> Description:
    """What `stored` shows; works for slices that are still being filled and for files that leave things out."""
    points, trusted = point_rows(stored), trust(stored)
    is_finite = stored.done & np.isfinite(stored.loss)
    finite, non_finite = np.where(is_finite, stored.loss, np.nan), stored.done & ~is_finite
    colours = colour_range(stored.loss[is_finite], [point.loss for point in points])
    sides = float(np.ptp(stored.alpha)), float(np.ptp(stored.beta))
    to_one_scale = max(sides) <= _SAME_SCALE * min(sides)
    return Description(
        title=text(stored.attributes.get("title"), "Loss slice"),
        trust=trusted,
        facts=facts(stored, points, trusted.short),
        caption=caption(stored, points),
        notices=trusted.notices + notices(stored, points, colours, int(non_finite.sum())),
        findings=findings(stored),
        points=points,
        profile_line=_profile_line(stored),
        path=run_path(points),
        alpha_title=text(stored.attributes.get("alpha_title"), "α"),
        beta_title=text(stored.attributes.get("beta_title"), "β"),
        decimals=_decimals(stored),
        to_one_scale=to_one_scale,
        shape=sides[0] / sides[1] if to_one_scale else _FREE_SHAPE,
        colours=colours,
        finite=finite,
        non_finite=non_finite,
        is_line=stored.is_line,
    )


def grey_area(described: Description) -> np.ndarray:
    """(alpha, beta) the non-finite cells and the finite ones beside them, where colours end at the cell's centre."""
    padded = np.pad(described.non_finite, 1)
    rows, columns = described.non_finite.shape
    near = np.any([padded[i : i + rows, j : j + columns] for i in range(3) for j in range(3)], axis=0)
    return np.asarray(described.non_finite | (near & np.isfinite(described.finite)))


def _profile_line(stored: StoredSlice) -> tuple[np.ndarray, np.ndarray] | None:
    first, last, t = stored.points[0], stored.points[-1], stored.profile[0]
    if stored.is_line or (first.alpha, first.beta) == (last.alpha, last.beta):
        return None
    ends = np.array([t.min(), t.max()]) if t.size else np.array([0.0, 1.0])
    return first.alpha + ends * (last.alpha - first.alpha), first.beta + ends * (last.beta - first.beta)


def _decimals(stored: StoredSlice) -> int:
    lines = [line for line in (stored.alpha, stored.beta) if len(line) > 1]
    spacing = min(float(np.diff(line).min()) for line in lines)
    return max(0, 2 - math.floor(math.log10(spacing)))
