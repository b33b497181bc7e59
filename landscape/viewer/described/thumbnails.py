"""Small pictures of results, and each in words for those who cannot see it: a field of losses, or a few lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.curves import curve_losses
from landscape.viewer.described.describe import Description
from landscape.viewer.described.words import finite, number, percent

_ACROSS = 96  # pixels of a field along its longer side
_FLOOR = 0.05  # of an eigenvalue: less of a density is not drawn
_DECADES = 20.0  # factor between the largest and the smallest from which on an axis is logarithmic


@dataclass(frozen=True)
class Field:
    """Losses on a plane.

    Attributes:
        heights: (rows from the top, columns), from 0 for the lowest colour to 1; NaN where there is none.
        odd: the same shape, where a loss is NaN or infinite.
        points: (across, down, sign) shares of the picture, of the named points on it.
        shape: width over height.
        seen: in words.
    """

    heights: np.ndarray
    odd: np.ndarray
    points: tuple[tuple[float, float, int], ...]
    shape: float
    seen: str


@dataclass(frozen=True)
class Lines:
    """Some lines in one box: places (n, 2) across and up, from 0 to 1; `seen` in words."""

    lines: tuple[np.ndarray, ...]
    seen: str


def slice_thumbnail(stored: StoredSlice, described: Description) -> Field | Lines:
    """The losses of a slice without axes: a field, or the curve of a line."""
    known = described.finite[np.isfinite(described.finite)]
    if not known.size:
        return Lines((), "No loss is known yet.")
    words = f"from {number(float(known.min()), '.4f')} to {number(float(known.max()), '.4f')} nats per token"
    if stored.is_line:
        alpha, loss = curve_losses(stored)
        return Lines((_boxed(np.asarray(alpha), np.asarray(loss)),), f"Curve of the loss, {words}.")
    colours = described.colours
    assert colours is not None  # some losses are finite
    wide, high = (_ACROSS, _ACROSS / described.shape) if described.shape > 1 else (_ACROSS * described.shape, _ACROSS)
    i, j = _nearest(stored.alpha, max(8, round(wide))), _nearest(stored.beta, max(8, round(high)))[::-1]
    heights = (described.finite[np.ix_(i, j)].T - colours.low) / (colours.high - colours.low)
    points = tuple((p.share[0], 1 - p.share[1], p.sign) for p in described.points if p.inside and not p.small)
    seen = f"Map of the loss, {words}; dots are the named points."
    return Field(np.clip(heights, 0, 1), described.non_finite[np.ix_(i, j)].T, points, described.shape, seen)


def error_lines(rows: Sequence[Mapping[str, Any]]) -> tuple[str, Lines]:
    """The quantizer that costs most, and its ΔQ over tokens (or steps), a line a run."""
    by_quantizer: dict[str, list[float]] = {}
    for row in rows:
        if (error := finite(row.get("delta_q"))) is not None and row.get("kind") in (None, "", "checkpoint"):
            by_quantizer.setdefault(str(row["quantizer"]), []).append(error)
    if not by_quantizer:
        return "", Lines((), "No quantization error is known.")
    worst = max(by_quantizer, key=lambda name: float(np.median(by_quantizer[name])))
    runs: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        across, up = finite(row.get("tokens")) or finite(row.get("step")), finite(row.get("delta_q"))
        single = row.get("kind") in (None, "", "checkpoint")
        if single and row["quantizer"] == worst and across is not None and up is not None:
            runs.setdefault(str(row["run"]), []).append((across, up))
    lines = [np.array(sorted(places)) for places in runs.values()]
    if not lines:
        return worst, Lines((), "No checkpoint says how many tokens it saw.")
    every = np.concatenate(lines)[:, 1]
    spread = every.min() > 0 and every.max() > _DECADES * every.min()
    heights = np.log(every) if spread else every
    lines = [np.column_stack((line[:, 0], np.log(line[:, 1]))) if spread else line for line in lines]
    ends = np.concatenate(lines)[:, 0]
    boxed = tuple(
        _boxed(line[:, 0], line[:, 1], (ends.min(), ends.max()), (heights.min(), heights.max())) for line in lines
    )
    seen = f"ΔQ of {worst} over tokens, from {percent(float(every.min()))} to {percent(float(every.max()))}"
    several = f", {len(lines)} runs" if len(lines) > 1 else ""
    return worst, Lines(boxed, f"{seen}{several}{', on a logarithmic scale' if spread else ''}.")


def density_lines(section: Mapping[str, Any] | None) -> Lines:
    """The spectral density of a measurement, its height on a logarithmic scale; no line where there is none."""
    if section is None:
        return Lines((), "")
    points, heights = np.asarray(section["points"]), section["n"] * np.asarray(section["density"])
    floor = _FLOOR / section["width"] / math.sqrt(2 * math.pi)
    ends = f"from λ = {number(float(points[0]), '.3g')} to {number(float(points[-1]), '.3g')}"
    logs = np.log(np.maximum(heights, floor))
    return Lines((_boxed(points, logs),), f"Spectral density {ends}, its height on a logarithmic scale.")


def _nearest(lines: np.ndarray, count: int) -> np.ndarray:
    """Indices of the grid lines nearest to the middles of `count` equal parts."""
    edges = np.linspace(lines[0], lines[-1], count + 1)
    return np.abs(lines[:, None] - (edges[:-1] + edges[1:]) / 2).argmin(axis=0)


def _boxed(
    x: np.ndarray, y: np.ndarray, across: tuple[float, float] | None = None, up: tuple[float, float] | None = None
) -> np.ndarray:
    """Places in a box from 0 to 1; those that are not finite are left out."""
    kept = np.isfinite(x) & np.isfinite(y)
    shares = []
    for values, ends in ((x[kept], across), (y[kept], up)):
        low, high = ends or ((float(values.min()), float(values.max())) if values.size else (0.0, 1.0))
        shares.append((values - low) / (high - low) if high > low else np.full(len(values), 0.5))
    return np.column_stack(shares)
