"""Code blocks of the documentation: found in its pages, and run.

    python docs/_tools/blocks.py --only quickstart

A block says in its first line what it is. ```bash and ```python are run, those of a page in their order and in one copy
of the repository; ```bash rehearse is for what takes hours or hardware, and is parsed by the commands themselves;
```julia, ```matlab and ```r are run where there is such an interpreter. ```yaml has to be YAML, and is a file where it
has a title. ```text and ```math are no code. A block that says nothing is a mistake.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from workshop import ROOT, Workshop, workshop

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<about>.*)$")
_TITLE = re.compile(r'title="([^"/]+)"')  # a file that is there before the page's first block
_NO_CODE = ("text", "math")
_ELSEWHERE = {"julia": ["julia", "-"], "r": ["Rscript", "-"], "matlab": ["matlab", "-nodisplay", "-nosplash"]}
_SLOW = 10.0  # seconds of a block that are worth a line
_LONGEST = 300.0  # seconds of a block
_DRIVER = """
import json, sys, traceback
space = {"__name__": "__main__"}
for line in sys.stdin:
    try:
        exec(compile(json.loads(line), "<block>", "exec"), space)
        sys.stdout.flush()
        print("\\0done", flush=True)
    except BaseException:
        print(traceback.format_exc(), "\\0failed", sep="\\n", flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, the words after the fence, the lines in it."""

    page: Path
    line: int
    about: tuple[str, ...]
    code: str

    @property
    def language(self) -> str:
        """The first word."""
        return self.about[0] if self.about else ""

    @property
    def rehearsed(self) -> bool:
        """Whether its commands are parsed and not run."""
        return "rehearse" in self.about

    def __str__(self) -> str:
        return f"{named(self.page)}:{self.line}"


@dataclass
class Ran:
    """What became of the blocks of a page."""

    page: Path
    run: int = 0
    rehearsed: int = 0
    absent: list[str] = field(default_factory=list)  # languages without an interpreter here
    slow: list[str] = field(default_factory=list)
    seconds: float = 0.0
    failure: str = ""


def named(page: Path) -> str:
    """Its path from the repository."""
    return os.path.relpath(page, ROOT)


def pages() -> list[Path]:
    """Every page of the documentation, and those that GitHub shows."""
    others = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_tools" not in path.parts]
    return [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + others


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page.

    Raises:
        ValueError: a fence that is not closed.
    """
    begun: re.Match[str] | None = None
    start, lines = 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        match = _FENCE.match(line)
        if begun is None and match:
            begun, start, lines = match, number, []
        elif begun is not None and match and match["ticks"] == begun["ticks"] and not match["about"].strip():
            yield Block(page, start, tuple(begun["about"].split()), "\n".join(lines) + "\n")
            begun = None
        elif begun is not None:
            lines.append(line.removeprefix(begun["indent"]))
    if begun is not None:
        raise ValueError(f"{page}:{start}: a block that does not end")


def run_page(page: Path, shop: Workshop) -> Ran:
    """Run the blocks of a page in a copy of their own."""
    found, began = Ran(page), time.monotonic()
    with shop.copy() as folder, _Python(folder, shop.environment(folder)) as python:
        for block in blocks(page):
            for name in _TITLE.findall(" ".join(block.about)):
                (folder / name).write_text(block.code, encoding="utf-8")
        for block in blocks(page):
            since = time.monotonic()
            why = _run(block, folder, shop, python, found)
            if (took := time.monotonic() - since) > _SLOW:
                found.slow.append(f"{block}  {took:.0f} s")
            if why:
                found.failure = f"{block}\n\n{block.code}\n{why}"
                break
    found.seconds = time.monotonic() - began
    return found


def _run(block: Block, folder: Path, shop: Workshop, python: _Python, found: Ran) -> str:
    """Why a block failed; nothing where it did not."""
    language = block.language
    if language in _NO_CODE:
        return ""
    if language == "yaml":
        found.run += 1
        try:
            yaml.safe_load(block.code)
        except yaml.YAMLError as error:
            return str(error)
        return ""
    if language == "python":
        found.run += 1
        return python.run(block.code)
    if language == "bash":
        found.rehearsed += block.rehearsed
        found.run += not block.rehearsed
        return _shell(["bash", "-euo", "pipefail"], block.code, folder, shop.environment(folder, block.rehearsed))
    if language in _ELSEWHERE:
        if shutil.which(_ELSEWHERE[language][0]) is None:
            found.absent.append(language)
            return ""
        found.run += 1
        return _shell(_ELSEWHERE[language], block.code, folder, shop.environment(folder))
    return f"```{language}: expected bash, python, yaml, text, math, {', '.join(_ELSEWHERE)}"


def _shell(command: list[str], code: str, folder: Path, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            input=code,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LONGEST,
        )
    except subprocess.TimeoutExpired:
        return f"longer than {_LONGEST:.0f} s"
    return "" if done.returncode == 0 else f"{done.stdout}\nexit code {done.returncode}"


class _Python:
    """One interpreter for the Python blocks of a page, begun with the first."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> _Python:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def run(self, code: str) -> str:
        """Why `code` failed; nothing where it did not."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", _DRIVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=self._folder,
                env=dict(self._environment),
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        said = []
        for line in self._process.stdout:
            if line in ("\0done\n", "\0failed\n"):
                return "" if line == "\0done\n" else "".join(said)
            said.append(line)
        return "".join(said) + f"\nexit code {self._process.wait()}"


def main() -> int:
    """Run all blocks, or those of some pages; print what was run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="pages whose path has one of these words, with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="pages at a time")
    options = parser.parse_args()
    wanted = [page for page in pages() if any(word in named(page) for word in options.only.split(","))]
    if not wanted:
        parser.error(f"--only {options.only}: no page has that in its path")
    console = Console()
    table = Table("page", "run", "rehearsed", "not here", "s", box=None)
    failures = []
    with (
        tempfile.TemporaryDirectory(prefix="landscape-docs-") as folder,
        workshop(Path(folder)) as shop,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        for ran in pool.map(lambda page: run_page(page, shop), wanted):
            name = named(ran.page)
            console.print(f"{'failed' if ran.failure else 'ran'}  {name}", highlight=False)
            for line in ran.slow:
                console.print(f"     {line}", highlight=False)
            table.add_row(name, str(ran.run), str(ran.rehearsed), " ".join(ran.absent), f"{ran.seconds:.0f}")
            if ran.failure:
                failures.append(name)
                print(f"\n{ran.failure}\n", flush=True)
    console.print(table)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
