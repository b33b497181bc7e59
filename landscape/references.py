"""Model references: `org/name@revision` on the Hub, or `path@step` on disk, resolved once to a local directory.

A reference is what a person types; a `Checkpoint` is what it means: a directory to load from and an identity that
cannot change under us, a commit hash for the Hub and a content hash for files.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from landscape.digests import SUMS, broken, of_file, read_sums
from landscape.errors import ModelError
from landscape.files import on_disk
from landscape.shards import shards

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_STEP = re.compile(r"((?:step|iter|checkpoint|ckpt)[-_]?)(\d+)")
_TOKENS = re.compile(r"(tokens?[-_]?)(\d+)")
_FILES = ["*.json", "*.txt", "*.model", "*.tiktoken", "model*.safetensors"]  # all that loading needs
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PICKLED = "pytorch_model*.bin"
_PATIENCE = 10.0  # seconds for the Hub's first answer; without it the cache decides


@dataclass(frozen=True)
class Checkpoint:
    """One point of a training run.

    Attributes:
        name: Hub id, or the directory's name; never a path.
        revision: branch, tag, commit or folder name; None for a lone local model.
        identity: `commit:<sha1>` or `sha256:<content hash>`.
        folder: where to load it from on this machine (not stored in any result).
        run: the Hub id or the run's directory, for finding neighbours.
    """

    name: str
    revision: str | None
    identity: str
    folder: Path
    run: str | Path

    def __str__(self) -> str:
        """`name@revision`."""
        return f"{self.name}@{self.revision}" if self.revision else self.name

    @property
    def step(self) -> int | None:
        """The training step, where the revision's name tells it."""
        return step_of(self.revision or "")


def step_of(revision: str) -> int | None:
    """The training step in a revision's name.

    >>> [step_of(name) for name in ("step143000", "stage1-step40000-tokens84B", "stage1-step-40000", "iter_0058000")]
    [143000, 40000, 40000, 58000]
    >>> step_of("checkpoint-500"), step_of("ckpt_010"), step_of("main")
    (500, 10, None)
    """
    found = _STEP.search(revision)
    if found:
        return int(found[2])
    return int(revision) if revision.isdecimal() else None


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
        return _local(near.run, revision) if isinstance(near.run, Path) else _hub(near.run, revision, remote_code)
    if path := on_disk(name):
        return _local(path, revision or None)
    if not _HUB_ID.fullmatch(name):
        raise ModelError(
            f"model {reference}: no such directory; give a directory, a Hub id such as org/name, or either @revision"
        )
    return _hub(name, revision or None, remote_code)


def predecessors(checkpoint: Checkpoint) -> Iterator[str]:
    """References to the checkpoints before this one in its run, the nearest first, ready for `resolve(…, checkpoint)`.

    Only revisions whose names differ in step and tokens alone count as one run: of a repository with several stages,
    `main` has no known predecessor.
    """
    names = _run_names(checkpoint.run)
    if checkpoint.step is not None:
        family = _family(checkpoint.revision or "")
        names = [name for name in names if _family(name) == family and _step(name) < checkpoint.step]
    elif len({_family(name) for name in names}) > 1:
        names = []
    for name in sorted(names, key=_step, reverse=True):
        yield f"@{name}"


def revisions(run: str | Path) -> list[str]:
    """All revisions of a run: folders on disk, or the Hub's branches and tags, or those in its cache without the Hub.

    Raises:
        ModelError: no such model on the Hub or none of its files for this user, and no copy of any in the cache.
    """
    if isinstance(run, Path):
        return [name for name in _folders(run) if not name.startswith(".")]  # those are still being written
    try:
        names = _listed(run)
        _require_access(run, names)
    except Exception as error:
        if cached := _cached_revisions(run):
            return cached
        raise _refused(run, None, error) from error
    return names


def is_cached(reference: str) -> bool:
    """Whether a checkpoint of the Hub lies in the local cache."""
    from huggingface_hub import try_to_load_from_cache

    name, _, revision = reference.partition("@")
    return isinstance(try_to_load_from_cache(name, "config.json", revision=revision or "main"), str)


def forget(reference: str) -> None:
    """Delete a revision of the Hub from the local cache, complete or not; what other revisions share stays."""
    from huggingface_hub import scan_cache_dir

    name, _, wanted = reference.partition("@")
    cache = scan_cache_dir()
    revisions = [revision for repo in cache.repos if repo.repo_id == name for revision in repo.revisions]
    found = [each.commit_hash for each in revisions if (wanted or "main") in {*each.refs, each.commit_hash}]
    cache.delete_revisions(*found).execute()


def _step(name: str) -> int:
    step = step_of(name)
    return -1 if step is None else step


def _family(name: str) -> str:
    """`name` without its step and its count of tokens: what the checkpoints of one run have in common."""
    if name.isdecimal():
        return "#"
    return _TOKENS.sub(r"\1#", _STEP.sub(r"\1#", name))


def _run_names(run: str | Path) -> list[str]:
    """The revisions of a run whose names tell a step."""
    names = _folders(run) if isinstance(run, Path) else _hub_revisions(run)
    return [name for name in names if step_of(name) is not None]


def _folders(run: Path) -> list[str]:
    children = (child for child in run.iterdir() if not child.name.startswith("."))  # those are being written
    return sorted((child.name for child in children if (child / "config.json").is_file()), key=_step)


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
            raise ModelError(f"model {path.name}: no checkpoint {revision} in this run; {_nearest(revision, names)}")
        return _at(path / chosen[0], run=path)
    if (path / "config.json").is_file():
        is_of_run = step_of(path.name) is not None and not names
        return _at(path, run=path.parent) if is_of_run else _lone(path)
    if not names:
        raise ModelError(
            f"model {path.name}: neither config.json nor step<N>/ or checkpoint-<N>/ in this directory; "
            "expected a model as transformers saves it, or a training run"
        )
    if len({_family(name) for name in names}) > 1:
        raise ModelError(f"model {path.name}: several runs in one directory; name a checkpoint, as in @{names[-1]}")
    return _at(path / names[-1], run=path)


def _at(folder: Path, run: Path) -> Checkpoint:
    return Checkpoint(run.name, folder.name, _content_hash(folder), folder, run)


def _lone(folder: Path) -> Checkpoint:
    return Checkpoint(folder.name, None, _content_hash(folder), folder, folder)


def _model_files(folder: Path) -> list[Path]:
    """The configuration and the weight files that transformers would load, there or not."""
    config, whole = folder / "config.json", folder / "model.safetensors"
    for weights in (whole, folder / "pytorch_model.bin"):
        index = folder / f"{weights.name}.index.json"
        if weights.is_file():
            return [config, weights]
        if index.is_file():
            return [config, *shards(index)]
    return [config, whole]


def _missing(folder: Path) -> list[str]:
    return [path.name for path in _model_files(folder) if not path.is_file()]


def _require_complete(folder: Path, name: str) -> None:
    if missing := _missing(folder):
        raise ModelError(
            f"model {name}: it has no {missing[0]}; expected config.json and model.safetensors or pytorch_model.bin, "
            "with every shard their index names, as transformers saves them"
        )


def _require_intact(folder: Path, name: str) -> None:
    """Raise `ModelError` where a weight file in the Hub's cache is not what it is named after, its own SHA-256."""
    for path in _model_files(folder):
        blob = path.resolve()
        if _SHA256.fullmatch(blob.name) and of_file(blob) != blob.name:
            raise ModelError(f"model {name}: {path.name} in the local cache is damaged; delete {blob} and try again")


def _content_hash(folder: Path) -> str:
    """SHA-256 over the configuration and the weight files that would be loaded.

    Raises:
        ModelError: incomplete, or not what SHA256SUMS says where there is one.
    """
    _require_complete(folder, folder.name)
    try:
        odd = broken(folder, read_sums(folder))
    except (OSError, ValueError) as error:
        raise ModelError(f"model {folder.name}: {SUMS} cannot be read; copy the checkpoint again") from error
    if odd:
        raise ModelError(
            f"model {folder.name}: {odd} is not the file that {SUMS} names; copy the checkpoint again, or remove "
            f"{SUMS} if it was changed on purpose"
        )
    digest = hashlib.sha256()
    for path in _model_files(folder):
        digest.update(path.name.encode())
        with open(path, "rb") as file:
            while block := file.read(1 << 24):
                digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def _hub(name: str, revision: str | None, remote_code: bool) -> Checkpoint:
    reference = f"{name}@{revision}" if revision else name
    try:
        folder = _snapshot(name, revision, remote_code)
    except ModelError:
        raise
    except Exception as error:  # whatever the network layers raise: without the files there is no model
        raise _refused(name, revision, error) from error
    _require_complete(folder, reference)
    _require_intact(folder, reference)
    return Checkpoint(name, revision, f"commit:{folder.name}", folder, name)


def _refused(name: str, revision: str | None, error: Exception) -> ModelError:
    """What a person can do where the Hub gave no model."""
    from huggingface_hub import errors as hub

    reference = f"{name}@{revision}" if revision else name
    if isinstance(error, hub.GatedRepoError):
        return ModelError(f"model {name}: gated; accept its terms on the Hub and log in with `hf auth login`")
    if isinstance(error, hub.RevisionNotFoundError):
        near = _nearest(revision or "main", _hub_revisions(name))
        return ModelError(f"model {name}: no revision {revision or 'main'} on the Hub; {near}")
    if isinstance(error, hub.RepositoryNotFoundError):
        return ModelError(
            f"model {name}: no such directory, and no such model on the Hub; check the spelling, or log in with "
            "`hf auth login` if it is private"
        )
    if isinstance(error, hub.HFValidationError):
        return ModelError(f"model {name}: no such directory, and not a Hub id such as org/name")
    offline = isinstance(error, hub.OfflineModeIsEnabled)
    why = "HF_HUB_OFFLINE is set" if offline else f"the Hub gives none ({type(error).__name__}: {error})"[:200]
    cached = _cached_revisions(name)
    known = f" (it knows {', '.join(cached[:8])})" if cached else ""
    return ModelError(
        f"model {reference}: no such directory, no complete copy in the local cache{known}, and {why}; "
        "check the spelling and the network, or download it where there is one"
    )


def _snapshot(name: str, revision: str | None, remote_code: bool) -> Path:
    """The model's directory in the Hub's cache, filled from the Hub, or as it is when the Hub gives no answer."""
    from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache
    from huggingface_hub import errors as hub

    try:
        # Asked first, because snapshot_download can take half a minute to give up on a Hub that is out of reach, and
        # then calls a cache incomplete that lacks any file of the repository, needed here or not.
        HfApi().model_info(name, revision=revision, timeout=_PATIENCE)
    except (hub.RevisionNotFoundError, hub.HFValidationError):
        raise
    except Exception:
        config = try_to_load_from_cache(name, "config.json", revision=revision or "main")
        if not isinstance(config, str) or _missing(Path(config).parent):
            raise
        return Path(config).parent

    def download(patterns: list[str]) -> Path:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"]))

    patterns = [*_FILES, "*.py"] if remote_code else _FILES
    folder = download(patterns)
    return download([*patterns, _PICKLED]) if _missing(folder) else folder  # older checkpoints have pickles only


def _hub_revisions(name: str) -> list[str]:
    """Branches and tags of a repository; those in the local cache when the Hub cannot be asked."""
    try:
        return _listed(name)
    except Exception:  # offline or refused: the cache is the second-best answer
        return _cached_revisions(name)


def _listed(name: str) -> list[str]:
    """Branches and tags of a repository, as the Hub lists them."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    with suppress(HfHubHTTPError):  # that is an answer; list_repo_refs would wait for one without a limit
        HfApi().model_info(name, timeout=_PATIENCE)
    refs = HfApi().list_repo_refs(name)
    return [ref.name for ref in [*refs.branches, *refs.tags]]


def _require_access(name: str, names: list[str]) -> None:
    """Raise the Hub's refusal of a gated repository, which lists its revisions to everybody and gives files to few."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import GatedRepoError

    if names:
        try:
            get_hf_file_metadata(hf_hub_url(name, "config.json", revision=names[0]), timeout=_PATIENCE)
        except GatedRepoError:
            raise
        except Exception:  # the list is there; whether a checkpoint can be loaded is `resolve`'s to tell
            return


def _cached_revisions(name: str) -> list[str]:
    from huggingface_hub.constants import HF_HUB_CACHE

    refs = Path(HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "refs"
    return sorted(path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file())


def _nearest(revision: str, names: Iterable[str]) -> str:
    """The names a person may have meant: by step where there is one, else by spelling."""
    names = list(names)
    steps = [name for name in names if step_of(name) is not None]
    numbers = [int(number) for number in re.findall(r"\d+", revision)]
    if steps and numbers:
        step = step_of(revision)
        wanted = max(numbers) if step is None else step
        near = sorted(steps, key=lambda name: abs(_step(name) - wanted))[:4]
    else:
        near = difflib.get_close_matches(revision, names, n=4, cutoff=0.0)
    return f"nearest: {', '.join(near)}" if near else "it has no others"
