"""What a person sees of `view`: where the pages are; opened, or served until Ctrl-C."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from landscape.config import ViewConfig
from landscape.machine import interrupts
from landscape.reporting import Reporter
from landscape.terminal.progress import shown
from landscape.viewing import Site, Viewed, is_alone, site_of, view_results
from landscape.viewing.serving import PageServer, bind, follow


def begin(config: ViewConfig, reporter: Reporter) -> Callable[[Console], None]:
    """Draw what `config` names; what is to be done then: say where it is, open it, serve it until Ctrl-C.

    Raises:
        LandscapeError: as `view_results` and `bind` do.
    """
    if config.serve is None:
        viewed = view_results(config, reporter)
        return lambda console: _finish(config, viewed, console)
    # One file has no folder for its pages; they go when the server does.
    passing = tempfile.TemporaryDirectory(prefix="landscape-view-") if is_alone(config) and not config.out else None
    site = site_of(config, Path(passing.name) if passing else None)
    server = bind(config.serve, site.out)
    try:
        viewed = site.draw(reporter)
    except BaseException:
        server.server_close()
        raise

    def serve(console: Console) -> None:
        with passing or contextlib.nullcontext():
            _serve(config, site, server, viewed, console)

    return serve


def _serve(config: ViewConfig, site: Site, server: PageServer, viewed: Viewed, console: Console) -> None:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        _say(viewed, console)
        console.print(f"[bold green]serving[/] {server.address}  until Ctrl-C, to this machine alone", soft_wrap=True)
        _open(config, server.address, console)
        with interrupts.heard():
            follow(site, threading.Event().wait, lambda wrong: console.print(wrong, style="yellow", markup=False))
    except KeyboardInterrupt:
        console.print()
    finally:
        server.shutdown()
        server.server_close()


def _finish(config: ViewConfig, viewed: Viewed, console: Console) -> None:
    _say(viewed, console)
    _open(config, viewed.page.resolve().as_uri(), console)


def _say(viewed: Viewed, console: Console) -> None:
    for place, why in viewed.unreadable:
        console.print(Text.assemble(("note    ", "yellow"), f"{place}: {why}"), soft_wrap=True)
    count = "" if viewed.alone else f"  ({_pages(viewed.drawn)} drawn, {viewed.kept} as they were)"
    word = "page" if viewed.alone else "index"
    console.print(Text.assemble((f"{word:<8}", "bold green"), shown(viewed.page), count), soft_wrap=True)
    if viewed.figures is not None:
        where = shown(viewed.page.parent / "figures")
        console.print(Text.assemble(("figures ", "bold green"), where, f"  ({viewed.figures} PDF)"), soft_wrap=True)


def _pages(count: int) -> str:
    return f"{count} page" if count == 1 else f"{count} pages"


def _open(config: ViewConfig, address: str, console: Console) -> None:
    if not config.open:
        return
    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        console.print(f"no browser found here; open {address}", soft_wrap=True, markup=False, highlight=False)
