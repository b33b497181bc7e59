"""Checkpoints of the Hub: into its cache and out of it, with or without an answer; and what to say without one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from landscape.errors import ModelError
from landscape.models.checkpoint import Checkpoint, nearest
from landscape.models.folder import missing, require_complete, require_intact

_FILES = ["*.json", "*.txt", "*.model", "*.tiktoken", "model*.safetensors"]  # all that loading needs
_PICKLED = "pytorch_model*.bin"
_PATIENCE = 10.0  # seconds for the Hub's first answer; without it the cache decides


def from_hub(name: str, revision: str | None, remote_code: bool) -> Checkpoint:
    """The checkpoint, downloaded where the cache lacks it.

    Raises:
        ModelError: not to be had, incomplete, or damaged in the cache.
    """
    reference = f"{name}@{revision}" if revision else name
    try:
        folder = _snapshot(name, revision, remote_code)
    except ModelError:
        raise
    except Exception as error:  # whatever the network layers raise: without the files there is no model
        raise refused(name, revision, error) from error
    require_complete(folder, reference)
    require_intact(folder, reference)
    return Checkpoint(name, revision, f"commit:{folder.name}", folder, name)


def refused(name: str, revision: str | None, error: Exception) -> ModelError:
    """What a person can do where the Hub gave no model."""
    from huggingface_hub import errors as hub

    reference = f"{name}@{revision}" if revision else name
    if isinstance(error, hub.GatedRepoError):
        return ModelError(f"model {name}: gated; accept its terms on the Hub and log in with `hf auth login`")
    if isinstance(error, hub.RevisionNotFoundError):
        near = nearest(revision or "main", hub_revisions(name))
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
    cached = cached_revisions(name)
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
        if not isinstance(config, str) or missing(Path(config).parent):
            raise
        return Path(config).parent

    def download(patterns: list[str]) -> Path:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"]))

    patterns = [*_FILES, "*.py"] if remote_code else _FILES
    folder = download(patterns)
    return download([*patterns, _PICKLED]) if missing(folder) else folder  # older checkpoints have pickles only


def hub_revisions(name: str) -> list[str]:
    """Branches and tags of a repository; those in the local cache when the Hub cannot be asked."""
    try:
        return listed(name)
    except Exception:  # offline or refused: the cache is the second-best answer
        return cached_revisions(name)


def listed(name: str) -> list[str]:
    """Branches and tags of a repository, as the Hub lists them."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    with suppress(HfHubHTTPError):  # that is an answer; list_repo_refs would wait for one without a limit
        HfApi().model_info(name, timeout=_PATIENCE)
    refs = HfApi().list_repo_refs(name)
    return [ref.name for ref in [*refs.branches, *refs.tags]]


def require_access(name: str, names: list[str]) -> None:
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


def cached_revisions(name: str) -> list[str]:
    """Branches and tags that lie in the local cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    refs = Path(HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "refs"
    return sorted(path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file())


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
