"""What the script of a study's page needs to know: its columns as numbers, its layers, spectra and slices."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.course import Checkpoint, Course, Spectrum, numeric, real
from landscape.viewer.described.course_columns import (
    Measure,
    called,
    first_pair,
    layer_measures,
    measures,
    same_for_all,
    shared_start,
    shown_runs,
    with_shares,
)
from landscape.viewer.described.describe import describe
from landscape.viewer.pages import label_places
from landscape.viewer.pages.slice_data import line_data, slice_data

SLICE = (420.0, 330.0)  # pixels of a slice's rectangle beside the panels, about
_SHOWN_PANELS = 8
_CELLS = 61  # places along each side of such a slice at most


def course_data(course: Course) -> dict[str, Any]:
    """Everything that is drawn of a study."""
    place = {checkpoint: k for k, checkpoint in enumerate(course.checkpoints)}
    names = [name for name in numeric(course.rows) if name not in ("parameters", "quantized_parameters")]
    at = np.array([place[Checkpoint.of(row)] for row in course.rows], dtype=int)
    columns = {name: _column(course, name, at) for name in names}
    return {
        "page": "trajectory",
        "name": course.name,
        "runs": [_named(name) for name in course.runs],
        "quantizers": [_named(name) for name in course.quantizers],
        "checkpoints": [
            {**_named(each.name), "run": course.runs.index(each.run), "kind": each.kind} for each in course.checkpoints
        ],
        "rows": {
            "checkpoint": at.tolist(),
            "quantizer": [_index(course.quantizers, row.get("quantizer")) for row in course.rows],
        },
        "columns": columns,
        "measures": [_measure(each) for each in measures(course)],
        "layers": _layers(course, place),
        "spectra": {str(place[each]): _spectrum(found) for each, found in _by_checkpoint(course, course.spectra)},
        "slices": {
            str(place[each]): [_slice(*one) for one in found] for each, found in _by_checkpoint(course, course.slices)
        },
        "quantiles": stats.t.ppf(0.975, np.arange(1, max(2, len(course.checkpoints) + 1))),
        "shown": {
            "runs": list(shown_runs(course)),
            "panels": [each.column for each in measures(course)][:_SHOWN_PANELS],
            "run": course.longest,
            "pair": first_pair(course),
        },
    }


def _named(name: str) -> dict[str, str]:
    return {"name": name, "html": html.escape(name)}


def _measure(measure: Measure) -> dict[str, Any]:
    return {"column": measure.column, "title": measure.title, "brief": measure.brief, "factor": measure.factor}


def _index(names: Sequence[str], name: object) -> int:
    return names.index(str(name)) if name is not None else -1


def _by_checkpoint(course: Course, found: Mapping[str, Any]) -> list[tuple[Checkpoint, Any]]:
    return [(each, found[identity]) for each, identity in course.identities.items() if identity in found]


def _column(course: Course, name: str, at: np.ndarray) -> dict[str, Any]:
    """A column by row; by checkpoint where all quantizers agree, as they do on what is no matter of theirs."""
    values = np.array([real(row, name) for row in course.rows])
    once = np.full(len(course.checkpoints), math.nan)
    there = np.isfinite(values)
    once[at[there]] = values[there]
    own = same_for_all(course, name)
    return {"values": once if own else values, "own": own, "title": html.escape(called(course, name))}


def _layers(course: Course, place: Mapping[Checkpoint, int]) -> dict[str, Any] | None:
    """Quantities by checkpoint, quantizer and layer, in this order; by checkpoint and layer where quantizers agree."""
    names = list(dict.fromkeys(str(row.get("layer")) for row in course.layers))
    known = layer_measures(course)
    if not names or not known:
        return None
    start = shared_start(names)
    shape = len(place), max(1, len(course.quantizers)), len(names)
    cubes = {name: np.full(shape, math.nan) for name, _ in known}
    at = {name: k for k, name in enumerate(names)}
    for row in map(with_shares, course.layers):
        checkpoint = place.get(Checkpoint.of(row))
        if checkpoint is None:
            continue
        cell = checkpoint, max(0, _index(course.quantizers, row.get("quantizer"))), at[str(row.get("layer"))]
        for name, cube in cubes.items():
            cube[cell] = real(row, name)
    found = {}
    for name, words in known:
        cube = cubes[name]
        own = bool(np.array_equal(cube, np.broadcast_to(cube[:, :1], shape), equal_nan=True))
        found[name] = {"values": (cube[:, 0] if own else cube).ravel(), "own": own, "words": words}
    return {
        "names": [{"name": name, "html": html.escape(name.removeprefix(start))} for name in names],
        "measures": found,
    }


def _spectrum(spectrum: Spectrum) -> dict[str, Any]:
    return {
        "points": np.asarray(spectrum.points, np.float64),
        "density": np.asarray(spectrum.density, np.float64),
        "error": np.asarray(spectrum.error, np.float64),
        "ends": [*spectrum.top, *spectrum.bottom],
        "floor": spectrum.floor,
    }


def _slice(stored: StoredSlice, address: str) -> dict[str, Any]:
    """A slice to look at in passing: fewer cells, none of the places evaluated."""
    described = describe(stored)
    if stored.is_line:
        offsets = {"curve": label_places.on_curve(stored, described, *SLICE)}
        data = line_data(stored, described)
    else:
        offsets = {"contour": label_places.on_contour(described, *SLICE)}
        data = slice_data(_thinned(stored), described) | {"surface": None}
    return data | {"nodes": [], "checks": [], "offsets": offsets, "address": address, "ticks": 6}


def _thinned(stored: StoredSlice) -> StoredSlice:
    """Every so-and-so-many-th cell of `stored`, and its last ones."""
    kept = []
    for line in (stored.alpha, stored.beta):
        step = max(1, math.ceil((len(line) - 1) / (_CELLS - 1)))
        kept.append(np.unique([*range(0, len(line), step), len(line) - 1]))
    cells = np.ix_(*kept)
    return replace(
        stored,
        alpha=stored.alpha[kept[0]],
        beta=stored.beta[kept[1]],
        loss=stored.loss[cells],
        done=stored.done[cells],
        evaluated=stored.evaluated[cells],
    )
