"""How a build reaches the network: a private CA, proxies, an index or apt mirror, all from configuration.

Each comes into the build as a secret or as a predefined build argument, and stays out of the image.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "FTP_PROXY")
ADDRESS = re.compile(r"(https?|file)://[^\s\"'<>\\$`]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What a build needs.

    `secrets` maps ids to files, `arguments` are the predefined proxy arguments, `contexts` replace a base
    of the Dockerfile by the same digest from a mirror.
    """

    secrets: Mapping[str, Path] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def network(*, index: str | None, apt: str | None, contexts: Mapping[str, str]) -> Iterator[Network]:
    """Give the network of a build; the secrets' files are gone afterwards.

    `index` is the address that replaces the default package index, `apt` the sources that replace the
    base's, both None to leave them; `contexts` are the bases that come from a mirror. The CA comes from
    SSL_CERT_FILE (or REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE), proxies from the usual variables. Raises
    UsageError where one of them cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="imgbuild-secrets-") as folder:
        secrets: dict[str, Path] = {}
        bundle = ca_bundle()
        if bundle is not None:
            secrets["ca"] = bundle
        if index is not None:
            secrets["index"] = _write(
                folder, "index", f'[[index]]\nurl = "{_address(index)}"\ndefault = true\n'
            )
        if apt is not None:
            secrets["apt"] = _write(folder, "apt", apt)
        yield Network(secrets=secrets, arguments=_proxies(), contexts=contexts)


def ca_bundle() -> Path | None:
    """Give the CA bundle of this host's configuration; raises UsageError where it names no file."""
    for variable in CA_VARIABLES:
        value = os.environ.get(variable)
        if value:
            if not Path(value).is_file():
                raise UsageError(f"{variable} names `{value}`, which is no file", hint=f"unset {variable}")
            return Path(value)
    return None


def _proxies() -> dict[str, str]:
    found = {}
    for variable in PROXY_VARIABLES:
        value = os.environ.get(variable) or os.environ.get(variable.lower())
        if value:
            found[variable] = found[variable.lower()] = value
    return found


def _address(text: str) -> str:
    if not ADDRESS.fullmatch(text):
        raise UsageError("the configured mirror is not an http(s) address", hint="imgbuild doctor")
    return text


def _write(folder: str, name: str, text: str) -> Path:
    path = Path(folder, name)
    path.touch(mode=0o600)
    path.write_text(text)
    return path
