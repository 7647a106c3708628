"""Whether an address answers, and where the way to it ends: name, connection, proxy, certificate, service."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from email.message import Message

    from imagebuilder.index import Index

T = TypeVar("T")
# a package that every index has that serves imgbuild's own dependencies
_LOOKED_UP = "packaging"
Trouble = Literal["name", "connection", "timeout", "tls", "proxy", "status", "address"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an address answered: `status` of HTTP, or which `trouble` ended the attempt and its `detail`.

    `proxy` is the proxy that was used, without credentials. `date` is the server's clock.
    """

    url: str
    status: int | None = None
    trouble: Trouble | None = None
    detail: str = ""
    proxy: str | None = None
    date: datetime | None = None
    seconds: float = 0.0

    @property
    def reached(self) -> bool:
        """Whether the service itself answered."""
        return self.trouble is None


def probe(url: str, *, seconds: float = 5.0, wanted: tuple[int, ...] = (200,)) -> Answer:
    """Ask for the head of `url` once, through the proxies and certificates of the environment.

    Never raises. An answer with another status than those `wanted` is a trouble named `status`. A
    resolver of names that hangs is not cut off by `seconds`: see `together`.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.parse import urlsplit
    from urllib.request import Request, build_opener, url2pathname

    started = time.monotonic()
    shown = without_credentials(url)
    proxy = _proxy(url)

    def answer(**facts: object) -> Answer:
        took = round(time.monotonic() - started, 3)
        return Answer(url=shown, proxy=proxy, seconds=took, **facts)  # type: ignore[arg-type]

    if url.startswith("file:"):
        there = Path(url2pathname(urlsplit(url).path)).exists()
        return answer() if there else answer(trouble="address", detail="no such folder")
    try:
        request = Request(shown, method="HEAD", headers={"User-Agent": "imgbuild"})  # noqa: S310
        if authorization := _authorization(url):
            # not sent on to where a redirect leads
            request.add_unredirected_header("Authorization", authorization)
        with build_opener().open(request, timeout=seconds) as response:
            return answer(status=response.status, date=_date(response.headers))
    except HTTPError as error:
        date = _date(error.headers)
        if error.code in wanted:
            return answer(status=error.code, date=date)
        trouble = "proxy" if error.code == 407 else "status"
        return answer(status=error.code, trouble=trouble, detail=f"HTTP {error.code}", date=date)
    except URLError as error:
        return answer(trouble=_trouble(error.reason, proxy), detail=str(error.reason))
    except (OSError, ValueError, HTTPException) as error:
        return answer(trouble=_trouble(error, proxy), detail=str(error))


def ask_index(index: Index, *, seconds: float = 6.0) -> Answer:
    """Have uv look one package up, as a build will: with uv's own trust in certificates, and its default.

    Never raises; uv is ended after `seconds`. That the index does not have the package is an answer.
    """
    import subprocess

    from imagebuilder.index import environment

    started = time.monotonic()
    limits = {"UV_HTTP_TIMEOUT": str(int(seconds)), "UV_HTTP_RETRIES": "0"}
    trouble, detail = None, ""
    try:
        done = subprocess.run(
            _lookup(index),
            input=_LOOKED_UP,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env={**environment(), **limits},
        )
        if done.returncode and "No solution found" not in done.stderr:
            trouble, detail = _trouble_of_uv(done.stderr)
    except subprocess.TimeoutExpired:
        trouble, detail = "timeout", f"no answer within {seconds:.0f} s"
    except OSError as error:
        trouble, detail = "address", f"uv is missing beside imgbuild: {error}"
    return Answer(
        url=index.shown,
        trouble=trouble,
        detail=detail,
        proxy=_proxy(index.address or "https://"),
        seconds=round(time.monotonic() - started, 3),
    )


def _lookup(index: Index) -> list[str]:
    from uv import find_uv_bin

    command = [find_uv_bin(), "pip", "compile", "-", "--no-deps", "--no-cache", "--no-config", "--quiet"]
    return command + (["--default-index", index.address] if index.address else [])


def _trouble_of_uv(text: str) -> tuple[Trouble, str]:
    """Tell from uv's chain of causes where the way ended; its last line is the innermost cause."""
    signs: tuple[tuple[str, Trouble], ...] = (
        ("certificate", "tls"),
        ("tunnel", "proxy"),
        ("dns error", "name"),
        ("timed out", "timeout"),
        ("tcp connect error", "connection"),
        ("HTTP status", "status"),
    )
    lines = [line.strip().removeprefix("cause: ") for line in text.splitlines() if line.strip()]
    detail = re.sub(r"(https?://)[^/@\s`]*@", r"\1", lines[-1]) if lines else "uv gave no reason"
    return next((trouble for sign, trouble in signs if sign in text), "connection"), detail


def together(calls: Mapping[str, Callable[[], T]], *, seconds: float) -> dict[str, T]:
    """Run all calls at once and give the results of those that end within `seconds`.

    A call that hangs (a resolver of names, a driver) is left behind in a thread that does not keep the
    program alive. An exception of a call is raised here.
    """
    from threading import Thread

    results: dict[str, T] = {}
    failures: list[BaseException] = []

    def run(name: str, call: Callable[[], T]) -> None:
        try:
            results[name] = call()
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=run, args=one, daemon=True) for one in calls.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if failures:
        raise failures[0]
    return dict(results)


def without_credentials(url: str) -> str:
    """Give an address that may be printed: user and password taken out."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _authorization(url: str) -> str | None:
    """Give the header for the user and password in an address."""
    from base64 import b64encode
    from urllib.parse import unquote, urlsplit

    user, _, _ = urlsplit(url).netloc.rpartition("@")
    return "Basic " + b64encode(unquote(user).encode()).decode() if user else None


def _proxy(url: str) -> str | None:
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    return without_credentials(proxy) if proxy else None


def _trouble(reason: object, proxy: str | None) -> Trouble:
    import socket
    import ssl

    if isinstance(reason, ssl.SSLError):
        return "tls"
    if "Tunnel connection failed" in str(reason):
        return "proxy"
    if isinstance(reason, socket.gaierror):
        return "proxy" if proxy else "name"
    if isinstance(reason, TimeoutError):
        return "timeout"
    if isinstance(reason, OSError):
        return "proxy" if proxy and isinstance(reason, ConnectionRefusedError) else "connection"
    return "address"


def _date(headers: Message) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(headers["Date"])
    except (TypeError, ValueError):
        return None
