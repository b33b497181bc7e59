"""Names of tasks → lm-eval's tasks with their data, checked as far as that goes without a model."""

from __future__ import annotations

import difflib
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from landscape.errors import OptionError
from landscape.tasks import checks
from landscape.tasks.manners import OnProgress, quiet, reason, require, seeded
from landscape.tasks.prompts import write_prompts

PAPER_TASKS = (  # arXiv 2510.06213, section 3.1; 5-shot
    "arc_challenge",
    "arc_easy",
    "openbookqa",
    "piqa",
    "hellaswag",
    "winogrande",
    "mathqa",
    "pubmedqa",
    "sciq",
    "social_iqa",
    "commonsense_qa",
    "mmlu",
)
_PATHS = ("data_files", "data_dir")  # options of `datasets` that name files


@dataclass(frozen=True)
class LoadedTask:
    """A task, or a group of tasks that lm-eval averages.

    Attributes:
        leaves: name → lm-eval's task with its data and prompts; those of a group in its order.
        n_questions: that will be asked, over all leaves.
        unanswerable: those among them that no choice answers.
        by_size: whether leaves weigh by their questions or all the same.
        version: lm-eval's.
        questions: SHA-256 of prompts, choices and answers in order.
    """

    name: str
    leaves: Mapping[str, Any]
    n_questions: int
    unanswerable: int
    by_size: bool
    version: str
    questions: str = ""


@dataclass(frozen=True)
class TaskSet:
    """Tasks and how to ask them: `limit` takes the first questions of every subtask, `seed` draws the examples."""

    tasks: tuple[LoadedTask, ...]
    metric: str
    limit: int | None
    seed: int

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything but the model that the scores depend on."""
        asked = [(task.name, task.version, task.by_size, task.questions) for task in self.tasks]
        return hashlib.sha256(repr((self.metric, asked)).encode()).hexdigest()


def load(
    names: Sequence[str],
    shots: int = 5,
    limit: int | None = None,
    task_folder: Path | None = None,
    seed: int = 0,
    metric: str = "acc",
    on_progress: OnProgress = lambda done, total: None,
) -> TaskSet:
    """The tasks, groups and tags of lm-eval called `names`, each question with `shots` worked examples before it.

    A tag stands for its tasks. A task that fixes its number of examples at 0 keeps it. lm-eval by itself draws the
    examples with seed 1234. A task in `task_folder` goes before lm-eval's own of the same name. `on_progress` counts
    the questions written.

    Raises:
        MissingExtraError: lm-eval is not installed.
        OptionError: an unknown task, one that cannot be read, or one without choices and a mean of `metric` over them.
    """
    names = [name.strip() for name in names]
    if not names or not all(names):
        raise OptionError("--tasks: an empty name; name tasks of lm-eval with commas, such as piqa,sciq")
    require()
    folder = task_folder.expanduser().resolve() if task_folder else None
    if folder and not folder.is_dir():
        raise OptionError(f"--task-folder {task_folder}: no such directory; expected one with task files of lm-eval")
    with quiet(), seeded(seed):
        manager = _manager(names, folder)
        for name in names:
            if name not in manager.task_index:
                raise OptionError(_unknown(manager, name, folder))
        found = {task.name: task for name in names for task in _load(manager, name, limit, metric)}
        done, total = 0, sum(task.n_questions for task in found.values())
        for task in found.values():
            digests = []
            for name, leaf in task.leaves.items():
                digests.append(write_prompts(name, leaf, shots, limit, seed))
                done += len({asked.doc_id for asked in leaf.instances})
                on_progress(done, total)
            questions = hashlib.sha256("".join(digests).encode()).hexdigest()
            found[task.name] = replace(task, questions=questions)
    return TaskSet(tuple(found.values()), metric, limit, seed)


def _manager(names: Sequence[str], folder: Path | None) -> Any:
    """lm-eval's index of tasks: of the folder alone where that has them all, as its own 14,000 take ten seconds."""
    from lm_eval.tasks import TaskManager

    if folder is None:
        return TaskManager()
    _check_files(folder)
    manager = TaskManager(include_path=folder, include_defaults=False)
    if not set(names) <= set(manager.all_subtasks):
        manager = TaskManager(include_path=folder)
    _anchor(manager.task_index, folder)
    return manager


def _check_files(folder: Path) -> None:
    """lm-eval leaves out what it cannot read, to take a task of its own of that name, and the second of two files."""
    from lm_eval.tasks.manager import load_yaml

    seen: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.yaml")):
        try:
            known = load_yaml(path, resolve_func=False)
        except Exception as error:  # no YAML, no mapping, an include that is missing
            raise OptionError(
                f"--task-folder: {path.name} cannot be read ({reason(error)}); expected a task file of lm-eval, in YAML"
            ) from error
        name = known.get("group") or known.get("task")
        if isinstance(name, str) and seen.setdefault(name, path) != path:
            first, second = (one.relative_to(folder) for one in (seen[name], path))
            raise OptionError(f"--task-folder: {first} and {second} both define {name}; rename one")


def _anchor(index: Mapping[str, Any], folder: Path) -> None:
    """Look for the data of tasks in `folder` beside their YAML file; lm-eval looks where the process was started."""
    from lm_eval.tasks.manager import load_yaml

    for entry in index.values():
        known = entry.cfg or {}
        options = known.get("dataset_kwargs")
        if entry.yaml_path is None or folder not in entry.yaml_path.parents or not isinstance(options, dict):
            continue
        if "/" in str(known.get("dataset_path")):  # files of a data set on the Hub, where json, csv, … are not
            continue
        beside = {name: _beside(options[name], entry.yaml_path.parent) for name in _PATHS if name in options}
        try:
            entry.cfg = load_yaml(entry.yaml_path) | {"dataset_kwargs": options | beside}
        except Exception:  # Python code that it names is missing or broken: told if this task is asked for
            continue
        entry.yaml_path = None  # or lm-eval would read it again


def _beside(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {name: _beside(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        return [_beside(one, folder) for one in value]
    return str(folder / value) if isinstance(value, str) and "://" not in value else value


def _load(manager: Any, name: str, limit: int | None, metric: str) -> list[LoadedTask]:
    try:
        found = manager.load([name])
    except Exception as error:  # lm-eval, datasets and a task's own code raise what they like
        raise OptionError(_unreadable(name, error)) from error
    leaves, group = found["tasks"], found.get("groups", {}).get(name)
    sizes, odd = {}, {}
    for one, leaf in leaves.items():
        checks.has_choices(one, leaf, metric)
        n = len(leaf.eval_docs)
        sizes[one], odd[one] = min(n, limit or n), checks.unanswerable(one, leaf, limit)
    if group is None:
        return [
            LoadedTask(one, {one: leaves[one]}, sizes[one], odd[one], True, str(leaves[one].VERSION)) for one in leaves
        ]
    average = next((average for average in group.aggregate_metric_list or () if average.metric == metric), None)
    if average is None:
        some = ", ".join(itertools.islice(leaves, 3))
        raise OptionError(f"task {name}: a group without a mean {metric} in lm-eval; name its tasks instead: {some}, …")
    by_size = bool(average.weight_by_size)
    return [LoadedTask(name, leaves, sum(sizes.values()), sum(odd.values()), by_size, group.version)]


def _unknown(manager: Any, name: str, folder: Path | None) -> str:
    near = difflib.get_close_matches(name, manager.all_tasks, n=3, cutoff=0.7)
    hint = f"did you mean {' or '.join(near)}?" if near else "'lm-eval ls tasks' lists what there is"
    where = f"unknown to lm-eval, and no file in --task-folder says 'task: {name}'" if folder else "unknown to lm-eval"
    return f"task {name}: {where}; {hint}"


def _unreadable(name: str, error: Exception) -> str:
    from datasets.exceptions import DatasetsError

    if isinstance(error, ConnectionError):
        what = "its data set cannot be fetched"
        hint = "connect to the network, or name a folder of task files with local data with --task-folder"
    elif isinstance(error, (OSError, DatasetsError)):
        what, hint = "its data cannot be read", "see dataset_path and dataset_kwargs in its YAML file"
    else:
        what, hint = "cannot be loaded", "correct its YAML file, or leave it out of --tasks"
    return f"task {name}: {what} ({reason(error)}); {hint}"
