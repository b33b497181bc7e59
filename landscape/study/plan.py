"""What a study consists of: tasks, each one job on one checkpoint, in the order in which they are best done."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from landscape.config import AverageConfig, EvaluateConfig, SharpnessConfig, StudyConfig
from landscape.errors import ModelError, OptionError
from landscape.reporting import versions
from landscape.training.averaging import lawa_members
from landscape.trajectories import Point

_AT_ONCE = 4096  # tokens of the windows whose graph is held at a time
# What changes no number, or its last digits alone.
_HOW = ("model", "out", "overwrite", "device", "remote_code", "stream", "checkpointing", "deterministic")


@dataclass(frozen=True)
class Subject:
    """What is measured: a checkpoint, or the mean of several.

    Attributes:
        point: of the run; of an average its newest member's.
        kind: `checkpoint`, or the word that asked for the average.
        average: how it is made; None for a checkpoint.
        previous: the checkpoint of this run that is measured before it.
    """

    point: Point
    kind: str = "checkpoint"
    average: AverageConfig | None = field(default=None, compare=False)
    previous: Point | None = None

    @property
    def reference(self) -> str:
        """What can be loaded, once an average is made."""
        return self.point.reference if self.average is None else str(self.average.out)

    @property
    def name(self) -> str:
        """Run, revision and kind, as in a file's name."""
        return _in_a_name(self.point.run, self.point.revision or "", "" if self.average is None else self.kind)

    def __str__(self) -> str:
        """As a person calls it."""
        checkpoint = f"{self.point.run}@{self.point.revision}" if self.point.revision else self.point.run
        return checkpoint if self.average is None else f"{self.kind} at {checkpoint}"


@dataclass(frozen=True)
class Task:
    """One job on one subject; done when its note in the study's folder says where the results are."""

    subject: Subject
    kind: str
    config: EvaluateConfig | SharpnessConfig
    settings: Mapping[str, Any] = field(repr=False)

    @property
    def note(self) -> str:
        """Name of that note: subject, kind of job, and a hash over what changes its numbers."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()
        return f"{self.subject.name}-{self.kind}-{digest[:8]}.json"

    def __str__(self) -> str:
        """As a person calls it."""
        return f"{self.kind} of {self.subject}"


def subjects(config: StudyConfig, every: Sequence[Point], chosen: Sequence[Point]) -> list[Subject]:
    """The checkpoints that were chosen, in order, then the averages asked for.

    Args:
        config: of the study.
        every: all points of the runs, for the members of averages.
        chosen: those to be measured.

    Raises:
        OptionError: an average that is not in the grammar, or that no checkpoint allows.
    """
    found = []
    before: dict[tuple[str, str], Point] = {}
    for point in chosen:
        stage = (point.run, point.stage)
        found.append(Subject(point, previous=before.get(stage)))
        before[stage] = point
    for word in filter(None, (word.strip() for word in config.average.split(","))):
        averages = list(_averages(config, word, every, chosen))
        if not averages:
            raise OptionError(f"--average {word}: no checkpoint of {config.model} has the members before it")
        found += averages
    return found


def tasks(config: StudyConfig, found: Sequence[Subject]) -> list[Task]:
    """The tasks of every subject, those of one together."""
    return [task for subject in found for task in _of(config, subject)]


def _of(config: StudyConfig, subject: Subject) -> Iterator[Task]:
    wanted, model = config.wanted, subject.reference
    shared = (
        {
            name: getattr(config, name)
            for name in (
                "text",
                "seq_len",
                "packing",
                "bos",
                "seed",
                "device",
                "remote_code",
                "batch_size",
                "overwrite",
            )
        }
        | {"deterministic": config.deterministic}
        | {"tokenizer": config.tokenizer or subject.point.tokenizer}
    )
    if "error" in wanted or "step" in wanted:
        previous = subject.previous.reference if subject.previous and "step" in wanted else None
        evaluation = EvaluateConfig(
            model,
            quant=",".join(config.quant),
            tokens=config.tokens,
            calibration=config.calibration,
            calibration_windows=config.calibration_windows,
            calibration_packing=config.calibration_packing,
            second_order="step" in wanted,
            curvature_tokens=config.curvature_tokens if "step" in wanted else None,
            diagonal_probes=config.diagonal_probes if "step" in wanted else None,
            prev=previous,
            tasks=config.tasks,
            shots=config.shots,
            limit=config.limit,
            task_folder=config.task_folder,
            dtype=config.dtype,
            out=config.out / "evaluations",
            **shared,
        )
        yield Task(subject, "error", evaluation, _settings(evaluation, subject))
    if "curvature" in wanted or "layers" in wanted:
        sharpness = SharpnessConfig(
            model,
            tokens=config.curvature_tokens,
            top=config.top,
            trace_error=config.trace_error,
            max_probes=config.max_probes,
            layers="layers" in wanted,
            density_steps=config.density_steps,
            out=config.out / "curvature",
            **(shared | {"batch_size": max(1, _AT_ONCE // (config.seq_len or _AT_ONCE // 2))}),
        )
        yield Task(subject, "curvature", sharpness, _settings(sharpness, subject))


def _settings(config: EvaluateConfig | SharpnessConfig, subject: Subject) -> dict[str, Any]:
    """All that changes the numbers; of files, when they were last written: the job itself looks into them."""
    stored = {name: value for name, value in asdict(config).items() if name not in _HOW}
    members = subject.average.models if subject.average else [subject.point.reference]
    files = [*members, stored.get("prev"), config.text, config.calibration]
    return json.loads(  # type: ignore[no-any-return]
        json.dumps(stored | {"files": [_written(name) for name in files], "versions": versions()}, default=str)
    )


def _written(name: str | None) -> list[Any] | str | None:
    """Names, sizes and times of what lies there; the name of what does not lie on this machine."""
    path = Path(name or "")
    folder, _, revision = (name or "").rpartition("@")
    if name and not path.exists() and folder and Path(folder).exists():
        path = Path(folder) / revision
    if not name or not path.exists():
        return name
    inside = sorted(path.iterdir()) if path.is_dir() else [path]
    return [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in inside if each.is_file()]


def _averages(config: StudyConfig, word: str, every: Sequence[Point], chosen: Sequence[Point]) -> Iterator[Subject]:
    if soup := re.fullmatch(r"soup:(.+)", word):
        members = [p for p in every if fnmatchcase(p.revision or "", soup[1])]
        for run in dict.fromkeys(p.run for p in members):
            own = [p for p in members if p.run == run]
            if len(own) > 1:
                yield _mean(config, own, word)
        return
    lawa = re.fullmatch(r"lawa-(\d+)(?:x(\d+))?", word)
    if not lawa or int(lawa[1]) < 2:
        raise OptionError(
            f"--average {word}: expected lawa-WINDOW, lawa-WINDOWxSTEPS or soup:PATTERN, such as lawa-5x500"
        )
    window, apart = int(lawa[1]), int(lawa[2]) if lawa[2] else None
    for point in chosen:
        steps = {p.step: p for p in every if (p.run, p.stage) == (point.run, point.stage) and p.step is not None}
        if point.step is None or point.step not in steps:
            continue
        until = sorted(step for step in steps if step <= point.step)
        try:
            wanted = lawa_members(until, window, apart)
        except ModelError:
            continue  # the window begins before the run, or has gaps
        if wanted[-1] == point.step:
            yield _mean(config, [steps[step] for step in wanted], word)


def _mean(config: StudyConfig, members: Sequence[Point], kind: str) -> Subject:
    """The average in a folder of its own, called after what goes in: a run that was trained again makes another."""
    newest = members[-1]
    references = [member.reference for member in members]
    digest = hashlib.sha256(json.dumps([_written(name) for name in references]).encode()).hexdigest()
    place = _in_a_name(newest.run, kind, newest.revision or "", digest[:8])
    average = AverageConfig(
        references, out=config.out / "averages" / place, kind="soup", remote_code=config.remote_code
    )
    return Subject(replace(newest, learning_rate=None), kind, average)


def _in_a_name(*words: str) -> str:
    """Words as part of a file's name."""
    return re.sub(r"[^\w.+-]+", "_", "-".join(filter(None, words)))
