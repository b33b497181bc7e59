"""Where the labels of named points go on each plot, for the size it is made for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.colours import ColourRange
from landscape.viewer.described.curves import curve_losses, loss_limits
from landscape.viewer.described.describe import Description
from landscape.viewer.described.labels import width_in_ems
from landscape.viewer.described.placing import Place, place
from landscape.viewer.described.points import PointRow

Vector = tuple[float, float, float]
Offsets = dict[str, Place | None]  # by a point's name; None where there is no room

LABEL = 14  # pixels, the size of a label's letters
_PICTURE = (560.0, 480.0)  # pixels for which labels of the surface are placed
_SCALE = 250.0  # pixels that a length of 1 in the scene takes there, about


def on_contour(described: Description, width: float, height: float, letters: float = LABEL) -> Offsets:
    """Offsets of labels on a contour of so many pixels."""
    shown = [point for point in described.points if point.inside]
    places = [(point.share[0] * width, point.share[1] * height) for point in shown]
    return _placed(shown, places, (width, height), letters=letters)


def on_curve(stored: StoredSlice, described: Description, width: float, height: float) -> Offsets:
    """Offsets of labels on a curve of so many pixels, clear of the curve itself."""
    alpha, loss = curve_losses(stored)
    low, high = loss_limits(stored, described)
    shown = [point for point in described.points if point.inside and math.isfinite(point.loss)]

    def pixels(a: float, value: float) -> Place:
        share = (a - stored.alpha[0]) / (stored.alpha[-1] - stored.alpha[0]), (value - low) / (high - low)
        return share[0] * width, share[1] * height

    along = np.linspace(alpha[0], alpha[-1], 300)
    losses = np.interp(along, alpha, loss)
    avoid = [pixels(a, value) for a, value in zip(along, losses, strict=True) if math.isfinite(value)]
    return _placed(shown, [pixels(point.alpha, point.loss) for point in shown], (width, height), avoid)


def on_surface(stored: StoredSlice, described: Description, colours: ColourRange, camera: Vector) -> Offsets:
    """Offsets of labels on the surface as it is first seen."""
    span = colours.high - colours.low
    shown = [point for point in described.points if point.inside and math.isfinite(point.shown)]
    heights = [(min(point.shown, colours.high) - colours.low) / span for point in shown]
    places = [
        _projected(aspect(stored), camera, point, (0.25 + height) / 1.3)
        for point, height in zip(shown, heights, strict=True)
    ]
    return _placed(shown, places, _PICTURE)


def aspect(stored: StoredSlice) -> Vector:
    """Lengths of the scene along α, β and the loss."""
    a, b = float(np.ptp(stored.alpha)), float(np.ptp(stored.beta))
    longer = max(a, b)
    return 1.3 * max(a / longer, 0.6), 1.3 * max(b / longer, 0.6), 0.8


def camera(described: Description) -> Vector:
    """An eye over the corner with the lowest loss, so that no wall stands before the basin."""
    known = np.where(np.isnan(described.finite), np.inf, described.finite)
    away = 1.22 if described.shape > 0.75 else 1.0  # beside a wide contour the surface has less room
    x, y = min(((x, y) for x in (0, -1) for y in (0, -1)), key=lambda corner: float(known[corner]))
    return away * (1.2 if x else -1.2), away * (1.4 if y else -1.4), away


def _placed(
    shown: Sequence[PointRow],
    places: Sequence[Place],
    frame: Place,
    avoid: Sequence[Place] = (),
    letters: float = LABEL,
) -> Offsets:
    sizes = [((width_in_ems(point.label) + 1.1) * letters, 2.0 * letters) for point in shown]
    offsets = place(places, frame, sizes, [point.small for point in shown], avoid)
    return {point.name: offset for point, offset in zip(shown, offsets, strict=True)}


def _projected(sides: Vector, camera: Vector, point: PointRow, up: float) -> Place:
    """About where in the picture a point of the surface appears, `up` being its share of the height."""
    position = (np.array([*point.share, up]) - 0.5) * sides
    ahead = -np.asarray(camera) / np.linalg.norm(camera)
    right = np.cross(ahead, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    above = np.cross(right, ahead)
    return (
        _PICTURE[0] / 2 + _SCALE * float(position @ right),
        _PICTURE[1] / 2 + _SCALE * float(position @ above),
    )
