"""A study's table: rows taken by chance, held to the files that they were made from; those files checked themselves.

A row names its files by their keys, and everything in it follows from them but who it is about. The files are looked up
in the study's folder. With the run and the text at hand each of them is checked as it would be alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from landscape import evaluation
from landscape.config import VerifyConfig
from landscape.curvature import store
from landscape.errors import LandscapeError, StoreError
from landscape.reporting import Reporter
from landscape.study import rows as made
from landscape.study import table
from landscape.study.plan import Subject
from landscape.trajectories import Point
from landscape.verifying import layers, of_curvature, of_evaluation
from landscape.verifying.verdict import Item, Verdict
from landscape.verifying.yardstick import FLOAT64

_WHO = ("run", "checkpoint", "kind", "stage", "step", "tokens", "learning_rate")
_FOLDERS = (("evaluations", "*.json"), ("curvature", "*.h5"))

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Files:
    """What lies in the study's folder, by key."""

    evaluations: Mapping[str, evaluation.Evaluated]
    curvature: Mapping[str, tuple[Path, store.StoredSharpness]]


def check(folder: Path, verdict: Verdict, asked: VerifyConfig, rng: np.random.Generator, reporter: Reporter) -> None:
    """Check the tables in `folder`.

    Raises:
        LandscapeError: the files behind the rows are not there, or an input of theirs is missing or another one.
    """
    study = table.read(folder)
    chosen = [study[i] for i in layers.some(rng, len(study), asked.cells)]
    files = _files(folder, chosen, reporter)
    others = {name: _rows(folder / f"{name}.parquet") for name in ("layers", "tensors")}
    checked: set[str] = set()
    for row in chosen:
        label = " ".join(str(row[name]) for name in ("run", "checkpoint", "quantizer") if row[name])
        behind = _behind(folder, row, files)
        again = made.of_subject(_subject(row), behind)
        verdict.add_worst(f"row of {label}", _compared(row, again.study[0] if again.study else {}))
        _check_others(verdict, label, row, again, others)
        for path in behind.values():
            if str(path) not in checked and asked.model is not None:
                checked.add(str(path))
                _check_file(verdict, path, files, asked, rng, reporter)
    if asked.model is None:
        verdict.skipped.append(
            "the files that the rows were made from: name the run with --model, and --text, to check them too"
        )


def _files(folder: Path, chosen: Sequence[Row], reporter: Reporter) -> _Files:
    """The files that these rows may need; damaged ones among them are left out."""
    update = reporter.stage("reading the files behind the rows")
    wanted = {str(row[name]) for row in chosen for name in ("evaluation_key", "curvature_key") if row[name]}
    places = [path for name, pattern in _FOLDERS for path in sorted((folder / name).glob(pattern))]
    evaluations, curved = {}, {}
    for done, path in enumerate(places):
        update(done, len(places))
        try:
            if path.suffix == ".json":
                result = evaluation.read(path)
                evaluations[str(result.facts["key"])] = result
            else:
                measured = store.read(path)
                curved[str(measured.attributes["key"])] = (path, measured)
        except LandscapeError:
            continue  # if a row needs it, that is told then
    return _Files(
        {key: value for key, value in evaluations.items() if key in wanted},
        {key: value for key, value in curved.items() if key in wanted},
    )


def _behind(folder: Path, row: Row, files: _Files) -> dict[str, Path]:
    """The files of a row, as a note names them.

    Raises:
        StoreError: one is not there.
    """
    found: dict[str, Path] = {}
    if (key := row["evaluation_key"]) is not None:
        if key not in files.evaluations:
            raise StoreError(
                f"{folder}: no evaluation {str(key)[:8]} in it, which a row rests on; check a study's whole folder"
            )
        found[str(row["quantizer"])] = files.evaluations[key].path
    if (key := row["curvature_key"]) is not None:
        if key not in files.curvature:
            raise StoreError(
                f"{folder}: no curvature {str(key)[:8]} in it, which a row rests on; check a study's whole folder"
            )
        found["curvature"] = files.curvature[key][0]
    return found


def _subject(row: Row) -> Subject:
    point = Point(
        "", row["checkpoint"], row["stage"] or "", row["step"], row["tokens"], row["learning_rate"], row["run"] or ""
    )
    return Subject(point, row["kind"] or "checkpoint")


def _compared(stored: Row, found: Row) -> list[Item]:
    """Every column; a cell that is empty is as good as one that was not made."""
    items = []
    for name, told in stored.items():
        here = found.get(name)
        if isinstance(here, np.generic):
            here = here.item()
        if told is None and (here is None or here != here):
            continue
        size = FLOAT64 * abs(told) if isinstance(told, float) and np.isfinite(told) else 0.0
        items.append(Item(name, told, here, size, "float64 rounding" if size else ""))
    return items


def _check_others(
    verdict: Verdict, label: str, row: Row, again: made.Rows, others: Mapping[str, Sequence[Row]]
) -> None:
    """The rows of layers and tensors that belong to this one."""
    for name, found in (("layers", again.layers), ("tensors", again.tensors)):
        who = [*_WHO, *(["quantizer"] if name == "layers" else [])]
        stored = [each for each in others[name] if all(each.get(column) == row[column] for column in who)]
        if not stored:
            continue
        verdict.add(f"{name} of {label}", len(stored), len(found))
        if len(stored) == len(found):
            items = [
                Item(
                    f"{item.what} of {told.get('layer', told.get('tensor'))}",
                    item.stored,
                    item.found,
                    item.tolerance,
                    item.why,
                )
                for told, here in zip(stored, found, strict=True)
                for item in _compared(told, here)
            ]
            verdict.add_worst(f"{name} of {label}", items)


def _check_file(
    verdict: Verdict, path: Path, files: _Files, asked: VerifyConfig, rng: np.random.Generator, reporter: Reporter
) -> None:
    """One of the files behind the rows, as if it were checked alone."""
    own = Verdict(path, "", verdict.seed)
    one = replace(asked, file=path)
    if path.suffix == ".json":
        stored = next(each for each in files.evaluations.values() if each.path == path)
        of_evaluation.check(stored, own, one, rng, reporter)
    else:
        measured = next(each for place, each in files.curvature.values() if place == path)
        of_curvature.check(measured, own, one, rng, reporter)
    verdict.add_worst(path.name, own.items)
    verdict.skipped += [f"{path.name}: {skipped}" for skipped in own.skipped]


def _rows(path: Path) -> list[dict[str, Any]]:
    return table.read(path) if path.is_file() else []
