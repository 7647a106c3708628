"""A package index of one's own: tiny generated wheels, served as PEP 503, 691 and 658 say.

Wheels are made in memory with fixed times, so the same description gives the same bytes and hashes.
"""

from __future__ import annotations

import json
import threading
import zipfile
from base64 import b64encode
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from time import sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

JSON = "application/vnd.pypi.simple.v1+json"
UPLOADED = "2026-01-02T03:04:05Z"


def wheel(
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    extras: Sequence[str] = (),
    python: str | None = None,
    members: Mapping[str, bytes] | None = None,
) -> tuple[str, bytes]:
    """Give the file name and the bytes of a wheel that holds one empty module.

    `python` is its Requires-Python; `members` are further files in it, compressed.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Python: {python}"] if python else []
    metadata += [f"Provides-Extra: {extra}" for extra in extras]
    metadata += [f"Requires-Dist: {one}" for one in requires]
    files = {
        f"{name.replace('-', '_')}.py": "",
        f"{stem}.dist-info/METADATA": "\n".join(metadata) + "\n",
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = f"{stem}.dist-info/RECORD"
    lines = [
        f"{path},sha256={b64encode(sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}"
        for path, text in files.items()
    ]
    files[record] = "\n".join([*lines, f"{record},,"]) + "\n"
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 2, 3, 4, 4)), text)
        for path, data in (members or {}).items():
            info = zipfile.ZipInfo(path, (2026, 1, 2, 3, 4, 4))
            archive.writestr(info, data, compress_type=zipfile.ZIP_DEFLATED)
    return f"{stem}-{tag}.whl", out.getvalue()


@dataclass
class Index:
    """What the server serves: files by name; `asked` counts the pages and files that were fetched.

    `html` serves PEP 503 alone, without sizes and times, as some indexes do. `password` asks for the user
    `user` with that password. `status` answers every request with that status, `delay` holds each wheel
    back for that many seconds. `ranges` answers requests for parts of files with parts. `faults` are statuses
    that the next requests are answered with, one each.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    html: bool = False
    password: str | None = None
    status: int | None = None
    delay: float = 0.0
    ranges: bool = True
    faults: list[int] = field(default_factory=list)
    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, version: str, **facts: Any) -> str:
        """Add a wheel and give its file name."""
        filename, content = wheel(name, version, **facts)
        self.files[filename] = content
        return filename

    def sdist(self, name: str, version: str) -> None:
        """Add a source distribution; nobody may build it, so its content does not matter."""
        self.files[f"{name}-{version}.tar.gz"] = b"not an archive"

    @property
    def with_password(self) -> str:
        """The address with user and password in it."""
        return self.url.replace("://", f"://user:{self.password}@")

    def of(self, project: str) -> dict[str, bytes]:
        """Give the files of one project."""
        stem = project.replace("-", "_")
        return {
            name: content
            for name, content in self.files.items()
            if name.replace("-", "_").startswith(f"{stem}_")
        }


@contextmanager
def serve(
    index: Index, *, certificate: Mapping[str, str] | None = None, host: str = "127.0.0.1"
) -> Iterator[Index]:
    """Serve an index on a free port of an address of this host.

    `certificate` (`certfile`, `keyfile`) makes it HTTPS. Containers reach the address of Docker's bridge.
    """

    class Handler(_Handler):
        served = index

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    scheme = "http"
    if certificate:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(**certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    index.url = f"{scheme}://{host}:{server.server_port}/simple"
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    served: Index
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET(head=True)

    def do_GET(self, head: bool = False) -> None:
        index = self.served
        path = unquote(self.path.partition("?")[0])
        index.asked[path] += 1
        if index.faults:
            return self._answer(index.faults.pop(0), b"", "text/plain", head)
        if index.status is not None:
            return self._answer(index.status, b"", "text/plain", head)
        expected = "Basic " + b64encode(f"user:{index.password}".encode()).decode()
        if index.password and self.headers.get("Authorization") != expected:
            return self._answer(401, b"", "text/plain", head)
        if path.startswith("/files/"):
            return self._file(path.removeprefix("/files/"), head)
        project = path.removeprefix("/simple/").strip("/")
        files = index.of(project)
        if not files:
            return self._answer(404, b"", "text/plain", head)
        if index.html:
            return self._page(_page(files), "text/html", head)
        return self._page(_document(project, files), JSON, head)

    def _file(self, name: str, head: bool) -> None:
        files = self.served.files
        if name.removesuffix(".metadata") not in files:
            return self._answer(404, b"", "text/plain", head)
        if not name.endswith(".metadata"):
            sleep(self.served.delay)
            if self.served.status is not None:  # it fell ill in between
                return self._answer(self.served.status, b"", "text/plain", head)
            return self._part(files[name], head)
        return self._answer(200, _metadata(files[name.removesuffix(".metadata")]), "text/plain", head)

    def _part(self, content: bytes, head: bool) -> None:
        """Answer with a file, or with the one part of it that is asked for."""
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        if not wanted or not self.served.ranges:
            return self._answer(200, content, "application/zip", head)
        first, _, last = wanted.partition("-")
        start = int(first) if first else max(0, len(content) - int(last))
        stop = min(len(content), int(last) + 1) if first and last else len(content)
        place = f"bytes {start}-{stop - 1}/{len(content)}"
        return self._answer(206, content[start:stop], "application/zip", head, {"Content-Range": place})

    def _page(self, body: bytes, kind: str, head: bool) -> None:
        """Answer with a page, or that it did not change."""
        tag = f'"{sha256(body).hexdigest()[:16]}"'
        if self.headers.get("If-None-Match") == tag:
            return self._answer(304, b"", kind, head, {"ETag": tag})
        return self._answer(200, body, kind, head, {"ETag": tag})

    def _answer(
        self, status: int, body: bytes, kind: str, head: bool, more: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Basic")
        self.end_headers()
        if not head:
            self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keep the test's output clean."""


def _metadata(content: bytes) -> bytes:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("METADATA")))


def _document(project: str, files: Mapping[str, bytes]) -> bytes:
    entries = [
        {
            "filename": name,
            "url": f"../../files/{quote(name)}",
            "hashes": {"sha256": sha256(content).hexdigest()},
            "size": len(content),
            "upload-time": UPLOADED,
            "core-metadata": name.endswith(".whl"),
        }
        for name, content in files.items()
    ]
    return json.dumps(
        {"meta": {"api-version": "1.1"}, "name": project, "files": entries, "versions": []}
    ).encode()


def _page(files: Mapping[str, bytes]) -> bytes:
    links = [
        f'<a href="../../files/{quote(name)}#sha256={sha256(content).hexdigest()}"'
        f' data-core-metadata="true">{escape(name)}</a>'
        for name, content in files.items()
    ]
    return ("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>").encode()
