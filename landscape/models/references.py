"""Model references: `org/name@revision` on the Hub, or `path@step` on disk, resolved once to a local directory.

A reference is what a person types; a `Checkpoint` is what it means: a directory to load from and an identity that
cannot change under us, a commit hash for the Hub and a content hash for files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from landscape.errors import ModelError
from landscape.models.checkpoint import Checkpoint, family_of, nearest, order_of, step_of
from landscape.models.folder import content_hash
from landscape.models.hub import cached_revisions, from_hub, hub_revisions, listed, refused, require_access
from landscape.storage.files import on_disk

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def resolve(reference: str, near: Checkpoint | None = None, remote_code: bool = False) -> Checkpoint:
    """What `reference` means; `@revision` alone is taken in the run of `near`.

    Downloads from the Hub what is not in its cache. `remote_code` also fetches the model's own Python files.

    Raises:
        ModelError: nothing by that name, here or on the Hub; the message names the nearest revisions.
    """
    if path := on_disk(reference):
        return _local(path, None)
    name, at, revision = reference.rpartition("@") if "@" in reference else (reference, "", "")
    if at and not revision:
        raise ModelError(f"model {reference}: nothing after the @; name a revision or a step, or leave the @ out")
    if at and not name and near is not None:
        return _local(near.run, revision) if isinstance(near.run, Path) else from_hub(near.run, revision, remote_code)
    if path := on_disk(name):
        return _local(path, revision or None)
    if not _HUB_ID.fullmatch(name):
        raise ModelError(
            f"model {reference}: no such directory; give a directory, a Hub id such as org/name, or either @revision"
        )
    return from_hub(name, revision or None, remote_code)


def predecessors(checkpoint: Checkpoint) -> Iterator[str]:
    """References to the checkpoints before this one in its run, the nearest first, ready for `resolve(…, checkpoint)`.

    Only revisions whose names differ in step and tokens alone count as one run: of a repository with several stages,
    `main` has no known predecessor.
    """
    names = _run_names(checkpoint.run)
    if checkpoint.step is not None:
        family = family_of(checkpoint.revision or "")
        names = [name for name in names if family_of(name) == family and order_of(name) < checkpoint.step]
    elif len({family_of(name) for name in names}) > 1:
        names = []
    for name in sorted(names, key=order_of, reverse=True):
        yield f"@{name}"


def revisions(run: str | Path) -> list[str]:
    """All revisions of a run: folders on disk, or the Hub's branches and tags, or those in its cache without the Hub.

    Raises:
        ModelError: no such model on the Hub or none of its files for this user, and no copy of any in the cache.
    """
    if isinstance(run, Path):
        return [name for name in _folders(run) if not name.startswith(".")]  # those are still being written
    try:
        names = listed(run)
        require_access(run, names)
    except Exception as error:
        if cached := cached_revisions(run):
            return cached
        raise refused(run, None, error) from error
    return names


def _run_names(run: str | Path) -> list[str]:
    """The revisions of a run whose names tell a step."""
    names = _folders(run) if isinstance(run, Path) else hub_revisions(run)
    return [name for name in names if step_of(name) is not None]


def _folders(run: Path) -> list[str]:
    children = (child for child in run.iterdir() if not child.name.startswith("."))  # those are being written
    return sorted((child.name for child in children if (child / "config.json").is_file()), key=order_of)


def _local(path: Path, revision: str | None) -> Checkpoint:
    """A lone model, a run with `step<N>/` or `checkpoint-<N>/` below it, or one of these folders itself."""
    path = path.resolve()
    if not path.is_dir():
        raise ModelError(f"model {path.name}: a file; expected a directory as transformers saves it")
    names = [name for name in _folders(path) if step_of(name) is not None]
    if revision is not None:
        chosen = [name for name in names if name == revision] or [
            name for name in names if revision.isdecimal() and step_of(name) == int(revision)
        ]
        if len(chosen) != 1:  # two stages can have a step of one number
            raise ModelError(f"model {path.name}: no checkpoint {revision} in this run; {nearest(revision, names)}")
        return _at(path / chosen[0], run=path)
    if (path / "config.json").is_file():
        is_of_run = step_of(path.name) is not None and not names
        return _at(path, run=path.parent) if is_of_run else _lone(path)
    if not names:
        raise ModelError(
            f"model {path.name}: neither config.json nor step<N>/ or checkpoint-<N>/ in this directory; "
            "expected a model as transformers saves it, or a training run"
        )
    if len({family_of(name) for name in names}) > 1:
        raise ModelError(f"model {path.name}: several runs in one directory; name a checkpoint, as in @{names[-1]}")
    return _at(path / names[-1], run=path)


def _at(folder: Path, run: Path) -> Checkpoint:
    return Checkpoint(run.name, folder.name, content_hash(folder), folder, run)


def _lone(folder: Path) -> Checkpoint:
    return Checkpoint(folder.name, None, content_hash(folder), folder, folder)
