"""A small Hugging Face Hub on the loopback interface, so that the loading code is tested as it runs, without mocks.

It speaks what `snapshot_download`, `HfApi().model_info`, `list_repo_refs` and `datasets.load_dataset(streaming=True)`
ask for. The libraries read their settings when they are imported: `run` starts a Python of its own for that, with
this server as its Hub and as its proxy, so that no request can go anywhere else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent

_API = re.compile(r"/api/(?P<kind>models|datasets)/(?P<rest>.+)")
_RESOLVE = re.compile(r"/(?P<kind>datasets/)?(?P<id>.+?)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


def commit(name: str) -> str:
    """A commit hash that belongs to `name`."""
    return hashlib.sha1(name.encode()).hexdigest()


@dataclass
class Hub:
    """What is served, and what was asked for.

    A repository is `{"refs": {branch: commit}, "files": {commit: folder}, "gated": False}`. As on the real Hub, a
    gated repository can be listed but not downloaded.
    """

    models: Mapping[str, dict[str, Any]]
    datasets: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    address: str = ""
    requests: list[str] = field(default_factory=list)  # "GET /path"; requests for other hosts with their whole address

    def downloaded(self) -> set[str]:
        """Names of the files whose content was fetched from model repositories."""
        found = [re.fullmatch(r"GET /(?!datasets/).+?/resolve/[^/]+/(.+)", request) for request in self.requests]
        return {unquote(match[1]) for match in found if match}


@contextmanager
def serve(models: Mapping[str, dict[str, Any]], datasets: Mapping[str, dict[str, Any]] | None = None) -> Iterator[Hub]:
    """Run a Hub with these repositories for as long as the block lasts."""
    hub = Hub(models, datasets or {})
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def run(code: str, address: str, home: Path, offline: bool = False, **environment: str) -> Any:
    """Run `code` in a Python of its own that has `address` for its Hub and `home` for its cache.

    `code` calls `report(value)` once; that value comes back through JSON. Everything else of this process's
    environment that concerns the Hub, proxies or tokens is left out.
    """
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV")
    settings = {name: os.environ[name] for name in kept if name in os.environ}
    settings |= {
        "HOME": str(home),
        "HF_HOME": str(home / "huggingface"),
        "HF_ENDPOINT": address,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "OMP_NUM_THREADS": "1",
        "no_proxy": "127.0.0.1",
        **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), address),
        **({"HF_HUB_OFFLINE": "1"} if offline else {}),
        **environment,
    }
    head = "import json, sys\ndef report(value): print('\\nREPORT ' + json.dumps(value))\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code], env=settings, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    reports = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    assert done.returncode == 0 and len(reports) == 1, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(reports[0].removeprefix("REPORT "))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up in the middle is no news; a fault of the server shows in the client's test."""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_CONNECT(self) -> None:
        self._answer()

    def log_message(self, *args: object) -> None:
        """Nothing on the terminal."""

    def _answer(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        if not self.path.startswith("/"):  # asked as a proxy
            return self._error(404, "", "this Hub knows no other hosts")
        if match := _API.fullmatch(path):
            return self._api(match["kind"], match["rest"], body)
        if match := _RESOLVE.fullmatch(path):
            return self._file("datasets" if match["kind"] else "models", match["id"], match["revision"], match["file"])
        return self._error(404, "", "no such page")

    def _api(self, kind: str, rest: str, body: bytes) -> None:
        name, rest = self._split(kind, rest)
        repository = self._repositories(kind).get(name)
        if repository is None:
            return self._error(401, "RepoNotFound", "Repository not found")
        if rest == "refs":
            branches = [
                {"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": target}
                for branch, target in repository["refs"].items()
            ]
            return self._json({"branches": branches, "converts": [], "tags": []})
        action, _, rest = rest.partition("/")
        revision, _, below = (rest or "main").partition("/")
        target = self._commit(repository, revision)
        if target is None:
            return self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        listing = _listing(repository["files"][target])
        if action == "tree":
            recursive = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() == "true"
            inside = [entry for entry in listing if not below or entry["path"].startswith(f"{below}/")]
            depth = below.count("/") + 2 if below else 1
            return self._json([entry for entry in inside if recursive or entry["path"].count("/") < depth])
        if action == "paths-info":
            wanted = {path.strip("/") for path in parse_qs(body.decode())["paths"]}
            return self._json([entry for entry in listing if entry["path"] in wanted])
        siblings = [{"rfilename": entry["path"]} for entry in listing if entry["type"] == "file"]
        gated = "manual" if repository.get("gated") else False
        return self._json(
            {"id": name, "sha": target, "private": False, "gated": gated, "tags": [], "siblings": siblings}
        )

    def _file(self, kind: str, name: str, revision: str, file: str) -> None:
        repository = self._repositories(kind).get(name)
        if repository is None:
            return self._error(401, "RepoNotFound", "Repository not found")
        if repository.get("gated"):
            return self._error(401, "GatedRepo", f"Access to {name} is restricted")
        target = self._commit(repository, revision)
        if target is None:
            return self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        path = repository["files"][target] / file
        if not path.is_file():
            return self._error(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": target})
        content = path.read_bytes()
        headers = {"ETag": f'"{_blob_id(content)}"', "X-Repo-Commit": target, "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not asked:
            return self._send(200, content, headers)
        first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
        if first >= len(content):
            return self._error(416, "", "nothing there", {"Content-Range": f"bytes */{len(content)}"})
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return self._send(206, content[first : last + 1], headers)

    def _repositories(self, kind: str) -> Mapping[str, dict[str, Any]]:
        return self.hub.models if kind == "models" else self.hub.datasets

    def _split(self, kind: str, rest: str) -> tuple[str, str]:
        """`org/name/action/…`, or `name/action/…` for a repository without an organization."""
        parts = rest.split("/")
        size = 1 if parts[0] in self._repositories(kind) else 2
        return "/".join(parts[:size]), "/".join(parts[size:])

    @staticmethod
    def _commit(repository: dict[str, Any], revision: str) -> str | None:
        target: str = repository["refs"].get(revision, revision)
        return target if target in repository["files"] else None

    def _error(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        codes = {"X-Error-Code": code} if code else {}
        self._json({"error": message}, status, {**codes, "X-Error-Message": message, **(headers or {})})

    def _json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _blob_id(content: bytes) -> str:
    """The name git gives this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _listing(folder: Path) -> list[dict[str, Any]]:
    """Every file and folder below `folder`, as the Hub lists them."""
    entries: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            entries.append({"type": "directory", "path": name, "oid": commit(name), "size": 0})
        else:
            content = path.read_bytes()
            entries.append({"type": "file", "path": name, "oid": _blob_id(content), "size": len(content)})
    return entries
