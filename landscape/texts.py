"""Where text comes from: a local file, a directory of files, or a dataset by its id; always a stream of documents.

    notes.txt            documents separated by lines that read <|endoftext|>
    pile.jsonl           one JSON object per line, the text in the field `text` (or `content`)
    corpus/              every such file below it, in order of name
    wikitext             a short name from ALIASES
    allenai/c4:en:train  a `datasets` id, optional configuration, optional split

Files may be compressed (.gz, .xz). A file with any other ending is read as text, but for .json, which is read by line.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from landscape.errors import MissingExtraError, TextError
from landscape.storage.files import on_disk

TEXT_SUFFIXES = (".txt", ".md", ".text")
JSON_SUFFIXES = (".jsonl", ".ndjson")
FIELDS = ("text", "content")  # where data sets of the field keep their text; RefinedWeb uses the second
SEPARATOR = "<|endoftext|>"
_PATIENCE = 10.0  # seconds for the Hub's first answer
_BLOCK = 1 << 22  # characters of a text without separators that count as one document, cut at a line end

ALIASES = {
    "wikitext": "Salesforce/wikitext:wikitext-2-raw-v1:test",
    "wikitext103": "Salesforce/wikitext:wikitext-103-raw-v1:test",
    "c4": "allenai/c4:en:validation",
    "fineweb-edu": "HuggingFaceFW/fineweb-edu:sample-10BT:train",
    "refinedweb": "tiiuae/falcon-refinedweb::train",
}


def documents(text: str) -> Iterator[str]:
    """The documents that `text` names (see the module's docstring), lazily and in a fixed order.

    Raises:
        TextError: no such file or data set, no text in it, or not UTF-8.
        MissingExtraError: a data set is asked for and `datasets` is not installed.
    """
    if not text.strip():
        raise TextError("text '': empty; give a local text or a datasets id such as wikitext")
    if path := on_disk(text):
        return _of_files(_files_below(path) if path.is_dir() else [path])
    if _looks_local(text):
        raise TextError(f"text {text}: no such file or directory; give a local text or a datasets id such as wikitext")
    return _of_dataset(text)


def display_name(text: str) -> str:
    """What a result may say of `text`: its name, never where it lies on this machine."""
    if on_disk(text) or _looks_local(text):
        return Path(text).name or Path(text).resolve().name
    return ALIASES.get(text, text)


def identity(text: str) -> str:
    """What makes `text` this one: a hash over its files, in order, or the id of a data set.

    Raises:
        TextError: a file cannot be read.
    """
    path = on_disk(text)
    if path is None:
        return ALIASES.get(text, text)
    digest = hashlib.sha256()
    for each in _files_below(path) if path.is_dir() else [path]:
        try:
            with open(each, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise TextError(f"text {each.name}: cannot be read ({error})") from error
    return f"sha256:{digest.hexdigest()}"


def _looks_local(text: str) -> bool:
    suffixes = {suffix.lower() for suffix in Path(text).suffixes}
    known = {*TEXT_SUFFIXES, *JSON_SUFFIXES, ".json", ".gz", ".xz"}
    return text.startswith((".", "/", "~")) or text.endswith("/") or bool(suffixes & known)


def _kind(path: Path) -> str:
    """The suffix that says how to read `path`, compression aside."""
    bare = path.with_suffix("") if path.suffix in (".gz", ".xz") else path
    return bare.suffix.lower()


def _files_below(folder: Path) -> list[Path]:
    known = (*TEXT_SUFFIXES, *JSON_SUFFIXES)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _kind(path) in known)
    if not files:
        raise TextError(f"text {folder}: no text in this directory; expected files ending in {', '.join(known)}")
    return files


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    return open(path, encoding="utf-8")


def _of_files(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        by_line = _kind(path) in (*JSON_SUFFIXES, ".json")
        try:
            with _open(path) as lines:
                yield from _of_json_lines(lines, path) if by_line else _of_text(lines)
        except UnicodeDecodeError as error:
            raise TextError(f"text {path.name}: not UTF-8 ({error}); convert it first") from error
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise TextError(f"text {path.name}: cannot be read ({error})") from error


def _of_text(lines: IO[str]) -> Iterator[str]:
    """Documents between separator lines, stripped; a text that has none is cut into blocks so that it streams."""
    gathered: list[str] = []
    size, separated = 0, False
    for line in lines:
        if line.strip() == SEPARATOR:
            separated = True
            yield from _document(gathered, separated)
            gathered, size = [], 0
            continue
        gathered.append(line)
        size += len(line)
        if size >= _BLOCK and not separated:
            yield from _document(gathered, separated)
            gathered, size = [], 0
    yield from _document(gathered, separated)


def _document(lines: list[str], strip: bool) -> Iterator[str]:
    text = "".join(lines)
    if text.strip():
        yield text.strip() if strip else text


def _of_json_lines(lines: IO[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            said = getattr(error, "msg", error)  # without the place, which is within the line
            raise TextError(
                f"text {path.name}, line {number}: not JSON ({said}); expected one object per line"
            ) from error
        yield _field(row, f"{path.name}, line {number}")


def _field(row: object, where: str) -> str:
    found = row if isinstance(row, dict) else {}
    for field in FIELDS:
        if isinstance(found.get(field), str):
            return found[field]
    raise TextError(
        f"text {where}: no field {' or '.join(FIELDS)} with text; it has {', '.join(map(str, found)) or 'no fields'}"
    )


def _of_dataset(text: str) -> Iterator[str]:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "text", f"reading the data set {text}") from error
    name, configuration, split = ([*ALIASES.get(text, text).split(":"), "", ""])[:3]
    try:
        if not _may_be_cached(name):
            _ask_hub(name)
        rows = datasets.load_dataset(name, configuration or None, split=split or "train", streaming=True)
        for row in rows:
            yield _field(row, text)
    except TextError:
        raise
    except Exception as error:  # datasets raises many kinds: every one means that this id gave no text
        reason = f"{type(error).__name__}: {error}"[:300]
        raise TextError(
            f"text {text}: no such file, and not a data set that can be read here ({reason}); "
            "give a local text, or id[:configuration[:split]] of a data set on the Hub"
        ) from error


def _may_be_cached(name: str) -> bool:
    """Whether `load_dataset` may do without the Hub."""
    from datasets import config

    return (Path(config.HF_DATASETS_CACHE) / name.replace("/", "___")).is_dir()


def _ask_hub(name: str) -> None:
    """Fail within seconds if the Hub is out of reach, where `load_dataset` would try for half a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    with suppress(HfHubHTTPError):  # that is an answer, and load_dataset has better words for it
        HfApi().dataset_info(name, timeout=_PATIENCE)
