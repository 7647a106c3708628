"""What a failed build says, as an error that a person can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.errors import BuildError, OutsideError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagebuilder.buildx.events import Log

# What BuildKit and the tools in the build say, and what that means to the person who reads it.
OUTSIDE: Sequence[tuple[str, str, str]] = (
    # the docker command line itself, which takes `buildx` for a plain argument where the plugin is missing
    (
        "unknown flag: --progress",
        "buildx is missing",
        "install docker-buildx (or docker-buildx-plugin)",
    ),
    ("invalid progress mode rawjson", "buildx is older than 0.13", "./scripts/engine"),
    ("is not a docker command", "buildx is missing", "install docker-buildx (or docker-buildx-plugin)"),
    (
        "unknown command: docker buildx",
        "buildx is missing",
        "install docker-buildx (or docker-buildx-plugin)",
    ),
    ("Cannot connect to the Docker daemon", "no Docker engine answers", "./scripts/engine"),
    ("no such host", "a host name cannot be resolved in the build", "imgbuild doctor"),
    ("error reading from server", "the Docker engine died during the build", "imgbuild doctor"),
    ("closing transport due to", "the Docker engine died during the build", "imgbuild doctor"),
    ("failed to receive status", "the Docker engine died during the build", "imgbuild doctor"),
    ("no builder", "the builder does not exist", "docker buildx ls"),
    ("toomanyrequests", "the registry limits pulls", "docker login, or set IMGBUILD_REGISTRY_MIRROR"),
    (
        "manifest unknown",
        "the base image is gone from its registry",
        "imgbuild lock again to pin the present one",
    ),
)
CHANGED = "a file is not the one locked: build again; if it stays so, compare with a new `imgbuild lock`"
UNTRUSTED = "set SSL_CERT_FILE to the CA bundle of your network: it is passed in as a build secret"
BUILD_HINTS: Sequence[tuple[str, str]] = (
    (
        "no space left on device",
        "docker system df; docker builder prune; imgbuild doctor says how much a build needs",
    ),
    # pip, apt and uv, in this order
    ("CERTIFICATE_VERIFY_FAILED", UNTRUSTED),
    ("certificate verification failed", UNTRUSTED),
    ("invalid peer certificate", UNTRUSTED),
    # uv, pip and sha256sum, in this order
    ("Hash mismatch", CHANGED),
    ("DO NOT MATCH THE HASHES", CHANGED),
    ("computed checksum did NOT match", CHANGED),
    ("exit code: 137", "the builder ran out of memory: give it more, or build with fewer parallel steps"),
)


def failure(code: int, log: Log) -> BuildError | OutsideError:
    """Say which step failed and why; a dead engine or a missing buildx is not a failed build."""
    failed = log.failed
    tail = log.tails.get(failed.id, "") if failed else ""
    words = f"{failed.error if failed else ''}\n{log.plain}\n{tail}"
    last = [
        line.strip()
        for line in (tail or (failed.error or "" if failed else log.plain)).splitlines()
        if line.strip()
    ][-6:]
    for sign, meaning, hint in OUTSIDE:
        if sign in words and "no space left" not in words:
            return OutsideError(meaning, why="\n".join(last) or None, hint=hint)
    hint = next((hint for sign, hint in BUILD_HINTS if sign in words), "imgbuild build --progress plain ...")
    what = f"buildx failed with exit code {code}"
    if failed:
        what = f"the build failed at `{_readable(failed.name)}`"
    return BuildError(what, why="\n".join(last) or None, hint=hint)


def _readable(name: str) -> str:
    """Leave the mounts out of a step's name, which hide what it runs."""
    return " ".join(word for word in name.split() if not word.startswith("--mount="))
