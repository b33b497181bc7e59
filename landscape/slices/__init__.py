"""Slices: a plane through named points of weight space, the loss on a rectangle of it, and the file that holds it.

Knows weights and a loss, not models or quantizers: `span` a plane, `create` a file, `sample` it (few evaluations, a
stated error) or `scan` it (every cell), `read` it back.
"""

from typing import TYPE_CHECKING

from landscape.lazily import lazily
from landscape.slices.axes import Bounds, around, evenly, parse_bounds, parse_grid, union, with_zero
from landscape.slices.reading import Reading, read_surface
from landscape.slices.reconstruct import Certificate, Reconstruction, reconstruct
from landscape.slices.store import Layout, Named, SliceWriter, check_is_slice, create
from landscape.slices.stored import StoredPoint, StoredSlice, read

if TYPE_CHECKING:
    from landscape.slices.plane import Coordinates, Plane, span
    from landscape.slices.scan import Losses, evaluate_points, sample, scan
    from landscape.slices.spread import dismiss, follow, over

__all__ = [
    "Bounds",
    "Certificate",
    "Coordinates",
    "Layout",
    "Losses",
    "Named",
    "Plane",
    "Reading",
    "Reconstruction",
    "SliceWriter",
    "StoredPoint",
    "StoredSlice",
    "around",
    "check_is_slice",
    "create",
    "dismiss",
    "evaluate_points",
    "evenly",
    "follow",
    "over",
    "parse_bounds",
    "parse_grid",
    "read",
    "read_surface",
    "reconstruct",
    "sample",
    "scan",
    "span",
    "union",
    "with_zero",
]

__getattr__ = lazily(
    __name__,
    {
        "plane": ("Coordinates", "Plane", "span"),
        "scan": ("Losses", "evaluate_points", "sample", "scan"),
        "spread": ("dismiss", "follow", "over"),
    },
)
