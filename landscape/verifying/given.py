"""The inputs of a stored result, found again: its configuration with places on this machine, each told by its identity.

A result knows its inputs by name and by hash. What lay on a disk has to be named again; what comes from the Hub is
found by the name stored. Nothing in the file can allow code to run, and a name in it never leads to another place than
the folder one is in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from landscape import inputs
from landscape.config import TextConfig, VerifyConfig
from landscape.errors import LandscapeError, StoreError, TextError
from landscape.models.checkpoint import Checkpoint
from landscape.models.references import resolve
from landscape.reporting import Reporter

C = TypeVar("C", bound=TextConfig)
_HUB = "commit:"
# How to run, which is decided here, and parts of an evaluation that are not asked again.
_OWN = {
    "out",
    "overwrite",
    "remote_code",
    "stream",
    "shard",
    "checkpointing",
    "tasks",
    "task_folder",
    "start",
    "vectors",
    "packed",
}


def configuration(kind: type[C], asked: VerifyConfig, stored: Mapping[str, Any], **changes: Any) -> C:
    """The configuration that a result stores, with what `asked` names in the place of what is known by name.

    Raises:
        StoreError: it is none.
    """
    names = {field.name for field in fields(kind)} - _OWN
    values: dict[str, Any] = {name: stored[name] for name in names if name in stored}
    for name in ("text", "calibration", "tokenizer"):
        if stored.get(name) is not None:
            values[name] = local(asked, name, stored[name])
    values |= {"remote_code": asked.remote_code, "batch_size": asked.batch_size or stored.get("batch_size")}
    values["device"] = asked.device or stored.get("device", "auto")
    try:
        return kind(**(values | changes))
    except (TypeError, ValueError, AttributeError, LandscapeError) as error:
        raise StoreError(f"{asked.file}: its configuration cannot be used ({error})") from error


def checkpoint(asked: VerifyConfig, name: str, identity: str) -> Checkpoint:
    """The model that a result calls `name`.

    Raises:
        StoreError: it is not named, or another one than `identity` says.
    """
    reference, given = asked.model or name, asked.model
    if given is None and not identity.startswith(_HUB):
        reference = local(asked, "model", name)
    _, _, revision = name.rpartition("@") if "@" in name else ("", "", "")
    if given and "@" not in given and revision and not (Path(given).expanduser() / "config.json").is_file():
        reference = f"{given}@{revision}"  # of a run, the checkpoint of the same name
    found = resolve(reference, remote_code=asked.remote_code)
    require(asked, "model", f"model {name}", identity, found.identity)
    return found


def other(asked: VerifyConfig, option: str, name: str | None, near: Checkpoint) -> str | None:
    """A reference to another checkpoint that a result calls `name`, for the run of `near`."""
    given = getattr(asked, option)
    if given or name is None or name.startswith("@") or "@" not in name:
        return given or name
    run, _, revision = name.rpartition("@")
    return f"@{revision}" if run == near.name else name


def read_text(
    config: TextConfig, asked: VerifyConfig, facts: Mapping[str, Any], near: Checkpoint, reporter: Reporter
) -> inputs.Text:
    """The windows that a result was made on.

    Raises:
        StoreError: the text gives other windows than those `facts` tell the fingerprints of.
    """
    reporter.stage("reading the text")
    calibrate = bool(facts.get("calibration_fingerprint"))
    try:
        text = inputs.read_text(config, near, calibrate, lambda note: None)
    except TextError as error:
        if asked.text is None or (config.calibration and asked.calibration is None):
            raise StoreError(f"{asked.file}: {error}; name its text with --text, and --calibration") from error
        raise
    what = f"text {facts.get('text')}"
    require(asked, "text", what, facts.get("tokens_fingerprint", ""), text.evaluation.fingerprint)
    if text.calibration is not None:
        option = "calibration" if config.calibration else "text"
        require(asked, option, "calibration text", facts["calibration_fingerprint"], text.calibration.fingerprint)
    return text


def sizes(text: inputs.Text) -> dict[str, int]:
    """What results say of their evaluation windows."""
    windows = text.evaluation
    return {"eval_tokens": windows.n_tokens, "eval_windows": len(windows), "seq_len": windows.ids.shape[1]}


def require(asked: VerifyConfig, option: str, what: str, stored: str, found: str) -> None:
    """Raise `StoreError` where an input is another one than the file was made from."""
    if stored != found:
        more = ", or --tokenizer" if option in ("text", "calibration") else ""
        raise StoreError(
            f"{asked.file}: cannot be checked: its {what} is {_short(stored)}, the one given here is {_short(found)}; "
            f"name the right one with --{option}{more}"
        )


def local(asked: VerifyConfig, option: str, name: Any) -> str:
    """What `option` names, or the stored name where that can be looked up.

    Raises:
        StoreError: neither.
    """
    given = getattr(asked, option)
    if given is not None:
        return str(given)
    if not isinstance(name, str) or Path(name).is_absolute() or name.startswith(("~", ".")) or ".." in Path(name).parts:
        raise StoreError(f"{asked.file}: its {option} is named {name!r}; say where it is with --{option}")
    if option == "model" and not Path(name.partition("@")[0]).exists():
        raise StoreError(f"{asked.file}: was made from {name}, which lay on a disk; say where it is with --model")
    return name


def _short(identity: str) -> str:
    kind, _, digest = identity.rpartition(":")
    return f"{kind or 'windows'} {digest[:12]}" if digest else "none"
