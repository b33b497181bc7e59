"""A slice as a figure for a paper: one column wide, PDF or PNG."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from landscape.errors import OptionError
from landscape.files import write_whole
from landscape.slices.stored import StoredSlice
from landscape.viewer.describe import describe
from landscape.viewer.figure_line import draw_line
from landscape.viewer.figure_plane import draw_plane

STYLE = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,  # TrueType: many journals refuse matplotlib's own Type 3
}


def write_figure(stored: StoredSlice, path: str | Path) -> None:
    """Write the contour of `stored`, or the curve where it is a line, to `path`.

    Its suffix, .pdf or .png, says as what.

    Raises:
        OptionError: another suffix.
        StoreError: the place cannot be written.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("pdf", "png"):
        raise OptionError(f"figure {path.name}: expected a name that ends in .pdf or .png")
    memory = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        metadata = {"CreationDate": None} if kind == "pdf" else None  # the same slice gives the same bytes
        draw(stored).savefig(memory, format=kind, dpi=300, metadata=metadata)
    write_whole(path, memory.getvalue())


def draw(stored: StoredSlice) -> Figure:
    """`stored` as a matplotlib figure."""
    with matplotlib.rc_context(STYLE):
        return (draw_line if stored.is_line else draw_plane)(stored, describe(stored))
