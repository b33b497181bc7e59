"""A study as figures for a paper, one column wide: its course, a scatter, spectra over time, layers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure

from landscape.errors import OptionError
from landscape.viewer.described.course import Course, Row, Spectrum, real
from landscape.viewer.described.course_columns import (
    Measure,
    first_pair,
    interval,
    layer_measures,
    measures,
    same_for_all,
    shared_start,
    shown_runs,
    with_shares,
)
from landscape.viewer.printed.parts import WIDTH
from landscape.viewer.printed.write import SERIES, write_drawn

_MARKERS, _DASHES = "osD^xP*vhp", ("-", "--", ":", "-.")
_INK, _GREY = "#1f2933", "#7b8794"
_PANEL, _MOST_PANELS = 0.82, 7  # inches; on a page
_DECADES = 12.0  # what spans more than this factor is drawn logarithmic, as on the page
_OVERLAP = 2.2  # base lines that a curve of the ridge may reach over


def write_course(course: Course, folder: Path, kind: str = "pdf") -> list[Path]:
    """Write the figures of `course` into `folder`: NAME-course, and -scatter, -spectrum, -layers where there is one.

    Args:
        course: the study.
        folder: where to.
        kind: pdf or png.

    Returns:
        What was written.

    Raises:
        OptionError: another kind.
        StoreError: the place cannot be written.
    """
    if kind not in ("pdf", "png"):
        raise OptionError(f"figure of kind {kind}: expected pdf or png")
    figures: dict[str, Callable[[Course], Figure]] = {}
    if measures(course):
        figures["course"] = draw_course
    if all(first_pair(course)):
        figures["scatter"] = draw_scatter
    if _spectra(course):
        figures["spectrum"] = draw_ridge
    if layer_measures(course) and _layer_rows(course):
        figures["layers"] = draw_layers
    written, stem = [], re.sub(r"[^\w.+-]+", "_", course.name)
    for name, draw in figures.items():
        path = folder / f"{stem}-{name}.{kind}"
        write_drawn(path, partial(draw, course))
        written.append(path)
    return written


def draw_course(course: Course) -> Figure:
    """The first columns along the runs that the page shows first, one panel above the other."""
    shown = measures(course)[:_MOST_PANELS]
    figure = Figure(figsize=(WIDTH, _PANEL * len(shown) + 0.75), layout="constrained")
    panels = np.atleast_1d(figure.subplots(len(shown), 1, sharex=True))
    runs, x = shown_runs(course), _across(course)
    for axes, measure in zip(panels, shown, strict=True):
        for k, run in enumerate(runs):
            _draw_run(axes, course, measure, run, _DASHES[k % len(_DASHES)], x)
        _heights(axes, [each * measure.factor for each in _values(course, measure, runs)])
        axes.set_ylabel(measure.math, fontsize=7.5)
        _plain(axes)
    panels[-1].set_xlabel(x[1])
    names = [panels[0].plot([], [], color=c, marker=m, markersize=3, label=_name(q))[0] for q, c, m in _styles(course)]
    if 1 < len(runs) <= len(_DASHES):
        names += [
            panels[0].plot([], [], _DASHES[k], color=_INK, linewidth=0.9, label=_name(run))[0]
            for k, run in enumerate(runs)
        ]
    figure.legend(handles=names, loc="outside upper center", ncols=2, frameon=False, fontsize=6.5)
    return figure


def draw_scatter(course: Course) -> Figure:
    """The first two columns of the page's scatter, every run and quantizer."""
    x, y = first_pair(course)
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    axes = figure.add_subplot()
    everything = []
    for quantizer, colour, marker in _styles(course) or [(None, _INK, "o")]:
        rows = [row for run in course.runs for row in course.along(run, quantizer)]
        pairs = [pair for row in rows if all(map(math.isfinite, pair := (real(row, x), real(row, y))))]
        across, up = np.array(pairs).reshape(-1, 2).T
        axes.scatter(across, up, 9, color=colour, marker=marker, linewidths=0.5, label=_name(quantizer), alpha=0.8)
        everything += pairs
    for place, (scale, name) in enumerate(((axes.set_xscale, x), (axes.set_yscale, y))):
        if everything and all(pair[place] > 0 for pair in everything):
            scale("log")
        (axes.set_ylabel if place else axes.set_xlabel)(_called(course, name))
    if x == "predicted" and everything:
        positive = [value for pair in everything for value in pair if value > 0 or axes.get_xscale() == "linear"]
        axes.plot([min(positive), max(positive)], [min(positive), max(positive)], ":", color=_GREY, linewidth=0.8)
    if course.quantizers:
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=6.5, handletextpad=0.2)
    _plain(axes)
    return figure


def draw_ridge(course: Course) -> Figure:
    """Spectra of the run that has most of them, upwards in time."""
    found = _spectra(course)
    figure = Figure(figsize=(WIDTH, min(6.0, 1.2 + 0.34 * len(found))), layout="constrained")
    axes = figure.add_subplot()
    floor = max(spectrum.floor for _, spectrum in found)
    heights = [np.log10(np.maximum(spectrum.density, floor) / floor) for _, spectrum in found]
    tallest = max(float(each.max()) for each in heights) or 1.0
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.86, len(found)))
    for k in reversed(range(len(found))):
        spectrum, top = found[k][1], k + _OVERLAP * heights[k] / tallest
        axes.fill_between(spectrum.points, k, top, color=shades[k], alpha=0.55, linewidth=0, zorder=-k)
        axes.plot(spectrum.points, top, color=shades[k], linewidth=0.9, zorder=-k)
        ends = [*spectrum.top, *spectrum.bottom]
        axes.plot(
            ends, [k] * len(ends), "^", color=shades[k], markersize=3.5, markeredgecolor=_INK, markeredgewidth=0.4
        )
    axes.axvline(0, color=_GREY, linewidth=0.5, zorder=-len(found) - 1)
    axes.set_yticks(range(len(found)), [_name(row.get("checkpoint")) for row, _ in found])
    axes.set_xlabel(r"eigenvalue $\lambda$ (height: $\log_{10}$ of eigenvalues per unit of $\lambda$)", fontsize=7.5)
    _plain(axes)
    return figure


def draw_layers(course: Course) -> Figure:
    """The first quantity of the layers along the longest run, under the first quantizer that has it."""
    name, words = layer_measures(course)[0]
    rows = _layer_rows(course)
    layers = list(dict.fromkeys(str(row.get("layer")) for row in rows))
    checkpoints = [str(row.get("checkpoint")) for row in course.along(course.longest)]
    table = np.full((len(layers), len(checkpoints)), math.nan)
    for row in rows:
        if str(row.get("checkpoint")) in checkpoints:
            table[layers.index(str(row["layer"])), checkpoints.index(str(row["checkpoint"]))] = real(row, name)
    figure = Figure(figsize=(WIDTH, min(7.0, 1.1 + 0.16 * len(layers))), layout="constrained")
    axes = figure.add_subplot()
    norm, colours = _norm(table)
    image = axes.imshow(table, aspect="auto", interpolation="nearest", norm=norm, cmap=colours)
    every = max(1, math.ceil(len(checkpoints) / 6))
    axes.set_xticks(range(0, len(checkpoints), every), list(map(_name, checkpoints[::every])), rotation=30, ha="right")
    step, start = max(1, math.ceil(len(layers) / 40)), shared_start(layers)
    axes.set_yticks(
        range(0, len(layers), step), [_name(each.removeprefix(start)) for each in layers[::step]], fontsize=5.5
    )
    axes.set_title(_name(f"{course.longest}, {rows[0].get('quantizer')}"), fontsize=7.5)
    figure.colorbar(image, ax=axes, fraction=0.05).set_label(
        words.replace("ᵀ", "$^{T}$"), fontsize=6.5
    )  # the font has no such letter
    return figure


def _draw_run(
    axes: Axes, course: Course, measure: Measure, run: str, dash: str, x: tuple[Callable[[Row], float], str]
) -> None:
    """One column along one run: a line for every quantizer, or one where they make no difference."""
    alike = same_for_all(course, measure.column)
    for quantizer, colour, marker in [(None, _INK, "o")] if alike else _styles(course):
        rows = [row for row in course.along(run, quantizer) if math.isfinite(real(row, measure.column) + x[0](row))]
        along = [x[0](row) for row in rows]
        values = [measure.factor * real(row, measure.column) for row in rows]
        axes.plot(along, values, dash, color=colour, marker=marker, markersize=2.2, linewidth=0.8)
        ends = [interval(row, measure.column) for row in rows]
        known = [end for end in ends if end is not None]
        if not rows or len(known) < len(rows):
            continue
        low, high = measure.factor * np.array(known).T
        if len(rows) == 1:
            axes.vlines(along, low, high, color=colour, linewidth=0.7)
        else:
            axes.fill_between(along, low, high, color=colour, alpha=0.18, linewidth=0)


def _styles(course: Course) -> list[tuple[str | None, str, str]]:
    return [(name, SERIES[k % len(SERIES)], _MARKERS[k % len(_MARKERS)]) for k, name in enumerate(course.quantizers)]


def _across(course: Course) -> tuple[Callable[[Row], float], str]:
    """What lies below the panels: tokens in the largest unit, else steps, else the runs one by one."""
    known = {column: {real(row, column) for row in course.rows} for column in ("tokens", "step")}
    known = {column: {value for value in values if math.isfinite(value)} for column, values in known.items()}
    if len(known["tokens"]) > 1:
        units = ((1e9, " (billions)"), (1e6, " (millions)"), (1e3, " (thousands)"))
        size, word = next((each for each in units if max(known["tokens"]) >= each[0]), (1.0, ""))
        return (lambda row: real(row, "tokens") / size), f"tokens seen{word}"
    if len(known["step"]) > 1:
        return (lambda row: real(row, "step")), "training step"
    places = {run: float(k) for k, run in enumerate(course.runs)}
    return (lambda row: places[str(row["run"])]), "run, in the order of the table"


def _values(course: Course, measure: Measure, runs: Sequence[str]) -> list[float]:
    names = course.quantizers or (None,)
    rows = [row for run in runs for name in names for row in course.along(run, name)]
    return [value for row in rows if math.isfinite(value := real(row, measure.column))]


def _heights(axes: Axes, values: Sequence[float]) -> None:
    positive = [value for value in values if value > 0]
    if positive and max(positive) > _DECADES * min(positive) and len(positive) > 0.9 * len(values):
        axes.set_yscale("log")
        axes.set_ylim(min(positive) / 1.5, max(positive) * 1.5)


def _norm(table: np.ndarray) -> tuple[Normalize, str]:
    """Colours that part at 0 where both signs are there; else viridis, logarithmic where all is positive."""
    there = table[np.isfinite(table)]
    low, high = (float(there.min()), float(there.max())) if there.size else (0.0, 1.0)
    if low < 0 < high:
        most = max(-low, high)
        return TwoSlopeNorm(0.0, -most, most), "PuOr_r"
    return (LogNorm(low, high) if 0 < low < high else Normalize(low, high)), "viridis"


def _spectra(course: Course) -> list[tuple[Row, Spectrum]]:
    """Of the run that has most of them."""
    found = []
    for run in course.runs:
        rows = [row for row in course.along(run) if str(row.get("identity")) in course.spectra]
        found.append([(row, course.spectra[str(row["identity"])]) for row in rows])
    return max(found, key=len, default=[])


def _layer_rows(course: Course) -> list[Row]:
    """Of the longest run, under the first quantizer that has any."""
    own = [with_shares(row) for row in course.layers if row.get("run") == course.longest]
    own = [row for row in own if row.get("kind") in (None, "checkpoint")]
    return [row for row in own if row.get("quantizer") == own[0].get("quantizer")]


def _called(course: Course, name: str) -> str:
    known = next((each.math for each in measures(course) if each.column == name and each.factor == 1), "")
    return known or {"delta_l": r"$\Delta L$ (nats)", "delta_q": r"$\Delta Q$"}.get(name, name.replace("_", " "))


def _name(name: object) -> str:
    """A name as it is: no formula begins in it."""
    return str(name).replace("$", r"\$")


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
