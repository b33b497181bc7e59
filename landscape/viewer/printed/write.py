"""A figure written as PDF or PNG, whole, in the style of all of them; what is drawn alike gives the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from landscape.errors import OptionError
from landscape.storage.files import write_whole

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
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito


def write_drawn(path: str | Path, draw: Callable[[], Figure]) -> None:
    """Write what `draw` makes to `path`, whose suffix says as what.

    Raises:
        OptionError: a suffix that is neither .pdf nor .png.
        StoreError: the place cannot be written.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("pdf", "png"):
        raise OptionError(f"figure {path.name}: expected a name that ends in .pdf or .png")
    memory = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        metadata = {"CreationDate": None} if kind == "pdf" else None
        draw().savefig(memory, format=kind, dpi=300, metadata=metadata)
    write_whole(path, memory.getvalue())
