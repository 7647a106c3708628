"""The OCI distribution protocol: manifests and configurations, with tokens, retries and one deadline."""

from __future__ import annotations

import re
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from imagebuilder.errors import OutsideError
from imagebuilder.network import ca_bundle
from imagebuilder.registry import Place, digest_of, read_json
from imagebuilder.registry.credentials import Credentials, credentials

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

# The largest manifest or configuration that is read, in bytes: registries take manifests up to 4 MiB.
LARGEST = 4 * 2**20
# Seconds that one answer may take.
ANSWER = 10.0
# How often a request is sent when the registry is overloaded, and the seconds before the second time.
TRIES = 3
PAUSE = 0.5
# A registry that asks to wait longer than this is told to the user instead.
LONGEST_PAUSE = 3.0

CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a registry answered."""

    status: int
    headers: Message
    body: bytes


class Session:
    """One conversation about one repository; every request ends before `seconds` are over."""

    def __init__(self, place: Place, *, seconds: float) -> None:
        self.place = place
        self._deadline = time.monotonic() + seconds
        self._authorization: str | None = None
        self._tls = ssl.create_default_context(cafile=ca_bundle())

    def manifest(self, wanted: str, kinds: tuple[str, ...]) -> tuple[str, dict[str, Any], str]:
        """Give media type, document and digest of a manifest named by tag or digest; raises OutsideError."""
        reply = self._get(f"manifests/{wanted}", {"Accept": ", ".join(kinds)})
        document = read_json(reply.body, f"the manifest of `{self.place.host}/{self.place.name}`")
        kind = str(document.get("mediaType") or reply.headers.get_content_type())
        if kind not in kinds:
            raise OutsideError(
                f"`{self.place.host}/{self.place.name}` is not a container image that can be a base",
                why=f"its manifest is of the type `{kind}`",
            )
        return kind, document, self._checked(reply.body, wanted)

    def config(self, digest: str) -> dict[str, Any]:
        """Give an image's configuration; raises OutsideError."""
        body = self._get(f"blobs/{digest}", {}).body
        self._checked(body, digest)
        return read_json(body, f"the configuration of `{self.place.host}/{self.place.name}`")

    def _checked(self, body: bytes, wanted: str) -> str:
        digest = digest_of(body)
        if wanted.startswith("sha256:") and digest != wanted:
            raise OutsideError(
                f"`{self.place.host}` sent something else than what was asked for",
                why=f"asked for {wanted}, got {digest}",
                hint="imgbuild doctor",
            )
        return digest

    def _get(self, path: str, headers: Mapping[str, str]) -> Reply:
        url = f"{self.place.address}/v2/{self.place.name}/{path}"
        reply = self._patiently(url, {**headers, **self._authorized()})
        if reply.status == 401 and self._authorization is None:
            self._authorization = self._authorize(reply.headers.get("WWW-Authenticate", ""))
            reply = self._patiently(url, {**headers, **self._authorized()})
        if reply.status != 200:
            raise refusal(self.place, path.partition("/")[2], reply)
        return reply

    def _authorized(self) -> dict[str, str]:
        return {"Authorization": self._authorization} if self._authorization else {}

    def _patiently(self, url: str, headers: Mapping[str, str]) -> Reply:
        """Send a request, again after a pause where the registry says that it is overloaded."""
        for attempt in range(1, TRIES + 1):
            reply = self._send(url, headers)
            pause = _pause(reply, attempt)
            late = time.monotonic() + pause >= self._deadline
            if (
                (reply.status != 429 and reply.status < 500)
                or attempt == TRIES
                or pause > LONGEST_PAUSE
                or late
            ):
                break
            time.sleep(pause)
        return reply

    def _send(self, url: str, headers: Mapping[str, str]) -> Reply:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._unreached(TimeoutError("timed out"))
        request = Request(url, headers={"User-Agent": "imgbuild"})  # noqa: S310 (built from a checked address)
        for name, value in headers.items():
            # not sent on to where a redirect leads: the store of blobs is another host
            request.add_unredirected_header(name, value)
        try:
            with urlopen(request, timeout=min(ANSWER, left), context=self._tls) as response:  # noqa: S310
                return Reply(status=response.status, headers=response.headers, body=self._body(response))
        except HTTPError as error:
            with error:
                return Reply(status=error.code, headers=error.headers, body=error.read(LARGEST))
        except URLError as error:
            raise self._unreached(error.reason) from error
        except (OSError, ValueError) as error:
            raise self._unreached(error) from error

    def _body(self, response: Any) -> bytes:
        body: bytes = response.read(LARGEST + 1)
        if len(body) > LARGEST:
            raise OutsideError(
                f"`{self.place.host}` sent more than a manifest can hold", hint="imgbuild doctor"
            )
        return body

    def _authorize(self, challenge: str) -> str:
        """Answer a challenge: a token from the service that it names, or the stored user and password."""
        known = credentials(self.place.host)
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic" and known is not None:
            return _basic(known)
        terms = dict(CHALLENGE.findall(rest))
        realm = terms.pop("realm", "")
        if kind.lower() != "bearer" or not self._trusted(realm):
            raise self._login("it wants a login" if kind else "it does not say which login it wants")
        query = urlencode({"scope": f"repository:{self.place.name}:pull", **terms})
        headers = {"Authorization": _basic(known)} if known else {}
        reply = self._patiently(f"{realm}{'&' if '?' in realm else '?'}{query}", headers)
        if reply.status in (401, 403):
            raise self._login("it does not take the stored login" if known else "it wants a login")
        if reply.status != 200:
            raise refusal(self.place, "the token", reply)
        token = read_json(reply.body, f"the token of `{self.place.host}`")
        return f"Bearer {token.get('token') or token.get('access_token') or ''}"

    def _trusted(self, realm: str) -> bool:
        """Whether a token service may have the password: over TLS, or as little protected as the registry."""
        scheme = urlsplit(realm).scheme
        return scheme == "https" or (scheme == "http" and self.place.address.startswith("http://"))

    def _login(self, why: str) -> OutsideError:
        return OutsideError(
            f"the registry `{self.place.host}` does not show `{self.place.name}` to us",
            why=why,
            hint=f"docker login {'' if self.place.host == 'docker.io' else self.place.host}".rstrip(),
        )

    def _unreached(self, reason: object) -> OutsideError:
        host = self.place.host
        if isinstance(reason, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(reason):
            return OutsideError(
                f"the certificate of the registry `{host}` is not trusted",
                why=str(getattr(reason, "verify_message", "") or reason),
                hint="export SSL_CERT_FILE=/path/to/your-ca-bundle.pem",
            )
        return OutsideError(
            f"the registry `{host}` cannot be reached",
            why=str(reason),
            hint="imgbuild doctor; for a mirror: export IMGBUILD_REGISTRY_MIRROR=HOST[:PORT]",
        )


def refusal(place: Place, wanted: str, reply: Reply) -> OutsideError:
    """Say what a registry's refusal means and what to do about it."""
    said = _said(reply)
    name = f"{place.host}/{place.name}"
    if reply.status == 404:
        return OutsideError(
            f"the registry has no `{name}:{wanted}`",
            why=f"{said}; publishers delete tags some time after the end of life of what they hold",
            hint="imgbuild matrix show; a tag that is pinned by digest and mirrored stays",
        )
    if reply.status in (401, 403):
        return OutsideError(
            f"the registry `{place.host}` does not show `{place.name}` to us",
            why=said,
            hint=f"docker login {place.host}",
        )
    if reply.status == 429:
        return OutsideError(
            f"the registry `{place.host}` says `toomanyrequests`",
            why=f"{said}; pulls without a login are counted for each address",
            hint="docker login, or export IMGBUILD_REGISTRY_MIRROR=HOST[:PORT]",
        )
    return OutsideError(
        f"the registry `{place.host}` answered {reply.status}",
        why=said,
        hint="try again later, or imgbuild doctor",
    )


def _said(reply: Reply) -> str:
    """Give the registry's own words: codes and messages of its JSON errors, or the status alone."""
    import json

    try:
        errors = json.loads(reply.body)["errors"]
        words = "; ".join(f"{error['code']}: {error.get('message', '')}".rstrip(": ") for error in errors)
    except (ValueError, KeyError, TypeError):
        words = ""
    return words[:300] or f"HTTP status {reply.status}"


def _pause(reply: Reply, attempt: int) -> float:
    """Give the seconds to wait: as the registry asks, else twice as long each time."""
    asked = reply.headers.get("Retry-After", "")
    return float(asked) if asked.isdigit() else PAUSE * 2.0 ** (attempt - 1)


def _basic(known: Credentials) -> str:
    from base64 import b64encode

    return "Basic " + b64encode(f"{known.user}:{known.secret}".encode()).decode()
