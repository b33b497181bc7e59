"""The spectral density of a measurement as a figure for a paper: one column wide, PDF or PNG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from landscape.curvature.store import StoredSharpness
from landscape.errors import OptionError
from landscape.viewer.printed.write import write_drawn

_SIZE = (3.5, 2.4)  # inches
_LINE, _BAND, _MARK = "#31688e", "#a9c6dc", "#d1495b"


def write_spectrum(stored: StoredSharpness, path: str | Path) -> None:
    """Write the density of `stored` to `path`; its suffix, .pdf or .png, says as what.

    Raises:
        OptionError: another suffix, or a measurement without a density.
        StoreError: the place cannot be written.
    """
    if "density" not in stored.sections:
        raise OptionError(
            f"figure {Path(path).name}: this measurement has no spectral density; measure with --density-steps 24"
        )
    write_drawn(path, lambda: draw_spectrum(stored))


def draw_spectrum(stored: StoredSharpness) -> Figure:
    """Eigenvalues per unit of λ on a logarithmic axis, with a band of one standard error and the outer eigenvalues."""
    section = stored.sections["density"]
    n, points = section["n"], section["points"]
    density, error = n * section["density"], n * section["standard_error"]
    floor = 0.05 / section["width"] / np.sqrt(2 * np.pi)  # a twentieth of an eigenvalue at the peak of its bump
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.fill_between(
        points, np.maximum(density - error, floor), np.maximum(density + error, floor), color=_BAND, linewidth=0
    )
    axes.plot(points, np.maximum(density, floor), color=_LINE, linewidth=1.0)
    axes.set_yscale("log")
    axes.set_ylim(floor, 3 * float(density.max()))
    axes.set_xlim(float(points[0]), float(points[-1]))
    for which, label in (("top", r"$\lambda_{\mathrm{max}}$"), ("bottom", r"$\lambda_{\mathrm{min}}$")):
        found = stored.sections.get(f"eigenvalues/{which}")
        if found is not None:
            values = found["values"]
            axes.plot(
                values, np.full(len(values), floor * 1.6), linestyle="none", marker="^", markersize=4, color=_MARK
            )
            axes.annotate(
                f"{label} = {values[0]:.3g}",
                (values[0], floor * 2.2),
                xytext=(-11 if which == "top" else 0, 8),
                textcoords="offset points",
                ha="right" if which == "top" else "left",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8},
                fontsize=7.5,
            )
    axes.set_xlabel(r"eigenvalue $\lambda$")
    axes.set_ylabel(r"eigenvalues per unit of $\lambda$")
    trace = stored.sections.get("trace")
    if trace is not None:
        text = rf"tr $H$ = {trace['value']:.4g} $\pm$ {trace['standard_error']:.2g}, $n$ = {n:,}"
        axes.set_title(text, fontsize=8.0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
