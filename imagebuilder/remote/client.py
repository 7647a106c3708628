"""Requests to one index: one after the other, again after a pause where it is overloaded, few of them.

Project pages change and are asked for again with the condition that they did. What belongs to a file never
changes, since indexes do not let a file be replaced: it is asked for once.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from requests import RequestException, Session
from requests.exceptions import SSLError

from imagebuilder.errors import OutsideError, UsageError
from imagebuilder.index import ANSWER_TIMEOUT, Index, without_credentials
from imagebuilder.network import ca_bundle
from imagebuilder.remote.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

# How often a request is sent, and the seconds before the second time; twice as long before each further one.
TRIES = 4
PAUSE = 1.0
# An index that asks to wait longer than these seconds is told to the user instead.
LONGEST_PAUSE = 60.0
PAGE = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


@dataclass(slots=True, kw_only=True)
class Traffic:
    """What was asked of an index: requests sent, bytes of the answers, answers that were kept from before."""

    requests: int = 0
    bytes: int = 0
    kept: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an index answered; `url` is where it came from in the end."""

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes


class Client:
    """A conversation with an index that has an address; `folder` keeps its answers."""

    def __init__(self, index: Index, folder: Path) -> None:
        address = index.address or ""
        if not address.startswith(("http://", "https://")):
            raise UsageError(
                f"the index `{index.name}` is not read over HTTP",
                why=f"{index.shown} is none of http:// and https://, and parts of wheels are read by range",
                hint=f"export {index.variable}=https://HOST/simple",
            )
        self.index = index
        self.address = without_credentials(address).rstrip("/")
        self.traffic = Traffic()
        self._login = urlsplit(address).netloc.rpartition("@")
        self._store = Store(folder)
        bundle = ca_bundle()
        self._verify = str(bundle) if bundle else True
        self._session = Session()
        self._session.headers["User-Agent"] = "imgbuild"

    def page(self, project: str) -> Reply | None:
        """Give a project's page, None where the index has no such project; raises OutsideError."""
        url = f"{self.address}/{project}/"
        kept = self._store.get(f"page {url}")
        headers = {"Accept": PAGE}
        if kept is not None:
            headers.update(kept[0]["conditions"])
        reply = self._get(url, headers)
        if reply.status == 304 and kept is not None:
            self.traffic.kept += 1
            return Reply(status=200, url=kept[0]["url"], headers=kept[0]["headers"], body=kept[1])
        if reply.status == 404:
            return None
        self._expect(reply, 200, f"the page of `{project}`")
        conditions = {
            ask: reply.headers[tell]
            for ask, tell in (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
            if tell in reply.headers
        }
        kind = {"Content-Type": reply.headers.get("Content-Type", "")}
        about = {"url": reply.url, "headers": kind, "conditions": conditions}
        self._store.put(f"page {url}", about, reply.body)
        return reply

    def file(self, url: str) -> bytes | None:
        """Give a small file, None where there is none; raises OutsideError."""
        reply = self._get(url, {})
        if reply.status in (403, 404):  # object stores answer 403 for what is not there
            return None
        self._expect(reply, 200, f"`{_name(url)}`")
        return reply.body

    def part(self, url: str, wanted: str) -> tuple[bytes, int]:
        """Give a part of a file, `0-99` or `-100`, and the size of the whole; raises OutsideError."""
        reply = self._get(url, {"Range": f"bytes={wanted}", "Accept-Encoding": "identity"})
        if reply.status == 200:
            raise OutsideError(
                f"the index `{self.index.name}` gives no parts of files",
                why=f"{self.index.shown} answered a range request for `{_name(url)}` with the whole file",
                hint=f"export {self.index.variable}= the address of an index or mirror with range requests",
            )
        self._expect(reply, 206, f"a part of `{_name(url)}`")
        size = reply.headers.get("Content-Range", "").rpartition("/")[2]
        if not size.isdigit():
            raise self._odd(f"a part of `{_name(url)}`", "the answer does not say how large the file is")
        return reply.body, int(size)

    def remembered(self, asked: str, make: Callable[[], Any]) -> Any:
        """Give a JSON value that was once made of a file that never changes, or make it now."""
        kept = self._store.get(f"made {asked}")
        if kept is not None:
            self.traffic.kept += 1
            return json.loads(kept[1])
        made = make()
        self._store.put(f"made {asked}", {}, json.dumps(made).encode())
        return made

    def _get(self, url: str, headers: Mapping[str, str]) -> Reply:
        """Send a request, again after a pause where the index is overloaded or the connection breaks."""
        failure: RequestException | None = None
        for attempt in range(1, TRIES + 1):
            pause = PAUSE * 2.0 ** (attempt - 1)
            try:
                reply = self._send(url, headers)
            except SSLError as error:
                raise self._unreached(error) from None
            except RequestException as error:
                failure = error
            else:
                asked = reply.headers.get("Retry-After", "")
                pause = float(asked) if asked.isdigit() else pause
                overloaded = reply.status == 429 or reply.status >= 500
                if not overloaded or attempt == TRIES or pause > LONGEST_PAUSE:
                    return reply
            if attempt < TRIES:
                time.sleep(pause)
        raise self._unreached(failure) from None

    def _send(self, url: str, headers: Mapping[str, str]) -> Reply:
        self.traffic.requests += 1
        with self._session.get(
            url,
            headers=headers,
            auth=self._auth(url),
            timeout=ANSWER_TIMEOUT,
            verify=self._verify,
            stream=True,
        ) as answer:
            # whoever asks for a part must not be given hundreds of megabytes
            whole = "Range" in headers and answer.status_code == 200
            body = b"" if whole else answer.content
            self.traffic.bytes += len(body)
            return Reply(status=answer.status_code, url=answer.url, headers=answer.headers, body=body)

    def _auth(self, url: str) -> tuple[str, str] | None:
        """Give the credentials of the index's address, for its own host alone."""
        login, _, host = self._login
        if not login or urlsplit(url).netloc != host:
            return None
        user, _, password = login.partition(":")
        return unquote(user), unquote(password)

    def _expect(self, reply: Reply, status: int, what: str) -> None:
        if reply.status in (401, 403):
            raise OutsideError(
                f"the index `{self.index.name}` does not show {what} to us",
                why=f"{self.index.shown} answered {reply.status}",
                hint=f"export {self.index.variable}=https://USER:PASSWORD@HOST/simple",
            )
        if reply.status != status:
            raise self._odd(what, f"HTTP status {reply.status}")

    def _odd(self, what: str, why: str) -> OutsideError:
        return OutsideError(
            f"the index `{self.index.name}` does not give {what}",
            why=f"{self.index.shown}: {why}",
            hint="try again later: what was read is kept, or imgbuild doctor",
        )

    def _unreached(self, error: RequestException | None) -> OutsideError:
        trust = isinstance(error, SSLError)
        return OutsideError(
            f"the index `{self.index.name}` cannot be reached",
            why=f"{self.index.shown}: {type(error).__name__}: {error}",
            hint="export SSL_CERT_FILE=/path/to/your-ca-bundle.pem"
            if trust
            else f"imgbuild doctor; what was read is kept; a mirror is set with {self.index.variable}",
        )


def _name(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])
