"""`landscape view --serve`: a process that serves its pages to this machine alone, while a slice grows."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from viewer_browser import launched
from viewer_slices import ATTRIBUTES, Recipe

GROWS = (  # a writer in a process of its own, slow, that waits half-way to be told to go on
    "import sys, time; sys.path.insert(0, {tests!r}); from pathlib import Path; from viewer_slices import *\n"
    "told, done = Path({told!r}), []\n"
    "def slow(a, b):\n"
    "    done.append(time.sleep(0.01))\n"
    "    while len(done) > 90 and not told.exists(): time.sleep(0.05)\n"
    "    return bowl(a, b)\n"
    "Recipe(loss=slow, grid=(12, 16), attributes=ATTRIBUTES | {{'title': 'grows'}}).make(Path({path!r}))"
)


@dataclass
class Served:
    """The running command, its results and its pages."""

    process: subprocess.Popen[str]
    results: Path
    out: Path
    port: int

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers in small letters, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return found


def comes(true: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.1)
    return False


@contextlib.contextmanager
def serving(results: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "landscape", "view", str(results), "--serve", "0", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a test run in the background hands on SIGINT as ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def address_of(process: subprocess.Popen[str]) -> int:
    """The port, which the command prints once it answers."""
    assert process.stdout is not None
    for text in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/", text):
            return int(found[1])
    raise AssertionError(process.communicate())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    results, out = folder / "results", folder / "site"
    results.mkdir()
    Recipe().make(results / "first.h5")
    with serving(results, "--out", str(out)) as process:
        yield Served(process, results, out, address_of(process))


def test_pages_are_served_and_never_kept(served: Served):
    status, headers, body = served.ask("/")
    assert status == 200 and b"first.h5" in body
    assert headers["cache-control"] == "no-store" and headers["content-type"] == "text/html; charset=utf-8"
    changed = (served.out / "index.html").stat().st_mtime
    assert parsedate_to_datetime(headers["last-modified"]).timestamp() == int(changed)
    again = served.ask("/index.html", "HEAD")
    assert again[0] == 200 and again[2] == b"" and again[1]["etag"] == headers["etag"]
    assert again[1]["content-length"] == str(len(body))
    assert served.ask("/landscape.js?x#y")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../results/first.h5",
        "/%2e%2e/secret.html",
        "/..%2fsecret.html",
        "/..%5csecret.html",
        "//etc/passwd",
        "/.landscape-view.json",
        "/linked.html",
        "/folder/secret.html",
        "/data.h5",
        "/missing.html",
        "/figures/",
        "/%00.html",
        f"/{'a' * 5000}.html",
    ],
)
def test_nothing_but_pages_of_this_folder(served: Served, path: str):
    secret = served.out.parent / "secret.html"
    secret.write_text("secret")
    with contextlib.suppress(FileExistsError):
        (served.out / "linked.html").symlink_to(secret)
        (served.out / "folder").symlink_to(served.out.parent)
        (served.out / "figures").mkdir()
    shutil.copy(served.results / "first.h5", served.out / "data.h5")
    status, _, body = served.ask(path)
    assert status == 404 and b"secret" not in body.replace(b"secret.html", b"")


def test_only_this_machine_is_answered(served: Served):
    assert served.ask("/", Host="evil.example")[0] == 403
    assert served.ask("/", Host=f"localhost:{served.port}")[0] == 200
    assert served.ask("/", "POST")[0] == 501
    own = socket.gethostbyname(socket.gethostname())
    if not own.startswith("127."):
        with pytest.raises(OSError):
            socket.create_connection((own, served.port), timeout=5).close()


def test_a_new_slice_and_a_broken_one_come_up(served: Served):
    """Files that are no slices yet, or no longer, neither stop the server nor take away what was there."""
    half = served.results / "half.h5"
    half.write_bytes((served.results / "first.h5").read_bytes()[:3000])
    assert comes(lambda: b"half.h5</b>: not a whole HDF5 file" in served.ask("/")[2])
    assert b"first.h5" in served.ask("/")[2]
    half.unlink()
    Recipe(attributes=ATTRIBUTES | {"title": "a second one"}).make(served.results / "second.h5")
    assert comes(lambda: b"a second one" in served.ask("/")[2] and b"1 comparison" in served.ask("/")[2])
    whole = (served.results / "second.h5").read_bytes()
    (served.results / "second.h5").write_bytes(whole[:3000])
    time.sleep(2.5)
    assert b"a second one" in served.ask("/")[2]
    (served.results / "second.h5").unlink()
    assert comes(lambda: b"a second one" not in served.ask("/")[2])
    assert served.process.poll() is None


def test_a_port_in_use_is_one_line(served: Served, landscape):
    code, out, err = landscape("view", served.results, "--serve", served.port)
    assert (code, out) == (2, "")
    assert f"landscape: --serve {served.port}: in use by another program; name another port, or 0" in err
    assert not (served.results / "pages").exists()


@pytest.mark.browser
def test_a_slice_grows_under_the_readers_eyes(served: Served, tmp_path: Path):
    told = tmp_path / "told"
    writer = GROWS.format(tests=str(Path(__file__).parent), path=str(served.results / "grows.h5"), told=str(told))
    process = subprocess.Popen([sys.executable, "-c", writer], stderr=subprocess.PIPE, text=True)
    try:
        assert comes(lambda: b'href="grows-' in served.ask("/")[2], 60), process.poll()
        name = re.search(rb'href="(grows-[0-9a-f]+\.html)"', served.ask("/")[2])
        assert name is not None
        with launched() as browser:
            page = browser.new_page(viewport={"width": 1000, "height": 500})
            complaints: list[str] = []
            page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"http://127.0.0.1:{served.port}/{name[1].decode()}")
            assert ended(page, "document.documentElement.dataset.drawn === 'all'")
            assert page.locator(".trust b").inner_text() == "Unfinished"
            assert ended(page, "landscape.choose({theme: 'dark'}), scrollTo(0, 300), location.hash === '#theme=dark'")
            told.touch()
            assert ended(page, "!document.querySelector('.trust').textContent.includes('Unfinished')")
            assert page.locator(".trust b").inner_text() == "Evaluated"
            assert ended(page, "document.documentElement.dataset.drawn === 'all' && scrollY === 300")
            assert page.evaluate("document.documentElement.dataset.theme") == "dark"
            assert page.evaluate("location.hash") == "#theme=dark"
            assert complaints == []
    finally:
        process.kill()
        process.wait()


def ended(page: Any, expression: str) -> bool:
    """Whether the expression is true in the end, while the page comes and goes."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(Exception):  # between two pages there is none
            if page.evaluate(expression):
                return True
        time.sleep(0.2)
    return False


def test_one_slice_is_served_from_a_folder_that_goes(served: Served, tmp_path: Path):
    shutil.copy(served.results / "first.h5", tmp_path / "alone.h5")
    with serving(tmp_path / "alone.h5") as process:
        assert process.stdout is not None
        where = Path(re.sub(r"^index +", "", process.stdout.readline()).partition("  (")[0].strip())
        address_of(process)
        assert where.is_file()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in err and "interrupted" not in err
    assert not where.parent.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["alone.h5"]
