"""Do one task: run its job, leave a note of where the results are. Runs here or on any worker that sees the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from landscape.averaging import average_checkpoints
from landscape.config import EvaluateConfig, SharpnessConfig
from landscape.errors import CurvatureError, ModelError
from landscape.evaluation import evaluate_model
from landscape.reporting import Reporter, Silent
from landscape.sharpness import measure_sharpness
from landscape.storage.files import on_disk, turn, write_whole
from landscape.study.plan import Task

NOTES = "done"


def note_of(task: Task, out: Path) -> Path:
    """Where the note of a task that is done lies."""
    return out / NOTES / task.note


def is_done(task: Task, out: Path) -> bool:
    """Whether its note and the files that it names are there."""
    found = read_note(task, out)
    return found is not None and all(on_disk(str(out / name)) for name in found["files"].values())


def read_note(task: Task, out: Path) -> dict[str, Any] | None:
    """{"files": {quantizer or "curvature": path below the study's folder}}; None where there is none that is whole."""
    try:
        found = json.loads(note_of(task, out).read_text(encoding="utf-8"))
        own = out.resolve()
        inside = all((own / name).resolve().is_relative_to(own) for name in found["files"].values())
        return found if inside else None  # what lies elsewhere is not this study's
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def do(task: Task, out: Path, reporter: Reporter | None = None) -> str:
    """Do `task`; "" or, where this checkpoint cannot be measured, why.

    Raises:
        LandscapeError: what is wrong would be wrong with every checkpoint.
    """
    reporter = reporter or Silent()
    try:
        if (average := task.subject.average) is not None and average.out is not None:
            with turn(average.out):  # another worker may be making it for another task
                average_checkpoints(average, reporter)
        files = _run(task, reporter)
    except (ModelError, CurvatureError) as error:
        return str(error)
    write_whole(note_of(task, out), json.dumps({"files": {k: _below(v, out) for k, v in files.items()}}).encode())
    return ""


def _run(task: Task, reporter: Reporter) -> Mapping[str, Path]:
    config = task.config
    if isinstance(config, SharpnessConfig):
        return {"curvature": measure_sharpness(config, reporter).path}
    try:
        return _evaluated(config, reporter)
    except ModelError:
        if config.prev is None:
            raise
    return _evaluated(replace(config, prev=None), reporter)  # if Θ_{K−1} was at fault, distances to it are lost


def _evaluated(config: EvaluateConfig, reporter: Reporter) -> Mapping[str, Path]:
    return {result.quantizer: result.path for result in evaluate_model(config, reporter)}


def _below(path: Path, out: Path) -> str:
    return path.resolve().relative_to(out.resolve()).as_posix()
