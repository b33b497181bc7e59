"""A slice as a figure for a paper: one column wide, PDF or PNG."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from landscape.errors import OptionError
from landscape.slices.stored import StoredSlice
from landscape.viewer.described.describe import describe
from landscape.viewer.described.words import listed
from landscape.viewer.printed.line import draw_line
from landscape.viewer.printed.plane import draw_plane
from landscape.viewer.printed.profile import draw_profile, has_profile
from landscape.viewer.printed.surface import draw_surface
from landscape.viewer.printed.write import STYLE, write_drawn

CONTOUR, SURFACE, PROFILE = "contour", "surface", "profile"


def write_figure(stored: StoredSlice, path: str | Path, view: str = CONTOUR) -> None:
    """Write one view of `stored` to `path`, whose suffix, .pdf or .png, says as what.

    Args:
        stored: the slice.
        path: of the figure.
        view: one of those that `views` gives; the contour of a line is its curve.

    Raises:
        OptionError: another suffix, or a view that this slice does not have.
        StoreError: the place cannot be written.
    """
    write_drawn(path, lambda: draw(stored, view))


def views(stored: StoredSlice) -> list[str]:
    """Which figures can be drawn of `stored`."""
    described = describe(stored)
    found = [CONTOUR]
    if described.colours and not stored.is_line:
        found.append(SURFACE)
    return [*found, PROFILE] if has_profile(described, stored) else found


def draw(stored: StoredSlice, view: str = CONTOUR) -> Figure:
    """A view of `stored` as a matplotlib figure."""
    if view not in (possible := views(stored)):
        raise OptionError(f"figure of the {view}: this slice has none; expected {listed(possible)}")
    described = describe(stored)
    with matplotlib.rc_context(STYLE):
        if view == SURFACE and described.colours:
            return draw_surface(stored, described, described.colours)
        if view == PROFILE:
            return draw_profile(stored, described)
        return (draw_line if stored.is_line else draw_plane)(stored, described)
