"""What stands between a build and the outside in a company: a proxy that asks for a password, a mirror."""

from __future__ import annotations

import shutil
import subprocess
import threading
from base64 import b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = "bookworm"


def archive_address() -> str | None:
    """Give the address of the archive of Debian 12 that this machine's apt uses, None where it has none."""
    if shutil.which("apt-get") is None:
        return None
    form = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        f"Codename: {SUITE}",
    ]
    found = subprocess.run(form, capture_output=True, text=True, check=False).stdout.split()
    return found[0].rstrip("/") if found and found[0].startswith("http") else None


class _Relay(BaseHTTPRequestHandler):
    """Fetches what it is asked for and passes it on."""

    protocol_version = "HTTP/1.1"
    asked: list[str]
    target: str | None = None
    password: str | None = None

    def do_GET(self) -> None:
        expected = "Basic " + b64encode(f"proxy-user:{self.password}".encode()).decode()
        if self.password and self.headers.get("Proxy-Authorization") != expected:
            return self._answer(407, b"")
        self.asked.append(self.path)
        # no proxy of the environment: this is the proxy
        opener = build_opener(ProxyHandler({}))
        try:
            with opener.open((self.target or "") + self.path) as answer:
                return self._answer(answer.status, answer.read())
        except HTTPError as error:
            return self._answer(error.code, error.read())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status == 407:
            self.send_header("Proxy-Authenticate", "Basic")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Keep the test's output clean."""


@contextmanager
def _serving(host: str, **facts: object) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (_Relay,), {"asked": asked, **facts})
    server = ThreadingHTTPServer((host, 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def relay(host: str, archive: str) -> Iterator[tuple[str, list[str]]]:
    """Serve an archive and what lies beside it on its host (its security updates) under another host.

    Give the address of the copy and the list of paths that were asked for.
    """
    parts = urlsplit(archive)
    with _serving(host, target=f"{parts.scheme}://{parts.netloc}") as (address, asked):
        yield f"http://{address}{parts.path}", asked


@contextmanager
def proxy(host: str, password: str) -> Iterator[tuple[str, list[str]]]:
    """Run a proxy for http: addresses; give its address with credentials and what was asked of it."""
    with _serving(host, password=password) as (address, asked):
        yield f"http://proxy-user:{password}@{address}", asked
