"""The job: paths in; a page that stands alone, or a folder of pages, out."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from landscape.config import ViewConfig
from landscape.errors import LandscapeError, OptionError
from landscape.reporting import Reporter, Silent
from landscape.slices.stored import StoredSlice
from landscape.storage.files import reading, write_whole
from landscape.viewer.pages.contents import contents_page
from landscape.viewing.contents import Reader, Study
from landscape.viewing.find import HDF5, look
from landscape.viewing.plan import Figure, Results, card_of, planned, study_figure
from landscape.viewing.site import Site, Viewed

_BELOW = "pages"
_ELSEWHERE = Path("figures/view")
_HTML = (".html", ".htm")


def view_results(config: ViewConfig, reporter: Reporter | None = None) -> Viewed:
    """Draw the results that `config` names.

    Raises:
        StoreError: a path that is not there, nothing that can be shown, or a place that cannot be written.
        OptionError: a page as --out of several results, or a folder whose index is not ours.
    """
    if is_alone(config):
        return _draw_alone(config, reporter or Silent())
    return site_of(config).draw(reporter)


def is_alone(config: ViewConfig) -> bool:
    """Whether one file is named, which gets one page."""
    return len(config.paths) == 1 and not Path(config.paths[0]).expanduser().is_dir()


def site_of(config: ViewConfig, out: Path | None = None) -> Site:
    """The folder of pages of `config`, at `out` or where it says; nothing is drawn yet.

    Raises:
        OptionError: --out names a page or a file.
    """
    named = [Path(path).expanduser() for path in config.paths]
    where = out or config.out or _default(named)
    if where.suffix.lower() in _HTML or where.is_file():
        why = "pages are served from a folder" if is_alone(config) else "several results give a folder of pages"
        raise OptionError(f"--out {where}: {why}; expected a folder")
    return Site(named, where, live=config.serve is not None, figures=config.figures)


def _default(named: list[Path]) -> Path:
    """Beside the results, as a slice's own page is."""
    if len(named) == 1 and named[0].is_dir():
        below = named[0] / _BELOW
        if os.access(below if below.exists() else named[0], os.W_OK):
            return below
    return _ELSEWHERE


def _draw_alone(config: ViewConfig, reporter: Reporter) -> Viewed:
    """One page, with its script within."""
    named = Path(config.paths[0]).expanduser()
    (source,), reader = look([named]), Reader()
    out = config.out or named.with_suffix(".html")
    if out.suffix.lower() not in _HTML:
        if out.suffix or out.is_file():
            raise OptionError(f"--out {out}: expected a page, NAME.html, or a folder for it")
        out = out / f"{named.stem}.html"
    update = reporter.stage(f"page of {named.name}")
    stamps, content = reader.read(source)
    with reading(named, "make it anew"):  # what fits no page, wherever that shows
        if isinstance(content, Study):
            folder = source.path.parent
            text = _study_page(content, folder, reader)
            figure: Figure | None = study_figure(content, folder.name)
        else:
            (page,) = planned(Results({source: content}, {source: stamps}, {source: card_of(source, content)}))
            figure = page.figure
            text = page.draw(False, False, "") if page.address else contents_page(named.name, [page.card], beside=False)
    write_whole(out, text.encode(errors="replace"))
    if config.figures and figure is not None:
        with reading(named, "leave --figures out"):
            figure(out.with_suffix(""))
    update(1, 1)
    return Viewed(out, drawn=1, kept=0, alone=True)


def _study_page(study: Study, folder: Path, reader: Reader) -> str:
    """With the slices in its folder, which have no pages of their own."""
    from landscape.viewer.pages.trajectory import trajectory_page

    slices = []
    for source in look([folder]):
        with suppress(LandscapeError):
            content = reader.read(source)[1] if source.kind == HDF5 else None
            slices += [(content, "")] if isinstance(content, StoredSlice) else []
    return trajectory_page(study.course(folder.name, slices))
