"""Pages served to this machine alone, drawn again as their results change; and what a person sees of `view`."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from landscape import interrupts
from landscape.config import ViewConfig
from landscape.errors import LandscapeError, OptionError
from landscape.reporting import Reporter
from landscape.viewing import Site, Viewed, is_alone, site_of, view_results

if TYPE_CHECKING:
    from rich.console import Console

HOST = "127.0.0.1"
_EVERY = 1.0  # seconds between two looks at the results
_KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".pdf": "application/pdf"}
_OWN_NAMES = (HOST, "localhost")
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


class PageServer(ThreadingHTTPServer):
    """Files of one folder, on loopback."""

    daemon_threads = True

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__((HOST, port), _Handler)
        self.folder = folder.resolve()

    @property
    def address(self) -> str:
        """Of the index."""
        return f"http://{HOST}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the files that lie in the folder."""

    server: PageServer
    server_version = "landscape"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a page asks every second."""

    def _answer(self, body: bool) -> None:
        # a page elsewhere whose name was made to point here (DNS rebinding) does not get to read the results
        if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in _OWN_NAMES:
            return self.send_error(HTTPStatus.FORBIDDEN)
        try:
            path = self._file()
            with open(os.open(path, os.O_RDONLY | _NO_LINKS), "rb") as file:
                about, content = os.fstat(file.fileno()), file.read()
        except (OSError, ValueError):
            return self.send_error(HTTPStatus.NOT_FOUND)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _KINDS[path.suffix])
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", formatdate(about.st_mtime, usegmt=True))
        self.send_header("ETag", f'"{about.st_mtime_ns:x}-{about.st_size:x}"')
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if body:
            with contextlib.suppress(ConnectionError):  # the reader has gone on
                self.wfile.write(content)

    def _file(self) -> Path:
        """The page, script or figure asked for.

        Raises:
            OSError: it is none of these, or not within the folder.
        """
        asked = unquote(urlsplit(self.path).path).removeprefix("/") or "index.html"
        parts = asked.split("/")
        if "\0" in asked or "\\" in asked or any(not part or part.startswith(".") for part in parts):
            raise FileNotFoundError
        path = self.server.folder.joinpath(*parts)
        if path.suffix not in _KINDS or path.resolve() != path or not path.is_file():  # a link would lead elsewhere
            raise FileNotFoundError
        return path


def bind(port: int, folder: Path) -> PageServer:
    """A server of `folder` that holds its port and does not answer yet.

    Raises:
        OptionError: the port cannot be had.
    """
    try:
        return PageServer(port, folder)
    except OSError as error:
        why = "in use by another program" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
        raise OptionError(f"--serve {port}: {why}; name another port, or 0 for any that is free") from error


def follow(site: Site, stop: Callable[[float], bool], say: Callable[[str], None] = lambda text: None) -> None:
    """Draw again what changed, until `stop`, which waits for some seconds, is true; `say` hears what goes wrong."""
    last, wait = "", _EVERY
    while not stop(wait):
        began, wrong = time.monotonic(), ""
        try:
            site.draw()
        except LandscapeError as error:  # results that went away may come back
            wrong = str(error)
        if wrong and wrong != last:
            say(wrong)
        last, wait = wrong, max(_EVERY, time.monotonic() - began)  # half of a processor at most


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
    from rich.text import Text

    from landscape.terminal import shown

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
