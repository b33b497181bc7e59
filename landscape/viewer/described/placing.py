"""Where labels go so that none overlap, and which are left out where it is crowded."""

from __future__ import annotations

import math
from collections.abc import Sequence

_DIRECTIONS = [math.radians(degrees) for degrees in (35, 145, -35, -145, 90, -90, 0, 180, 60, 120, -60, -120)]
_REACHES = (1.0, 1.8, 2.8, 4.0)
_ON_LABEL, _ON_POINT, _ON_OTHER = 1000.0, 400.0, 40.0
_CROWDED = 150.0  # an optional label is not worth more

Place = tuple[float, float]


def place(
    points: Sequence[Place],
    frame: Place,
    sizes: Sequence[Place],
    optional: Sequence[bool] = (),
    avoid: Sequence[Place] = (),
) -> list[Place | None]:
    """For each point, the offset of its label's centre, y upwards; None where an optional one finds no room.

    Tries a ring of places around each point, then wider rings, and takes the best in turn: inside the frame, clear of
    the labels placed before and of all points, near, and on the outer side of the group. Of the optional labels the
    outer ones come first, then the one halfway between them, and so on.

    Args:
        points: in the frame's units, from its lower left corner.
        frame: width and height.
        sizes: width and height of every label, margins included.
        optional: whether a label may be left out; none, unless said.
        avoid: other places that a label should not cover, such as those of a curve.
    """
    count = max(1, len(points))
    middle = (sum(x for x, _ in points) / count, sum(y for _, y in points) / count)
    offsets: list[Place | None] = [None] * len(points)
    taken: list[tuple[Place, Place]] = []
    may_miss = list(optional) or [False] * len(points)

    def cost(index: int, offset: Place, reach: float) -> float:
        point, (width, height) = points[index], sizes[index]
        clear = 0.25 * height  # around a point's marker
        x, y = point[0] + offset[0], point[1] + offset[1]
        beyond = max(0.0, width / 2 - x, x + width / 2 - frame[0]) + max(0.0, height / 2 - y, y + height / 2 - frame[1])
        on_labels = sum(abs(x - a) < (width + w) / 2 and abs(y - b) < (height + h) / 2 for (a, b), (w, h) in taken)
        on_points = sum(abs(x - a) < width / 2 + clear and abs(y - b) < height / 2 + clear for a, b in points)
        on_others = sum(abs(x - a) < width / 2 and abs(y - b) < height / 2 for a, b in avoid)
        inward = offset[0] * (middle[0] - point[0]) + offset[1] * (middle[1] - point[1])
        blocked = _ON_LABEL * on_labels + _ON_POINT * on_points + _ON_OTHER * on_others
        return blocked + 50 * beyond + 20 * reach + (5 if inward > 0 else 0)

    needed = [index for index, miss in enumerate(may_miss) if not miss]
    spare = [index for index, miss in enumerate(may_miss) if miss]
    for index in needed + _outer_first(spare):
        width, height = sizes[index]
        candidates = [
            (((width / 2 + 0.7 * height * reach) * math.cos(angle), height * 1.1 * math.sin(angle) * reach), reach)
            for reach in _REACHES
            for angle in _DIRECTIONS
        ]
        if may_miss[index]:
            candidates = candidates[: len(_DIRECTIONS)]  # leaders of many points would cross
        costs = [cost(index, *candidate) for candidate in candidates]
        best = min(range(len(costs)), key=costs.__getitem__)
        if may_miss[index] and costs[best] >= _CROWDED:
            continue
        offset = offsets[index] = candidates[best][0]
        taken.append(((points[index][0] + offset[0], points[index][1] + offset[1]), sizes[index]))
    return offsets


def _outer_first(indices: list[int]) -> list[int]:
    """The ends, then what halves the gaps between those taken, again and again.

    >>> _outer_first([0, 1, 2, 3, 4])
    [0, 4, 2, 1, 3]
    """
    if len(indices) < 3:
        return indices
    order, gaps = [0, len(indices) - 1], [(0, len(indices) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        if high - low > 1:
            half = (low + high) // 2
            order.append(half)
            gaps += [(low, half), (half, high)]
    return [indices[position] for position in order]
