"""The job: checkpoints of a run, or models named one by one, in; their mean out, as a checkpoint like any other.

Beside the weights lies `average.json`: what was averaged, by commits and content hashes, and how much each counts. With
`along` there is one mean per checkpoint, in step<N>/, so that what is written is a training run itself.

What this command did not write, it does not remove: `average.json` lists the files of its folder, and a folder that
holds others is refused. An average that is there already, whole and of the same members, stays; another one is replaced
with `overwrite` only.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from landscape.averaging.folders import RECIPE, Planned, kept_averages, sizes
from landscape.averaging.reader import Reader
from landscape.config import AverageConfig
from landscape.errors import ModelError
from landscape.machine.environment import environment
from landscape.models import load_tokenizer
from landscape.models.checkpoint import Checkpoint, step_of
from landscape.models.references import predecessors, resolve
from landscape.reporting import Reporter, Silent, versions
from landscape.storage.digests import write_sums
from landscape.storage.files import disk_errors, lock
from landscape.training.averaging import RunningMean, ema_coefficients, ema_members, lawa_members, weighted_mean
from landscape.weights import Weights


@dataclass(frozen=True)
class Averaged:
    """One average.

    Attributes:
        folder: the checkpoint.
        members: as name@revision, the oldest first; of a soup as they were named.
        coefficients: what each of them counts; their sum is 1.
        made: False where it was there already.
    """

    folder: Path
    members: tuple[str, ...]
    coefficients: tuple[float, ...]
    made: bool


def average_checkpoints(config: AverageConfig, reporter: Reporter | None = None) -> list[Averaged]:
    """Average the checkpoints that `config` asks for, and write each mean whole or not at all.

    Parameters are averaged. What else makes a checkpoint (configuration, buffers, tokenizer) is the newest member's, in
    a soup that of the model named last. The order in which a soup is named does not change its weights.

    Raises:
        ModelError: a checkpoint that is wanted is not there, cannot be loaded, or is of another architecture.
        StoreError: something else lies where the average should, or the disk refuses it.
    """
    reporter = reporter or Silent()
    out = (config.out or Path("runs") / f"{_word(config.models[0])}-{config.kind}").resolve()
    with lock(out):
        plan = _soup(config, out, reporter) if config.kind == "soup" else _of_run(config, out, reporter)
        kept = kept_averages(config, out, plan)
        pending = [average for average in plan if average.folder not in kept]
        if kept:
            reporter.note(f"{len(kept)} of {len(plan)} there already, of the same members")
        if pending:
            _make(config, out, pending, reporter)
    return [
        Averaged(average.folder, tuple(map(str, average.members)), average.coefficients, average in pending)
        for average in plan
    ]


def _word(reference: str) -> str:
    """What a reference is called in a file's name: org/name@step5 and runs/name@step5 as name-step5."""
    return Path(reference).name.replace("@", "-")


def _soup(config: AverageConfig, out: Path, reporter: Reporter) -> list[Planned]:
    progress = reporter.stage("finding the models")
    members: list[Checkpoint] = []
    for name in config.models:
        members.append(resolve(name, members[0] if members else None, config.remote_code))
        progress(len(members), len(config.models))
    for member, times in Counter(members).items():
        if times > 1:
            reporter.note(f"{member} is named {times} times and counts as often")
    return [Planned(out, tuple(members), ema_coefficients(len(members), 1.0))]


def _of_run(config: AverageConfig, out: Path, reporter: Reporter) -> list[Planned]:
    progress = reporter.stage("finding the checkpoints")
    newest, names = _checkpoints(config, reporter)
    try:
        chosen = _chosen(config, list(names), reporter)
    except ModelError as error:
        raise ModelError(f"model {newest}: {error}") from error
    wanted = sorted({step for steps in chosen for step in steps})
    found: dict[int, Checkpoint] = {}
    for step in wanted:
        found[step] = resolve(f"@{names[step]}", newest, config.remote_code)
        progress(len(found), len(wanted))
    return [
        Planned(
            out / f"step{steps[-1]}" if config.along else out,
            tuple(found[step] for step in steps),
            ema_coefficients(len(steps), config.decay if config.kind == "ema" else 1.0),
        )
        for steps in chosen
    ]


def _checkpoints(config: AverageConfig, reporter: Reporter) -> tuple[Checkpoint, dict[int, str]]:
    """The checkpoint that was named, and the revisions of its run by step, ascending, up to there."""
    newest = resolve(config.models[0], remote_code=config.remote_code)
    if newest.step is None and newest.revision is not None:
        raise ModelError(f"model {newest}: its revision tells no step; expected RUN, or RUN@step to end there")
    names = [name.removeprefix("@") for name in predecessors(newest)][::-1]
    names += [newest.revision] if newest.revision else []
    if not names:
        raise ModelError(
            f"model {newest}: no run of checkpoints whose names tell their steps; name one, as in RUN@step, or average "
            "models that are no run with --kind soup"
        )
    if newest.revision is None:
        reporter.note(f"{newest} tells no step; the run was taken to end at {names[-1]}")
    by_step: dict[int, str] = {}
    for name in names:
        other = by_step.setdefault(step_of(name) or 0, name)
        if other != name:
            both = " and ".join(sorted((other, name)))
            raise ModelError(f"model {newest}: {both} are of one step; expected one checkpoint of each")
    return newest, by_step


def _chosen(config: AverageConfig, steps: list[int], reporter: Reporter) -> list[list[int]]:
    """The steps that go into each average."""
    if config.kind == "ema":
        members = ema_members(steps, config.every)
        return [members[:n] for n in range(2, len(members) + 1)] if config.along else [members]
    chosen: list[list[int]] = []
    for end in range(1, len(steps)) if config.along else ():
        with suppress(ModelError):
            chosen.append(lawa_members(steps[: end + 1], config.window, config.every))
    if not chosen:
        return [lawa_members(steps, config.window, config.every)]
    gaps = {step for step in steps if step > chosen[0][-1]} - {members[-1] for members in chosen}
    if gaps:
        reporter.note(f"no average at steps {', '.join(map(str, sorted(gaps)))}: the window before has gaps")
    return chosen


def _make(config: AverageConfig, out: Path, pending: list[Planned], reporter: Reporter) -> None:
    newest = pending[-1].members[-1]
    tokenizer = None
    try:
        tokenizer = load_tokenizer(newest, config.remote_code)
    except ModelError:
        reporter.note(f"{newest} has no tokenizer that can be loaded; so there is none beside the average either")
    read = Reader(config, pending, reporter)
    for average, mean in _means(config, pending, read):
        _write(average.folder, out, read(average.members[-1]), mean, tokenizer, average.recipe(config))


def _means(config: AverageConfig, pending: list[Planned], read: Reader) -> Iterator[tuple[Planned, Weights]]:
    if config.kind == "ema":  # each average goes on from the one before: its members are the first of the next one's
        running, done = RunningMean(), 0
        for average in pending:
            for member in average.members[done:]:
                running.fade(config.decay)
                running.add(Weights.of(read(member)))
            done = len(average.members)
            yield average, running.mean()
        return
    for average in pending:
        in_order = sorted(average.members, key=lambda member: member.identity)  # whatever order they were named in
        yield average, weighted_mean((1.0, Weights.of(read(member))) for member in in_order)


def _write(folder: Path, out: Path, model: nn.Module, mean: Weights, tokenizer: Any, recipe: dict[str, Any]) -> None:
    """Write beside, then rename: a directory of this name is whole or not there."""
    partial = out.with_name(f".{out.name}.partial")  # beside the run too: within, it would look like a checkpoint of it
    with disk_errors(folder):
        shutil.rmtree(partial, ignore_errors=True)
        try:
            with _holding(model, mean):
                model.save_pretrained(partial)  # type: ignore[operator]
            if tokenizer is not None:
                tokenizer.save_pretrained(partial)
            write_sums(partial)
            facts = {**recipe, "files": sizes(partial), "versions": versions(), "environment": environment()}
            (partial / RECIPE).write_text(json.dumps(facts, indent=1), encoding="utf-8")
            folder.parent.mkdir(parents=True, exist_ok=True)
            if folder.exists():  # empty, or an average that may go
                shutil.rmtree(folder)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _holding(model: nn.Module, weights: Weights) -> Iterator[None]:
    """Within, `model` has these weights, and what is tied stays tied; its own come back: the next mean needs them."""
    own = {name: parameter.data for name, parameter in model.named_parameters()}
    try:
        for name, parameter in model.named_parameters():
            parameter.data = weights[name]
        yield
    finally:
        for name, parameter in model.named_parameters():
            parameter.data = own[name]
