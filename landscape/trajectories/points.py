"""The checkpoints of a training run in order, each with its step, its tokens and its learning rate.

A run is a repository on the Hub with a revision for each checkpoint, or a directory with a folder for each, or a
directory of such directories. What a point says comes from its name, from `families.yaml`, or from the run's log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from landscape.errors import ModelError
from landscape.models.checkpoint import step_of
from landscape.models.references import revisions
from landscape.storage.files import on_disk
from landscape.trajectories import logs
from landscape.trajectories.families import Family, family
from landscape.trajectories.revisions import Revision, parse

MAIN, FINAL = "main", "final"


@dataclass(frozen=True)
class Point:
    """One checkpoint of a trajectory.

    Attributes:
        reference: what `landscape.models.references.resolve` takes.
        revision: branch, tag or folder; None for a directory that is alone, or that lies above its checkpoints, and for
            what training led to in another repository.
        stage: the part of training it is from; empty where there is one part only. `main` is the end of training as the
            run has it, `final` the model it led to in another repository.
        step: as its name counts; of a stage, where the names count from its beginning.
        tokens: since the beginning of training; None where it is not known.
        learning_rate: after the last update before it; None where it is not known.
        run: the run's name, a Hub id or a folder's.
        tokenizer: model reference, where the checkpoint has none of its own.
    """

    reference: str
    revision: str | None
    stage: str
    step: int | None
    tokens: float | None
    learning_rate: float | None
    run: str
    tokenizer: str | None = None


def points(model: str, note: Callable[[str], None] = lambda text: None) -> list[Point]:
    """The trajectory of `model`, in the order of training: by stage, then by step.

    A repository's revisions with a step are its trajectory, and those of other stages that its family is known to have.
    `main` is the end of it, and left out where the family says which revision it is. Without the Hub, the revisions in
    its cache count. In a directory of runs, the points of one run follow those of the other, by name.

    Args:
        model: a Hub id without a revision, or a directory: a run, a checkpoint or model, or several runs.
        note: hears what a person should know: what was left out, what is not known.

    Raises:
        ModelError: no such model, here or on the Hub, or nothing in it that is a checkpoint.
    """
    path = on_disk(model)
    return _on_disk(model, path, note) if path else _on_hub(model, note)


def _on_hub(name: str, note: Callable[[str], None]) -> list[Point]:
    known = family(name)
    found = [parse(revision) for revision in dict.fromkeys(revisions(name))]
    kept = [each for each in found if each.step is not None or each.name == MAIN or (known and known.knows(each))]
    if not kept:
        others = _some([each.name for each in found]) or "none at all"
        raise ModelError(f"model {name}: none of its revisions is main or tells a step; it has {others}")
    if not known:
        note(f"{name}: of no family whose training is known here; learning rates are unknown")
    if left := [each.name for each in found if each not in kept]:
        note(f"{name}: revisions without a step left out: {_some(left)}")
    if [each.name for each in kept] == [MAIN]:
        return [_lone(name, known)]
    return _in_order(name, kept, known)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _in_order(name: str, kept: Sequence[Revision], known: Family | None) -> list[Point]:
    """What was kept of a repository, `main` under the step it stands for, or not at all if that is there too."""
    is_main = known.main if known else None
    placed = []  # (the revision that a point is, the one that says where it belongs)
    for each in kept:
        stands_for = parse(is_main) if each.name == MAIN and is_main else each
        if stands_for is each or stands_for not in kept:
            placed.append((each, stands_for))
    placed.sort(key=lambda pair: _key(pair[1], known))
    line = [_point(f"{name}@{each.name}", each.name, place, name, known) for each, place in placed]
    if known and known.final:
        line.append(Point(known.final, None, FINAL, None, None, None, name, known.tokenizer))
    return line


def _lone(name: str, known: Family | None) -> Point:
    """A repository of which there is nothing but `main`, which then goes without saying."""
    place = parse(known.main) if known and known.main else Revision(MAIN, "", None, None)
    return _point(name, MAIN, place, name, known)


def _point(reference: str, revision: str | None, place: Revision, run: str, known: Family | None) -> Point:
    return Point(
        reference,
        revision,
        place.stage,
        place.step,
        known.tokens(place) if known else place.tokens,
        known.learning_rate(place) if known else None,
        run,
        known.tokenizer if known else None,
    )


def _key(revision: Revision, known: Family | None) -> tuple[bool, int, list[tuple[int, str]], int, str]:
    step = -1 if revision.step is None else revision.step
    place = known.order(revision) if known else 0
    return revision.name == MAIN, place, _natural(revision.stage), step, revision.name


def _natural(text: str) -> list[tuple[int, str]]:
    """For sorting: stage2 before stage10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text) if part]


def _on_disk(model: str, path: Path, note: Callable[[str], None]) -> list[Point]:
    if not path.is_dir():
        raise ModelError(f"model {path.name}: a file; expected a directory: a model, a training run, or several runs")
    if _checkpoints(path):
        return _of_run(model, path)
    if (path / "config.json").is_file():
        return [_alone(model, path)]
    children = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    runs = [child for child in children if _checkpoints(child)]
    if not runs:
        raise ModelError(
            f"model {path.resolve().name}: neither config.json, nor step<N>/ or checkpoint-<N>/, nor runs that have "
            "them in this directory; expected a model as transformers saves it, a training run, or several runs"
        )
    if left := [child.name for child in children if child not in runs]:
        note(f"{path.resolve().name}: left out what is no run: {_some(left)}")
    return [point for child in runs for point in _of_run(str(Path(model) / child.name), child)]


def _checkpoints(folder: Path) -> list[Revision]:
    """Those of a run on disk, in order."""
    found = [parse(name) for name in revisions(folder) if step_of(name) is not None]
    return sorted(found, key=lambda each: _key(each, None))


def _of_run(model: str, folder: Path) -> list[Point]:
    log, run = logs.of_run(folder), folder.resolve().name
    line = []
    for each in _checkpoints(folder):
        line.append(_logged(_point(f"{model}@{each.name}", each.name, each, run, None), folder / each.name, log))
    if (folder / "config.json").is_file():  # as the Trainer leaves it: the last one or the best one, which is not told
        line.append(Point(model, None, MAIN, None, None, None, run))
    return line


def _alone(model: str, folder: Path) -> Point:
    """A model without checkpoints below it: by itself, or one of a run's."""
    folder = folder.resolve()
    if step_of(folder.name) is None:
        return Point(model, None, "", None, None, None, folder.name)
    point = _point(model, folder.name, parse(folder.name), folder.parent.name, None)
    return _logged(point, folder, logs.of_run(folder.parent))


def _logged(point: Point, folder: Path, log: logs.Log) -> Point:
    """With what the run's log says of its step, or where there is none, the checkpoint's own."""
    if point.step is None:
        return point
    log = log if log != logs.Log() else logs.of_checkpoint(folder)
    seen = log.seen(point.step)
    return replace(point, tokens=point.tokens if seen is None else seen, learning_rate=log.learning_rate(point.step))
