"""Which pages a folder of results gets: one a slice, one a study, one for each group of slices that belong together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from landscape.curvature.store import StoredSharpness
from landscape.errors import StoreError
from landscape.slices.stored import StoredSlice
from landscape.viewer.described import contents as cards
from landscape.viewer.described.contents import Card
from landscape.viewing.contents import Content, Study
from landscape.viewing.find import Source
from landscape.viewing.names import page_names

_MOST = 24  # slices on one page: more can be neither seen nor mailed

Draw = Callable[[bool, bool, str], str]  # beside, live, up
Figure = Callable[[Path], object]  # draws at a path without suffix


@dataclass(frozen=True)
class Page:
    """One page, or a card alone.

    Attributes:
        name: without suffix.
        place: the file or folder behind it.
        address: NAME.html; empty where there is a card and no page.
        stamp: changes with everything that is drawn on it.
        up: (address, words) of the pages it belongs to, besides the index.
    """

    name: str
    place: str
    address: str
    card: Card
    stamp: Any
    draw: Draw
    figure: Figure | None
    up: tuple[tuple[str, str], ...] = ()

    @property
    def file(self) -> str:
        """The page's file, or what stands for it where there is none."""
        return self.address or self.name


@dataclass(frozen=True)
class Results:
    """What was read, what changes with it, and cards of it without addresses."""

    contents: Mapping[Source, Content]
    stamps: Mapping[Source, Any]
    cards: Mapping[Source, Card]

    @cached_property
    def slices(self) -> Mapping[Source, StoredSlice]:
        """The slices among it."""
        return {source: each for source, each in self.contents.items() if isinstance(each, StoredSlice)}


def card_of(source: Source, content: Content) -> Card:
    """The card of `content`, before it is known where its page is.

    Raises:
        StoreError: something is missing in it.
    """
    try:
        return _card(source, content)
    except Exception as error:  # such as files of other versions
        raise StoreError(f"{source.path}: cannot be shown ({type(error).__name__}: {error})") from error


def _card(source: Source, content: Content) -> Card:
    if isinstance(content, StoredSlice):
        return cards.slice_card(content, "", source.place)
    if isinstance(content, Study):
        made = datetime.fromtimestamp(source.stamp[0] / 1e9, UTC).isoformat(timespec="seconds")
        folder = source.place.rpartition("/")[0]
        return cards.study_card(source.path.parent.name, content.rows, "", folder or source.place, made)
    if isinstance(content, StoredSharpness):
        return cards.sharpness_card(content, source.place)
    return cards.evaluation_card(content, source.place)


def planned(results: Results) -> list[Page]:
    """The pages of `results`, those that compare first."""
    groups = _groups(results.slices)
    names = page_names([*(source.place for source in results.contents), *groups])
    made = {
        source: replace(card, address=f"{names[source.place]}.html") if _has_page(results.contents[source]) else card
        for source, card in results.cards.items()
    }
    up = {source: (f"{names[place]}.html", "Side by side") for place, group in groups.items() for source in group}
    pages = [_compared(place, group, results, made, names[place]) for place, group in groups.items()]
    for source, content in results.contents.items():
        name, card = names[source.place], made[source]
        if isinstance(content, StoredSlice):
            pages.append(_slice(source, content, card, name, results.stamps[source], up.get(source)))
        elif isinstance(content, Study):
            slices = {each: (stored, made[each].address) for each, stored in results.slices.items()}
            pages.append(_study(source, content, card, name, results, slices))
        else:
            pages.append(_measurement(source, content, card, name, results.stamps[source]))
    return pages


def study_figure(study: Study, title: str) -> Figure:
    """Draws the study, a figure a view, into a folder."""

    def draw(path: Path) -> object:
        from landscape.viewer.printed.trajectory import write_course

        return write_course(study.course(title, ()), path)

    return draw


def _groups(slices: Mapping[Source, StoredSlice]) -> dict[str, list[Source]]:
    """Slices that belong together, two and more, by the place that their page is named after.

    Together are planes of one folder that are of one kind (through checkpoints, of random directions, …) and evaluated
    on the same tokens: losses on other texts do not compare, and the axes of another kind mean something else.
    """
    found: dict[tuple[str, str, str], list[Source]] = {}
    for source, stored in slices.items():
        a = stored.attributes
        if not stored.is_line:
            tokens = a.get("tokens_fingerprint") or f"{a.get('text')} {a.get('eval_tokens')}"
            found.setdefault((source.place.rpartition("/")[0], str(a.get("plane")), str(tokens)), []).append(source)
    groups = {}
    for (folder, plane, tokens), group in found.items():
        for first in range(0, len(group), _MOST):
            part = group[first : first + _MOST]
            if len(part) > 1:
                groups[f"{folder}/compare {plane} {tokens[:8]} {first // _MOST or ''}".rstrip()] = part
    return groups


def _has_page(content: Content) -> bool:
    return isinstance(content, StoredSlice | Study)


def _compared(place: str, group: Sequence[Source], results: Results, made: Mapping[Source, Card], name: str) -> Page:
    folder, stored = place.rpartition("/")[0], [results.slices[source] for source in group]
    title = f"{folder.rpartition('/')[2] or 'Slices'}: {len(group)} slices, {cards.plane_words(stored[0])}"
    labels = _told_apart([made[source].title for source in group], group)
    entries = [(label, each, made[source].address) for label, each, source in zip(labels, stored, group, strict=True)]

    def draw(beside: bool, live: bool, up: str) -> str:
        from landscape.viewer.pages.compare import compare_page

        return compare_page(title, entries, beside=beside, live=live, up=up)

    def figure(path: Path) -> None:
        from landscape.viewer.printed.compare import write_comparison

        write_comparison(title, entries, _pdf(path))

    address = f"{name}.html"
    card = cards.comparison_card(title, [made[source] for source in group], address, folder)
    stamp = [title, *((source.place, results.stamps[source], made[source].address) for source in group)]
    return Page(name, folder, address, card, stamp, draw, figure)


def _slice(source: Source, stored: StoredSlice, card: Card, name: str, stamp: Any, up: tuple[str, str] | None) -> Page:
    def draw(beside: bool, live: bool, up: str) -> str:
        from landscape.viewer.pages.slice import slice_page

        return slice_page(stored, beside=beside, live=live, up=up)

    def figure(path: Path) -> None:
        from landscape.viewer.printed.slice import CONTOUR, views, write_figure

        for view in views(stored):
            of = path if view == CONTOUR else path.with_name(f"{path.name}-{view}")
            write_figure(stored, _pdf(of), view)

    links = (up,) if up else ()
    return Page(name, source.place, card.address, card, [source.place, stamp, links], draw, figure, links)


def _study(
    source: Source,
    study: Study,
    card: Card,
    name: str,
    results: Results,
    slices: Mapping[Source, tuple[StoredSlice, str]],
) -> Page:
    def draw(beside: bool, live: bool, up: str) -> str:
        from landscape.viewer.pages.trajectory import trajectory_page

        course = study.course(card.title, list(slices.values()))
        return trajectory_page(course, beside=beside, live=live, up=up)

    drawn = [
        (results.stamps[each], address)
        for each, (stored, address) in slices.items()
        if str(stored.attributes.get("model_identity")) in study.identities
    ]
    stamp = [source.place, results.stamps[source], drawn]
    return Page(name, card.place, card.address, card, stamp, draw, study_figure(study, card.title))


def _measurement(source: Source, content: Content, card: Card, name: str, stamp: Any) -> Page:
    def draw(path: Path) -> None:
        from landscape.viewer.printed.spectrum import write_spectrum

        assert isinstance(content, StoredSharpness)
        write_spectrum(content, _pdf(path))

    has_figure = isinstance(content, StoredSharpness) and "density" in content.sections
    stamp = [source.place, stamp]
    return Page(name, source.place, "", card, stamp, lambda *_: "", draw if has_figure else None)


def _told_apart(titles: Sequence[str], group: Sequence[Source]) -> list[str]:
    """The slices' titles, with the file where two have the same."""
    return [
        title if titles.count(title) == 1 else f"{title} ({source.path.stem})"
        for title, source in zip(titles, group, strict=True)
    ]


def _pdf(path: Path) -> Path:
    return path.with_name(f"{path.name}.pdf")  # names hold points
