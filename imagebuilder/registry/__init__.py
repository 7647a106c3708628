"""OCI registries: which image a tag names now, by digest, and what its configuration says.

Speaks the OCI distribution protocol, with the proxies and the CA bundle of the environment and the
credentials of `docker login`. IMGBUILD_REGISTRY_MIRROR, as HOST[:PORT][/PREFIX], stands in for Docker Hub;
written as http://… it is asked without TLS, which otherwise only localhost is.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from imagebuilder.errors import OutsideError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagebuilder.registry.distribution import Session

# Seconds that finding one image may take, with every retry: `auto` waits no longer before it bootstraps.
LIMIT = 20.0

HUB = "docker.io"
# Docker Hub's name in references is not the host that serves it.
HUB_HOST = "registry-1.docker.io"
DEFAULT_TAG = "latest"

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)

# The grammar of references in the OCI distribution specification, as far as a base image needs it.
REFERENCE = re.compile(
    r"(?P<host>(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9-]+|:\d+)|localhost)(?::\d+)?/)?"
    r"(?P<name>[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
MIRROR = re.compile(
    r"(?P<scheme>https?://)?(?P<host>[A-Za-z0-9.-]+(?::\d+)?)(?P<prefix>(?:/[a-z0-9._-]+)*)/?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference in parts: `host` and `name` as written, `wanted` the tag or the digest."""

    host: str
    name: str
    tag: str
    digest: str | None = None

    @property
    def wanted(self) -> str:
        """What to ask the registry for."""
        return self.digest or self.tag

    def __str__(self) -> str:
        return f"{self.host}/{self.name}:{self.tag}"

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read a reference; `debian:12` is on Docker Hub. Raises UsageError for anything else."""
        match = REFERENCE.fullmatch(text)
        if match is None:
            raise UsageError(
                f"`{text}` is not the reference of an image", hint="for example docker.io/library/debian:12"
            )
        host = (match["host"] or HUB).rstrip("/")
        name = match["name"]
        if host == HUB and "/" not in name:
            name = f"library/{name}"
        return cls(host=host, name=name, tag=match["tag"] or DEFAULT_TAG, digest=match["digest"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a repository is asked for: base address, repository, and the reference host it stands for."""

    address: str
    host: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteImage:
    """One image for one platform as a registry has it.

    `reference` is the name without digest, `source` the reference by digest that an engine pulls (a mirror's
    where one is configured), `digest` names the platform's manifest, `index` the list that it came from.
    `environment` is what the image sets, `size` the bytes of its layers as transferred.
    """

    reference: str
    source: str
    digest: str
    index: str | None
    platform: str
    environment: Mapping[str, str]
    size: int


def find_image(image: str, arch: str, *, seconds: float = LIMIT) -> RemoteImage:
    """Resolve a reference for linux/`arch` within `seconds`, reading manifests and configuration alone.

    Raises UsageError for a malformed reference or mirror, OutsideError with the way out for everything
    that a registry or the way to it can refuse.
    """
    from imagebuilder.host.reach import together
    from imagebuilder.registry.distribution import Session

    reference = Reference.parse(image)
    place = place_of(reference)
    session = Session(place, seconds=seconds)
    # the limit outside covers what a socket's limit does not: a resolver of names that hangs
    found = together({"image": lambda: _read(session, reference, arch)}, seconds=seconds + 1)
    if "image" not in found:
        raise OutsideError(
            f"the registry `{place.host}` did not answer within {seconds:.0f} s",
            why="neither a connection nor a refusal",
            hint="imgbuild doctor",
        )
    return found["image"]


def place_of(reference: Reference) -> Place:
    """Give where a reference is asked for: its own registry, or the configured mirror of Docker Hub."""
    mirror = os.environ.get("IMGBUILD_REGISTRY_MIRROR")
    if reference.host != HUB or not mirror:
        host = HUB_HOST if reference.host == HUB else reference.host
        return Place(address=f"{_scheme(host)}{host}", host=reference.host, name=reference.name)
    match = MIRROR.fullmatch(mirror)
    if match is None:
        raise UsageError(
            "IMGBUILD_REGISTRY_MIRROR is not the address of a registry", why="wanted: HOST[:PORT][/PREFIX]"
        )
    host = match["host"]
    name = f"{match['prefix'].lstrip('/')}/{reference.name}".lstrip("/")
    return Place(address=f"{match['scheme'] or _scheme(host)}{host}", host=host, name=name)


def build_contexts(image: str, digest: str) -> dict[str, str]:
    """Give the build contexts (`--build-context NAME=VALUE`) that let a build take a base from the mirror.

    The Dockerfile goes on naming `image` by `digest`; without a mirror there is nothing to replace.
    """
    reference = Reference.parse(image)
    place = place_of(reference)
    if place.host == reference.host:
        return {}
    return {f"{image}@{digest}": f"docker-image://{place.host}/{place.name}@{digest}"}


def _scheme(host: str) -> str:
    return "http://" if host.partition(":")[0] in ("localhost", "127.0.0.1") else "https://"


def _read(session: Session, reference: Reference, arch: str) -> RemoteImage:
    try:
        return _find(session, reference, arch)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OutsideError(
            f"the registry `{session.place.host}` sent a manifest of `{reference}` that cannot be read",
            why=f"{type(error).__name__}: {error}",
            hint=f"docker buildx imagetools inspect {reference}",
        ) from error


def _find(session: Session, reference: Reference, arch: str) -> RemoteImage:
    kind, document, digest = session.manifest(reference.wanted, INDEXES + MANIFESTS)
    index = None
    if kind in INDEXES:
        index = digest
        _, document, digest = session.manifest(_for_platform(document, arch, reference), MANIFESTS)
    config = session.config(document["config"]["digest"])
    platform = f"{config.get('os')}/{config.get('architecture')}"
    if platform != f"linux/{arch}":
        raise _no_platform(reference, arch, [platform])
    return RemoteImage(
        reference=str(reference),
        source=f"{session.place.host}/{session.place.name}@{digest}",
        digest=digest,
        index=index,
        platform=platform,
        environment=_environment(config),
        size=sum(int(layer["size"]) for layer in document["layers"]),
    )


def _for_platform(index: Mapping[str, Any], arch: str, reference: Reference) -> str:
    """Give the digest of the manifest for linux/`arch`; attestations have the platform unknown/unknown."""
    offered: dict[str, str] = {}
    for entry in index["manifests"]:
        platform = entry.get("platform") or {}
        name = f"{platform.get('os')}/{platform.get('architecture')}"
        offered.setdefault(name, str(entry["digest"]))
    if f"linux/{arch}" not in offered:
        raise _no_platform(reference, arch, sorted(set(offered) - {"unknown/unknown"}))
    return offered[f"linux/{arch}"]


def _no_platform(reference: Reference, arch: str, offered: list[str]) -> OutsideError:
    return OutsideError(
        f"`{reference}` has no image for linux/{arch}",
        why=f"it has {', '.join(offered) or 'none'}",
        hint=f"docker buildx imagetools inspect {reference}",
    )


def _environment(config: Mapping[str, Any]) -> dict[str, str]:
    entries = (config.get("config") or {}).get("Env") or []
    return {name: value for name, _, value in (str(entry).partition("=") for entry in entries)}


def digest_of(content: bytes) -> str:
    """Name content as registries do."""
    return f"sha256:{sha256(content).hexdigest()}"


def read_json(content: bytes, what: str) -> dict[str, Any]:
    """Read an object; raises OutsideError where a registry sent something else."""
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise OutsideError(
            f"{what} is not JSON",
            why="something between here and the registry answers in its place",
            hint="imgbuild doctor",
        )
    return document
