"""Pages served to this machine alone, drawn again as their results change."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from landscape.errors import LandscapeError, OptionError
from landscape.viewing import Site

if TYPE_CHECKING:
    pass

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
