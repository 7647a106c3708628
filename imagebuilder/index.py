"""The package indexes: their addresses from configuration, and the environment that uv runs in.

Only a *replacement* of an index is taken from the environment. Extra indexes and find-links never are: with
more than one index for a package the wrong one can win, so each package comes from exactly one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from imagebuilder.errors import OutsideError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

PYPI = "pypi"
# Seconds for one answer of an index.
ANSWER_TIMEOUT = 30
# Replacements of the default index, in the order in which they are looked at.
DEFAULT_INDEX_VARIABLES = ("IMGBUILD_INDEX_PYPI", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
ADDRESS = re.compile(r"(https?|file)://[^\s\"'<>\\$`\x00-\x1f]+")
# Settings of uv and pip that change where packages come from or which are chosen; `UV_CACHE_DIR` does not.
AMBIENT = ("UV_", "PIP_", "VIRTUAL_ENV", "CONDA_", "PYTHON")
HARMLESS = ("UV_CACHE_DIR", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A package index: `address` None is uv's default; credentials in it are never written anywhere."""

    name: str
    address: str | None

    @property
    def shown(self) -> str:
        """The address without credentials, or what stands for the default."""
        return without_credentials(self.address) if self.address else "the default index"

    @property
    def variable(self) -> str:
        """The environment variable that replaces this index."""
        return variable(self.name)


def variable(name: str) -> str:
    """Give the environment variable that replaces the index of this name: IMGBUILD_INDEX_PYTORCH."""
    return f"IMGBUILD_INDEX_{name.upper().replace('-', '_')}"


def without_credentials(address: str) -> str:
    """Give an address without user and password."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))


def default_index() -> Index:
    """Give the index called `pypi`; raises UsageError where a variable names no address."""
    return Index(name=PYPI, address=_from_environment(DEFAULT_INDEX_VARIABLES))


def own_index(name: str, templates: Mapping[str, str], variant: str) -> Index:
    """Give a framework's own index: IMGBUILD_INDEX_<NAME>, else the address that the matrix holds.

    Either may hold `{variant}`, the CUDA build that is asked for (cu121). Raises UsageError.
    """
    address = _from_environment((variable(name),))
    if address is None and name not in templates:
        raise UsageError(f"the matrix has no address of the index `{name}`", hint="imgbuild matrix validate")
    return Index(name=name, address=(address or templates[name]).replace("{variant}", variant))


def _from_environment(variables: tuple[str, ...]) -> str | None:
    for name in variables:
        value = os.environ.get(name)
        if value:
            if not ADDRESS.fullmatch(value):
                raise UsageError(
                    f"{name} is not the address of an index",
                    why="it must begin with https://, http:// or file:// and hold no blanks or quotes",
                    hint=f"unset {name}",
                )
            return value
    return None


def environment() -> dict[str, str]:
    """Give the environment without settings of uv and pip: only the cache, the CA and proxies count."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(AMBIENT)}
    kept.update((name, os.environ[name]) for name in HARMLESS if name in os.environ)
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if bundle and not kept.get("SSL_CERT_FILE"):
        kept["SSL_CERT_FILE"] = bundle
    return {**kept, "UV_HTTP_TIMEOUT": str(ANSWER_TIMEOUT), "UV_HTTP_RETRIES": "2", "NO_COLOR": "1"}


def size_of(url: str, index: Index) -> int:
    """Ask for the size in bytes of a file that its index page gives no size of. Raises OutsideError."""
    from http.client import HTTPException
    from ssl import create_default_context
    from urllib.request import Request, url2pathname, urlopen

    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            return Path(url2pathname(parts.path)).stat().st_size
        request = Request(url, method="HEAD", headers={"User-Agent": "imgbuild"})  # noqa: S310 (http or https)
        if authorization := _authorization(url, index):
            request.add_unredirected_header("Authorization", authorization)
        context = create_default_context(cafile=environment().get("SSL_CERT_FILE"))
        with urlopen(request, timeout=ANSWER_TIMEOUT, context=context) as response:  # noqa: S310
            return int(response.headers["Content-Length"])
    except (OSError, HTTPException, TypeError, ValueError) as error:
        raise OutsideError(
            f"the index `{index.name}` does not say how large `{parts.path.rpartition('/')[2]}` is",
            why=f"{index.shown}: {error}",
            hint=f"imgbuild doctor; a mirror is set with {index.variable}",
        ) from None


def _authorization(url: str, index: Index) -> str | None:
    """Give the header for the credentials in an index's address, for files on the same host."""
    from base64 import b64encode

    user, _, host = urlsplit(index.address or "").netloc.rpartition("@")
    if not user or urlsplit(url).netloc.rpartition("@")[2] != host:
        return None
    return "Basic " + b64encode(unquote(user).encode()).decode()
