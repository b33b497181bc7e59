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

from landscape.config import AverageConfig
from landscape.errors import ModelError, StoreError
from landscape.files import disk_errors, lock
from landscape.memory import available
from landscape.models import load_model, load_tokenizer
from landscape.references import Checkpoint, predecessors, resolve, step_of
from landscape.reporting import Reporter, Silent, versions
from landscape.training.averaging import RunningMean, ema_coefficients, ema_members, lawa_members, weighted_mean
from landscape.weights import Weights, check_same_space

RECIPE = "average.json"
_SETTINGS = ("kind", "window", "every", "decay")
_OF_THE_FILE = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"}


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


@dataclass(frozen=True)
class _Average:
    """What is to be averaged, and where it goes."""

    folder: Path
    members: tuple[Checkpoint, ...]
    coefficients: tuple[float, ...]

    def recipe(self, config: AverageConfig) -> dict[str, Any]:
        """What makes the average what it is, without any path."""
        own = {"lawa": ("window", "every"), "ema": ("decay", "every"), "soup": ()}[config.kind]
        members = [
            {
                "name": member.name,
                "revision": member.revision,
                "identity": member.identity,
                "step": member.step,
                "coefficient": coefficient,
            }
            for member, coefficient in zip(self.members, self.coefficients, strict=True)
        ]
        return {"kind": config.kind, **{name: getattr(config, name) for name in own}, "members": members}


def average_checkpoints(config: AverageConfig, reporter: Reporter | None = None) -> list[Averaged]:
    """Average the checkpoints that `config` asks for, and write each mean whole or not at all.

    Parameters are averaged. What else makes a checkpoint (configuration, buffers, tokenizer) is the newest member's, in
    a soup that of the model named last. The order in which a soup is named does not change its weights.

    Raises:
        ModelError: a checkpoint that is wanted is not there, cannot be loaded, or is of another architecture.
        StoreError: something else lies where the average should, or the disk refuses it.
    """
    reporter = reporter or Silent()
    out = config.out.resolve()
    with lock(out):
        plan = _soup(config, out, reporter) if config.kind == "soup" else _of_run(config, out, reporter)
        kept = _kept(config, out, plan)
        pending = [average for average in plan if average.folder not in kept]
        if kept:
            reporter.note(f"{len(kept)} of {len(plan)} there already, of the same members")
        if pending:
            _make(config, out, pending, reporter)
    return [
        Averaged(average.folder, tuple(map(str, average.members)), average.coefficients, average in pending)
        for average in plan
    ]


def _soup(config: AverageConfig, out: Path, reporter: Reporter) -> list[_Average]:
    progress = reporter.stage("finding the models")
    members: list[Checkpoint] = []
    for name in config.models:
        members.append(resolve(name, members[0] if members else None, config.remote_code))
        progress(len(members), len(config.models))
    for member, times in Counter(members).items():
        if times > 1:
            reporter.note(f"{member} is named {times} times and counts as often")
    return [_Average(out, tuple(members), ema_coefficients(len(members), 1.0))]


def _of_run(config: AverageConfig, out: Path, reporter: Reporter) -> list[_Average]:
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
        _Average(
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


def _kept(config: AverageConfig, out: Path, plan: list[_Average]) -> set[Path]:
    """Averages of `plan` that are there already; what else is there must be free to go, or not matter.

    Raises:
        StoreError: as the module says.
    """
    members = [member for average in plan for member in average.members]
    if inside := [member for member in members if member.folder.resolve().is_relative_to(out)]:
        raise StoreError(f"--out {out}: holds {inside[0]}, which is to be averaged; name another directory")
    if step_of(out.name) is not None and not config.along and out.parent in [member.run for member in members]:
        raise StoreError(f"--out {out}: would count as a checkpoint of {out.parent.name}; name a directory elsewhere")
    wanted = {average.folder: average.recipe(config) for average in plan}
    kept: set[Path] = set()
    replaced: list[Path] = []
    for folder in _there(config, out, set(wanted)):
        stored = _stored(folder)
        if not config.overwrite and _is_same(folder, stored, wanted):
            kept.add(folder)
            continue
        if foreign := sorted(_sizes(folder).keys() - stored.get("files", {}).keys()):
            raise StoreError(f"{folder}: holds {foreign[0]}, which is of no average; name another directory with --out")
        if not config.overwrite:
            raise StoreError(
                f"{folder}: holds another average, or a damaged one; name another --out, or use --overwrite"
            )
        replaced.append(folder)
    if config.along:  # now, so that after an interruption the rest can be made without --overwrite
        with disk_errors(out):
            for folder in replaced:
                shutil.rmtree(folder)
    return kept & set(wanted)


def _there(config: AverageConfig, out: Path, wanted: set[Path]) -> list[Path]:
    """Folders in which something lies that matters: `out`, or with `along` every checkpoint in it."""
    with disk_errors(out):
        if not out.exists() or not any(out.iterdir()):
            return []
        if not config.along:
            return [out]
        if (out / "config.json").exists():
            raise StoreError(f"--out {out}: a checkpoint itself, no directory for a run of them; name another one")
        inside = [child for child in out.iterdir() if child in wanted or (child / "config.json").exists()]
        return sorted(child for child in inside if any(child.iterdir()))


def _stored(folder: Path) -> dict[str, Any]:
    """The recipe in `folder`; empty where there is none."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        found: dict[str, Any] = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
        if all(member["identity"] for member in found["members"]) and isinstance(found["files"], dict):
            return found
    return {}


def _is_same(folder: Path, stored: dict[str, Any], wanted: dict[Path, dict[str, Any]]) -> bool:
    """Whether a whole average of these settings is in `folder`, and of these members where one is wanted there."""
    recipe = wanted.get(folder) or next(iter(wanted.values()))
    if not stored or any(stored.get(name) != recipe.get(name) for name in _SETTINGS):
        return False
    there, needed = ([(m["identity"], m["coefficient"]) for m in said["members"]] for said in (stored, recipe))
    return stored["files"].items() <= _sizes(folder).items() and (there == needed or folder not in wanted)


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes of every file below `folder` but the recipe."""
    files = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix(): path.lstat().st_size for path in files if path != folder / RECIPE}


def _make(config: AverageConfig, out: Path, pending: list[_Average], reporter: Reporter) -> None:
    newest = pending[-1].members[-1]
    tokenizer = None
    try:
        tokenizer = load_tokenizer(newest, config.remote_code)
    except ModelError:
        reporter.note(f"{newest} has no tokenizer that can be loaded; so there is none beside the average either")
    read = _Reader(config, pending, reporter)
    for average, mean in _means(config, pending, read):
        _write(average.folder, out, read(average.members[-1]), mean, tokenizer, average.recipe(config))


def _means(config: AverageConfig, pending: list[_Average], read: _Reader) -> Iterator[tuple[_Average, Weights]]:
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


class _Reader:
    """Members as models of one architecture; those that are needed again stay, as far as memory allows."""

    def __init__(self, config: AverageConfig, pending: list[_Average], reporter: Reporter) -> None:
        lists = [average.members for average in (pending[-1:] if config.kind == "ema" else pending)]
        self._to_come = Counter(member for members in lists for member in members)
        self._to_come.update(average.members[-1] for average in pending)  # the model that the mean is put into
        self._total, self._done = self._to_come.total(), 0
        self._remote_code = config.remote_code
        self._note, self._progress = reporter.note, reporter.stage("averaging")
        self._kept: dict[Checkpoint, nn.Module] = {}
        self._first: tuple[Checkpoint, Weights, dict[str, Any]] | None = None
        self._seen: dict[str, Checkpoint] = {}

    def __call__(self, checkpoint: Checkpoint) -> nn.Module:
        """The model at `checkpoint`."""
        self._progress(self._done, self._total)
        model = self._kept.pop(checkpoint, None) or self._load(checkpoint)
        self._done += 1
        self._to_come[checkpoint] -= 1
        if self._to_come[checkpoint] > 0:
            self._kept[checkpoint] = model
        return model

    def _load(self, checkpoint: Checkpoint) -> nn.Module:
        size = 4 * self._first[1].numel() if self._first else 0
        while self._kept and available("cpu") < 4 * size:  # this one, the sum (float64), the mean
            self._kept.popitem()
        model = load_model(checkpoint, remote_code=self._remote_code)
        config: dict[str, Any] = model.config.to_dict()  # type: ignore[operator, union-attr, attr-defined]
        if "quantization_config" in config:
            raise ModelError(f"model {checkpoint}: packed by a quantizer; expected weights in floating point")
        weights = Weights.of(model)
        self._check(checkpoint, weights, config)
        same = self._seen.setdefault(weights.fingerprint(), checkpoint)
        if same != checkpoint:
            self._note(f"{same} and {checkpoint} hold the same weights, and both count")
        return model

    def _check(self, checkpoint: Checkpoint, weights: Weights, config: dict[str, Any]) -> None:
        """Compare with the first member: other tensors are refused, another configuration of the same is told."""
        if self._first is None:
            self._first = checkpoint, Weights({name: t.to("meta") for name, t in weights.items()}), config
        first, space, expected = self._first
        try:
            check_same_space(space, weights)
        except ModelError as error:
            raise ModelError(f"model {checkpoint}: cannot be averaged with {first}: {error}") from error
        names = (config.keys() | expected.keys()) - _OF_THE_FILE
        if odd := sorted(name for name in names if config.get(name) != expected.get(name)):
            self._note(f"{first} and {checkpoint} are configured differently ({', '.join(odd)})")


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
            facts = {**recipe, "files": _sizes(partial), "versions": versions()}
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
