"""Slices: a plane through named points of weight space, the loss on a rectangle of it, and the file that holds it.

Knows weights and a loss, not models or quantizers: `span` a plane, `create` a file, `scan` it, `read` it back.
"""

from landscape.slices.axes import Bounds, around, evenly, parse_bounds, parse_grid, with_zero
from landscape.slices.plane import Coordinates, Plane, span
from landscape.slices.scan import scan
from landscape.slices.store import Layout, SliceWriter, check_is_slice, create
from landscape.slices.stored import StoredPoint, StoredSlice, read

__all__ = [
    "Bounds",
    "Coordinates",
    "Layout",
    "Plane",
    "SliceWriter",
    "StoredPoint",
    "StoredSlice",
    "around",
    "check_is_slice",
    "create",
    "evenly",
    "parse_bounds",
    "parse_grid",
    "read",
    "scan",
    "span",
    "with_zero",
]
