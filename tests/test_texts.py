"""Where text comes from: files and folders of every kind, data sets of the Hub, and what is said when there is none."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hub import Hub, commit, run, serve
from landscape import texts
from landscape.errors import TextError
from landscape.texts import display_name, documents


def refusal(text: str | Path) -> str:
    with pytest.raises(TextError) as caught:
        list(documents(str(text)))
    message = str(caught.value)
    assert "\n" not in message
    return message


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# ----------------------------------------------------------------------------------------------------- local files


@pytest.mark.parametrize("ending", ["\n<|endoftext|>\n", "\n", ""])
def test_documents_between_separators(tmp_path: Path, ending: str) -> None:
    """The last document counts whether or not a separator follows it, and all are stripped alike."""
    path = tmp_path / "notes.txt"
    path.write_text("\nfirst\n\nstill first \n<|endoftext|>\n  second\n<|endoftext|>\n\n<|endoftext|>\n third" + ending)

    assert list(documents(str(path))) == ["first\n\nstill first", "second", "third"]


def test_text_without_separators_is_one_document_as_it_stands(tmp_path: Path) -> None:
    text = "\n  a line\n\nand another <|endoftext|> in passing\n"
    (tmp_path / "book.md").write_text(text)

    assert list(documents(str(tmp_path / "book.md"))) == [text]


def test_long_text_without_separators_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_BLOCK", 50)
    text = "".join(f"line {number} äöü\n" for number in range(40)) + "the end"
    (tmp_path / "long.txt").write_text(text, encoding="utf-8")

    blocks = list(documents(str(tmp_path / "long.txt")))
    assert "".join(blocks) == text
    assert len(blocks) > 5
    assert all(50 <= len(block) < 100 and block.endswith("\n") for block in blocks[:-1])


def test_long_documents_between_separators_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_BLOCK", 50)
    story = "\n".join(f"line {number}" for number in range(40))
    (tmp_path / "two.txt").write_text(f"short\n<|endoftext|>\n{story}\n")

    assert list(documents(str(tmp_path / "two.txt"))) == ["short", story]


@pytest.mark.parametrize("name", ["pile.jsonl", "pile.ndjson", "pile.json"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    """`text` goes before `content`; empty lines and other fields do not matter."""
    rows = (
        lines({"text": "one\ntwo", "id": 1}, {"content": "three"}) + "\n" + lines({"content": "no", "text": " four "})
    )
    (tmp_path / name).write_text(rows)

    assert list(documents(str(tmp_path / name))) == ["one\ntwo", "three", " four "]


Opener = Callable[..., Any]


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".xz", lzma.open)])
def test_compressed(tmp_path: Path, suffix: str, opener: Opener) -> None:
    with opener(tmp_path / f"pile.jsonl{suffix}", "wt", encoding="utf-8") as file:
        file.write(lines({"text": "für"}, {"text": "zwei"}))
    with opener(tmp_path / f"notes.txt{suffix}", "wt", encoding="utf-8") as file:
        file.write("a\n<|endoftext|>\nb")

    assert list(documents(str(tmp_path / f"pile.jsonl{suffix}"))) == ["für", "zwei"]
    assert list(documents(str(tmp_path / f"notes.txt{suffix}"))) == ["a", "b"]


def test_a_directory_in_order_of_name(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.jsonl").write_text(lines({"text": "third"}, {"text": "fourth"}))
    (tmp_path / "b" / "1.txt").write_text("second")
    (tmp_path / "c.text").write_text("fifth")
    (tmp_path / "a.md").write_text("first")
    (tmp_path / "picture.png").write_bytes(b"\xff\xfe")
    (tmp_path / "metadata.json").write_text("{}")

    assert list(documents(str(tmp_path))) == ["first", "second", "third", "fourth", "fifth"]


def test_documents_come_one_by_one(tmp_path: Path) -> None:
    """A fault further down costs nothing to those who stop before it."""
    (tmp_path / "a.jsonl").write_text(lines({"text": "fine"}) + "broken")
    stream = documents(str(tmp_path))

    assert next(stream) == "fine"
    with pytest.raises(TextError):
        next(stream)


def test_what_is_wrong_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "pile.jsonl"
    path.write_text(lines({"text": "fine"}, {"title": "a", "body": "b"}))
    assert "text pile.jsonl, line 2: no field text or content with text; it has title, body" in refusal(path)
    path.write_text(lines({"text": None}))
    assert "pile.jsonl, line 1: no field text or content with text; it has text" in refusal(path)
    path.write_text(lines({"text": "fine"}, "bare"))
    assert "pile.jsonl, line 2: no field text or content with text; it has no fields" in refusal(path)
    path.write_text(lines({"text": "fine"}) + "\n" + '{"text": "cut of')
    assert "text pile.jsonl, line 3: not JSON (Unterminated string" in refusal(path)
    path.write_text("[" * 100_000)
    assert "text pile.jsonl, line 1: not JSON (maximum recursion depth" in refusal(path)
    assert "expected one object per line" in refusal(path)


def test_what_is_not_utf8(tmp_path: Path) -> None:
    for name in ("latin.txt", "latin.jsonl"):
        (tmp_path / name).write_bytes('{"text": "für"}'.encode("latin-1"))
        message = refusal(tmp_path / name)
        assert f"text {name}: not UTF-8" in message and "convert it first" in message


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_damaged_archives(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    whole = compress("".join(f"line {number**3}\n" for number in range(3000)).encode())
    path = tmp_path / f"pile.txt{suffix}"
    middle = len(whole) // 2
    for damaged in (whole[:middle], whole[:middle] + b"\xff" * 40 + whole[middle + 40 :], b"not compressed at all"):
        path.write_bytes(damaged)
        assert f"text pile.txt{suffix}: cannot be read (" in refusal(path)


def test_no_text_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "picture.png").touch()

    message = refusal(tmp_path / "empty")
    assert "no text in this directory; expected files ending in .txt, .md, .text, .jsonl, .ndjson" in message
    for text in (
        "./nope.txt",
        "nope.txt",
        "nope.jsonl",
        "nope.json",
        "nope.txt.gz",
        "../nope",
        "/nope/at/all",
        "nope/",
    ):
        assert f"text {text}: no such file or directory; give a local text or a datasets id" in refusal(text)
    assert "empty; give a local text" in refusal("")  # and not whatever lies in the current directory


def test_display_name_is_never_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "pile.jsonl.xz").touch()

    assert display_name(str(tmp_path / "corpus" / "pile.jsonl.xz")) == "pile.jsonl.xz"
    assert display_name(f"{tmp_path}/corpus/") == "corpus"
    assert display_name("/nope/secret/pile.txt") == "pile.txt"
    assert display_name("~/nope/pile.txt") == "pile.txt"
    assert display_name(".") == tmp_path.name
    assert display_name("wikitext") == "Salesforce/wikitext:wikitext-2-raw-v1:test"
    assert display_name("allenai/c4:en:train") == "allenai/c4:en:train"


# ------------------------------------------------------------------------------------------------ data sets by name

SNIPPET = """
import time
from landscape.errors import LandscapeError
from landscape.texts import documents

def outcome(text):
    start = time.monotonic()
    try:
        found = list(documents(text))
    except LandscapeError as error:
        found = f"{type(error).__name__}: {error}"
    return [found, time.monotonic() - start]
"""


def outcomes(address: str, home: Path, *names: str, offline: bool = False, before: str = "") -> list[Any]:
    code = f"{before}\n{SNIPPET}\nreport([outcome(text) for text in {list(names)!r}])"
    found: list[Any] = run(code, address, home, offline=offline)
    return found


@pytest.fixture(scope="module")
def datasets_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """wikitext as the Hub has it, Parquet behind a YAML header, and a data set that is nothing but a JSON file."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    top = tmp_path_factory.mktemp("datasets")
    wikitext = top / "wikitext"
    header = "---\nconfigs:\n"
    for configuration in ("wikitext-103-raw-v1", "wikitext-2-raw-v1"):
        (wikitext / configuration).mkdir(parents=True)
        header += f"- config_name: {configuration}\n  data_files:\n"
        for split in ("test", "train"):
            file = f"{configuration}/{split}-00000-of-00001.parquet"
            pandas.DataFrame({"text": ["", f" = {configuration} = \n", split]}).to_parquet(wikitext / file)
            header += f"  - split: {split}\n    path: {configuration}/{split}-*\n"
    (wikitext / "README.md").write_text(f"{header}---\n\nA data set.\n")
    (top / "web").mkdir()
    (top / "web" / "train.jsonl").write_text(lines({"content": "page 1"}, {"content": "page 2"}))
    (top / "pairs").mkdir()
    (top / "pairs" / "train.jsonl").write_text(lines({"question": "?", "answer": "!"}))
    folders = {"Salesforce/wikitext": wikitext, "org/web": top / "web", "org/pairs": top / "pairs"}
    served = {
        name: {"refs": {"main": commit(name)}, "files": {commit(name): folder}} for name, folder in folders.items()
    }
    with serve({}, served) as hub:
        yield hub


def test_data_sets_of_the_hub(datasets_hub: Hub, tmp_path: Path) -> None:
    short, by_default, web, pairs, split, configuration, unknown, invalid = outcomes(
        datasets_hub.address,
        tmp_path,
        "wikitext",
        "Salesforce/wikitext:wikitext-103-raw-v1",
        "org/web",
        "org/pairs",
        "org/web::validation",
        "Salesforce/wikitext:wikitext-4",
        "org/nothing",
        "a/b/c",
    )

    assert short[0] == ["", " = wikitext-2-raw-v1 = \n", "test"]
    assert by_default[0] == ["", " = wikitext-103-raw-v1 = \n", "train"]
    assert web[0] == ["page 1", "page 2"]
    assert "TextError: text org/pairs: no field text or content with text; it has question, answer" in pairs[0]
    assert "Bad split: validation. Available splits: ['train']" in split[0]
    assert "BuilderConfig 'wikitext-4' not found" in configuration[0]
    assert "TextError: text org/nothing: no such file, and not a data set that can be read here" in unknown[0]
    assert "text a/b/c: no such file, and not a data set" in invalid[0]
    for message, _ in (split, configuration, unknown, invalid):
        assert "\n" not in message
        assert "give a local text, or id[:configuration[:split]] of a data set on the Hub" in message


def test_data_sets_without_the_hub(datasets_hub: Hub, tmp_path: Path) -> None:
    """One line within seconds; what `datasets` has in its own cache is still read when the Hub is switched off."""
    with serve({}) as gone:
        pass
    cache = "import datasets\ndatasets.load_dataset('Salesforce/wikitext', 'wikitext-2-raw-v1')"
    run(f"{cache}\nreport(0)", datasets_hub.address, tmp_path)

    for address, offline, reason in (
        (datasets_hub.address, True, "OfflineModeIsEnabled"),
        (gone.address, False, "(ConnectError: "),
    ):
        names = ("org/web", "wikitext") if offline else ("org/web",)
        (message, seconds), *cached = outcomes(address, tmp_path, *names, offline=offline)
        assert message.startswith("TextError: text org/web: no such file, and not a data set that can be read here")
        assert reason in message and "\n" not in message
        assert seconds < 15
        assert [found for found, _ in cached] == [["", " = wikitext-2-raw-v1 = \n", "test"]] * len(cached)


def test_datasets_is_not_installed(tmp_path: Path) -> None:
    """Local text needs no `datasets`; the name of a data set says which extra brings it."""
    absent = """
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "datasets":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
    (tmp_path / "notes.txt").write_text("a note")
    local, missing = outcomes("http://127.0.0.1:9", tmp_path, str(tmp_path / "notes.txt"), "wikitext", before=absent)

    assert local[0] == ["a note"]
    assert missing[0].startswith("MissingExtraError: reading the data set wikitext needs the package datasets")
    assert "landscape[text]" in missing[0]
