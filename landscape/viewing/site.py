"""A folder of pages: an index, a page a result, and one script for all. What did not change is not drawn again."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from landscape.errors import LandscapeError, OptionError, StoreError
from landscape.reporting import Reporter, Silent
from landscape.storage.files import write_whole
from landscape.viewer.described.contents import Card
from landscape.viewer.pages.contents import contents_page
from landscape.viewer.pages.frame import SCRIPT, script
from landscape.viewing.contents import Reader, reason, stamps_of
from landscape.viewing.find import MANIFEST, Source, look
from landscape.viewing.plan import Page, Results, card_of, planned

INDEX = "index.html"
FIGURES = "figures"
_EVERYTHING = "all sources"  # in a manifest, beside the names of pages


@dataclass(frozen=True)
class Viewed:
    """What was made.

    Attributes:
        page: where to begin: the index, or the page that stands alone.
        drawn, kept: pages drawn, and those that had not changed.
        figures: how many there are; None where none were asked for.
        unreadable: (place, reason) of files that could not be read or drawn.
        alone: whether there is this one page.
    """

    page: Path
    drawn: int
    kept: int
    figures: int | None = None
    unreadable: tuple[tuple[str, str], ...] = ()
    alone: bool = False


@dataclass
class Site:
    """The pages of `named`, in the folder `out`; `live` ones look for newer ones of themselves."""

    named: Sequence[Path]
    out: Path
    live: bool = False
    figures: bool = False
    _reader: Reader = field(default_factory=Reader)

    def draw(self, reporter: Reporter | None = None) -> Viewed:
        """Draw what changed since these pages were last drawn, here or by another process.

        Raises:
            StoreError: a path that is not there, nothing that can be shown, or a place that cannot be written.
            OptionError: the folder holds an index that is not ours.
        """
        reporter = reporter or Silent()
        before, sources = _manifest(self.out), look(self.named, self.out)
        everything = self._digest([(each.place, stamps_of(each)) for each in sources])
        if before.get(_EVERYTHING) == everything and all(
            (self.out / name).is_file() for name in (*_pages(before), SCRIPT)
        ):
            return self._viewed(0, len(_pages(before)) - 1)
        results, unreadable = self._results(sources)
        if not results.contents:
            raise StoreError(f"{', '.join(map(str, self.named))}: {_nothing(unreadable)}")
        pages = planned(results)
        fresh = {page.file: self._digest(page.stamp) for page in pages}
        stale = [page for page in pages if before.get(page.file) != fresh[page.file] or self._missing(page)]
        update = reporter.stage("pages")
        for done, page in enumerate(stale):
            update(done, len(stale))
            reporter.say(f"page of {page.place}")
            if (said := self._draw(page)) is not None:
                unreadable.append((page.place, said))
                del fresh[page.file]
        reporter.say("pages")
        cards = [page.card for page in pages if page.file in fresh]
        fresh[INDEX] = self._digest([*sorted(unreadable), *((page.file, page.stamp) for page in pages)])
        if before.get(INDEX) != fresh[INDEX] or not all((self.out / name).is_file() for name in (INDEX, SCRIPT)):
            self._write_index(cards, unreadable)
        drawn = len(_pages({page.file: "" for page in stale if page.file in fresh}))
        viewed = self._viewed(drawn, len(_pages(fresh)) - 1 - drawn, tuple(unreadable))
        if not unreadable:  # else they are tried again
            fresh[_EVERYTHING] = everything
        self._clean(before, fresh)
        return viewed

    def _viewed(self, drawn: int, kept: int, unreadable: tuple[tuple[str, str], ...] = ()) -> Viewed:
        figures = len(list((self.out / FIGURES).rglob("*.pdf"))) if self.figures else None
        return Viewed(self.out / INDEX, drawn, kept, figures, unreadable)

    def _results(self, sources: Sequence[Source]) -> tuple[Results, list[tuple[str, str]]]:
        contents, stamps, cards, unreadable = {}, {}, {}, []
        for source in sources:
            try:
                stamp, content = self._reader.read(source)
                card = card_of(source, content)
            except LandscapeError as error:
                unreadable.append((source.place, reason(error, source)))
            else:
                stamps[source], contents[source], cards[source] = stamp, content, card
        return Results(contents, stamps, cards), unreadable

    def _draw(self, page: Page) -> str | None:
        """Draw `page`; what went wrong, in a line, where something did: one odd file must not cost all other pages."""
        if page.address:
            try:
                text = page.draw(True, self.live, _up(page.up))
            except LandscapeError as error:
                return str(error)
            except Exception as error:
                return f"cannot be drawn ({type(error).__name__}: {error})"
            write_whole(self.out / page.address, text.encode(errors="replace"))
        if self.figures and page.figure is not None:
            try:
                page.figure(self.out / FIGURES / page.name)
            except StoreError:
                raise  # the disk
            except Exception as error:
                return f"its figure cannot be drawn ({type(error).__name__}: {error})"
        return None

    def _missing(self, page: Page) -> bool:
        return bool(page.address) and not (self.out / page.address).is_file()

    def _write_index(self, cards: Sequence[Card], unreadable: Sequence[tuple[str, str]]) -> None:
        shared = self.out / SCRIPT
        if not shared.is_file() or shared.read_bytes() != script():
            write_whole(shared, script())
        name = " and ".join(dict.fromkeys(path.resolve().name or str(path) for path in self.named))
        write_whole(self.out / INDEX, contents_page(name, cards, unreadable, live=self.live).encode(errors="replace"))

    def _clean(self, before: Mapping[str, str], fresh: Mapping[str, str]) -> None:
        """Remove pages whose results are gone, and remember what is there now."""
        for name in set(_pages(before)) - fresh.keys():
            if Path(name).name == name:
                (self.out / name).unlink(missing_ok=True)
        if fresh != before:
            write_whole(self.out / MANIFEST, json.dumps(fresh, indent=1, sort_keys=True).encode())

    def _digest(self, stamp: Any) -> str:
        told = json.dumps([stamp, _software(), self.live, self.figures], sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).hexdigest()


def _manifest(out: Path) -> dict[str, str]:
    """What was drawn in `out` from what, by page."""
    path = out / MANIFEST
    if not path.exists():
        if (out / INDEX).exists():
            raise OptionError(f"{out / INDEX}: not made by 'landscape view'; name another folder with --out")
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(digest) for name, digest in found.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}  # damaged: all is drawn again


def _pages(manifest: Mapping[str, str]) -> list[str]:
    """Names of the files in it, the index among them."""
    return [name for name in manifest if name.endswith(".html")]


def _nothing(unreadable: Sequence[tuple[str, str]]) -> str:
    if unreadable:
        place, why = unreadable[0]
        return f"nothing in it can be shown; {place}: {why}"
    return (
        "no result in it; expected slices or measurements (.h5) as 'landscape slice' and 'landscape sharpness' write "
        "them, evaluations (.json) or the study.parquet of 'landscape study'"
    )


def _up(links: Sequence[tuple[str, str]]) -> str:
    made = (
        f'<a href="{html.escape(address)}">{html.escape(words)}</a>'
        for address, words in (*links, (INDEX, "All results"))
    )
    return f'<nav class="up" aria-label="Pages of this folder">{" · ".join(made)}</nav>'


@cache
def _software() -> str:
    """A hash over what draws: another version of it draws everything again."""
    digest = hashlib.sha256()
    for folder in ("viewer", "viewing"):
        _add(resources.files("landscape").joinpath(folder), digest.update)
    return digest.hexdigest()


def _add(folder: Any, update: Callable[[bytes], None]) -> None:
    for each in sorted(folder.iterdir(), key=lambda item: str(item.name)):
        if each.is_dir() and each.name != "__pycache__":
            _add(each, update)
        elif each.name.endswith((".py", ".js", ".css", ".html")):
            update(each.read_bytes())
