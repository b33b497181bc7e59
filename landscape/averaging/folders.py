"""What may lie where an average goes: what this command wrote may be kept or replaced, nothing else is touched."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from landscape.config import AverageConfig
from landscape.errors import StoreError
from landscape.models.checkpoint import Checkpoint, step_of
from landscape.storage.files import disk_errors

RECIPE = "average.json"
_SETTINGS = ("kind", "window", "every", "decay")


@dataclass(frozen=True)
class Planned:
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


def kept_averages(config: AverageConfig, out: Path, plan: list[Planned]) -> set[Path]:
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
        if foreign := sorted(sizes(folder).keys() - stored.get("files", {}).keys()):
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
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        found: dict[str, Any] = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
        named = all(member["identity"] and "coefficient" in member for member in found["members"])
        if named and isinstance(found["files"], dict):
            return found
    return {}


def _is_same(folder: Path, stored: dict[str, Any], wanted: dict[Path, dict[str, Any]]) -> bool:
    """Whether a whole average of these settings is in `folder`, and of these members where one is wanted there."""
    recipe = wanted.get(folder) or next(iter(wanted.values()))
    if not stored or any(stored.get(name) != recipe.get(name) for name in _SETTINGS):
        return False
    there, needed = ([(m["identity"], m["coefficient"]) for m in said["members"]] for said in (stored, recipe))
    return stored["files"].items() <= sizes(folder).items() and (there == needed or folder not in wanted)


def sizes(folder: Path) -> dict[str, int]:
    """Bytes of every file below `folder` but the recipe."""
    files = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix(): path.lstat().st_size for path in files if path != folder / RECIPE}
