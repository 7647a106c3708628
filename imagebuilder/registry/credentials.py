"""What the docker command line knows of registries: the credentials that `docker login` stored."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Seconds that a credential helper may take; one that waits for a person never answers.
HELPER_SECONDS = 10
HUB_KEY = "https://index.docker.io/v1/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user name and its secret."""

    user: str
    secret: str = field(repr=False)


def credentials(host: str) -> Credentials | None:
    """Give the stored credentials of a registry, None where there are none that can be read.

    Reads config.json in DOCKER_CONFIG or ~/.docker, and asks the credential helper that it names. A login
    that stored an identity token instead of a password is not used.
    """
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        document = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    key = HUB_KEY if host == "docker.io" else host
    helper = _table(document, "credHelpers").get(key) or document.get("credsStore")
    if isinstance(helper, str) and helper:
        return _from_helper(helper, key)
    entry = _table(document, "auths")
    return _from_entry(entry.get(key) or entry.get(f"https://{key}"))


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _from_entry(entry: object) -> Credentials | None:
    from base64 import b64decode

    if not isinstance(entry, dict) or not isinstance(entry.get("auth"), str):
        return None
    try:
        user, colon, secret = b64decode(entry["auth"]).decode().partition(":")
    except ValueError:
        return None
    return Credentials(user=user, secret=secret) if colon else None


def _from_helper(helper: str, key: str) -> Credentials | None:
    import subprocess

    if "/" in helper:
        return None
    try:
        done = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=key,
            capture_output=True,
            text=True,
            timeout=HELPER_SECONDS,
        )
        answer = json.loads(done.stdout) if done.returncode == 0 else {}
        found = Credentials(user=answer["Username"], secret=answer["Secret"])
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        return None
    return found if found.user != "<token>" else None
