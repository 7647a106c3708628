"""apt asked what it would install: names, versions, sizes and hashes, without installing anything.

A bootstrapped base is asked about with the host's own apt in a folder of its own; a base from a registry
in a container of it. IMGBUILD_APT_MIRROR stands in for the distribution's archive: `ADDRESS` holds the
release and its updates, and security updates lie at `ADDRESS-security` for Debian, beside them for Ubuntu.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from imagebuilder.base import Deb
from imagebuilder.errors import OutsideError, UsageError
from imagebuilder.network import ca_bundle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imagebuilder.base import Arch
    from imagebuilder.engine import Engine
    from imagebuilder.matrix.facts import Base

# Seconds that apt may take to read the archive's lists and to answer.
LIMIT = 300
COMPONENTS = {"debian": "main", "ubuntu": "main universe"}

# `'ADDRESS' FILENAME SIZE SHA256:HASH`, as --print-uris prints with Acquire::ForceHash
LINE = re.compile(
    r"'[^']+' (?P<file>[^\s_]+_[^\s_]+_[^\s_]+\.deb) (?P<size>\d+) SHA256:(?P<hash>[0-9a-f]{64})"
)
MIRROR = re.compile(r"https?://[^\s\"'<>\\$`\[\]]+")
# The address of a snapshot has its time in it; such an archive's lists are past their date on purpose.
SNAPSHOT = re.compile(r"/[0-9]{8}T[0-9]{6}Z")

NETWORK = (
    "-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30",
    "-o", "Acquire::Languages=none",
)  # fmt: skip
QUESTION = ("-o", "Acquire::ForceHash=SHA256", "-qq", "--no-install-recommends", "--print-uris", "--yes")

IN_CONTAINER = """\
set -eu
if [ -s /tmp/imgbuild-ca ]; then set -- -o Acquire::https::CAInfo=/tmp/imgbuild-ca "$@"; fi
if [ -s /tmp/imgbuild-sources ]; then
    set -- -o Dir::Etc::sourcelist=/tmp/imgbuild-sources -o Dir::Etc::sourceparts=/dev/null "$@"
fi
apt-get "$@" -qq update
# shellcheck disable=SC2086 # one word a package
apt-get "$@" -o Acquire::ForceHash=SHA256 -qq --no-install-recommends --print-uris --yes install $PACKAGES \\
    >/tmp/imgbuild-uris
"""


def mirror_sources(base: Base) -> str | None:
    """Give apt's sources for the configured mirror, None without one; raises UsageError for a broken one."""
    mirror = os.environ.get("IMGBUILD_APT_MIRROR", "").rstrip("/")
    if not mirror:
        return None
    if not MIRROR.fullmatch(mirror):
        raise UsageError("IMGBUILD_APT_MIRROR is not an http(s) address", hint="unset IMGBUILD_APT_MIRROR")
    late = "check-valid-until=no " if SNAPSHOT.search(mirror) else ""
    options = f"[{late}signed-by=/usr/share/keyrings/{base.distribution}-archive-keyring.gpg]"
    security = f"{mirror}-security" if base.distribution == "debian" else mirror
    rows = ((mirror, base.suite), (mirror, f"{base.suite}-updates"), (security, f"{base.suite}-security"))
    components = COMPONENTS[base.distribution]
    return "".join(f"deb {options} {address} {suite} {components}\n" for address, suite in rows)


def read_uris(text: str) -> tuple[Deb, ...]:
    """Read what `apt-get --print-uris` printed, by name; raises OutsideError for anything else."""
    debs = []
    for line in filter(None, map(str.strip, text.splitlines())):
        match = LINE.fullmatch(line)
        if match is None:
            raise OutsideError(
                "apt names a package without its hash", why=f"it printed `{line}`", hint="imgbuild doctor"
            )
        name, version, arch = match["file"].removesuffix(".deb").split("_")
        debs.append(
            Deb(
                name=name,
                version=unquote(version),
                arch=arch,
                filename=match["file"],
                size=int(match["size"]),
                sha256=match["hash"],
            )
        )
    return tuple(sorted(debs, key=lambda deb: deb.name))


class AptFolder:
    """The host's apt in a folder of its own: nothing of the host's packages or sources enters an answer."""

    def __init__(self, folder: Path, arch: Arch, sources: str, status: bytes) -> None:
        """Lay out `folder` for the packages in `status` (a dpkg status file) and apt's `sources`."""
        self._folder = folder
        for part in ("lists/partial", "cache/archives/partial", "log"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "sources.list").write_text(sources)
        (folder / "status").write_bytes(status)
        (folder / "apt.conf").write_text(_settings(folder, arch))

    def update(self) -> None:
        """Read the archive's lists, as far as they changed; raises OutsideError."""
        self._apt_get("-qq", "-o", "APT::Update::Error-Mode=any", "update")

    def uris(self, *words: str) -> tuple[Deb, ...]:
        """Give the packages that an apt-get command would fetch; raises OutsideError."""
        return read_uris(self._apt_get(*QUESTION, *words))

    def _apt_get(self, *words: str) -> str:
        import subprocess

        environment = {**os.environ, "APT_CONFIG": str(self._folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(
                ["apt-get", *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT,
            )
        except FileNotFoundError as error:
            raise OutsideError("this host has no `apt-get`", hint="imgbuild doctor") from error
        except subprocess.TimeoutExpired as error:
            raise OutsideError(f"apt did not end within {LIMIT} s", hint="imgbuild doctor") from error
        if done.returncode:
            raise apt_failure(done.stderr)
        return done.stdout


def _settings(folder: Path, arch: Arch) -> str:
    """Write apt's configuration; the host's own files are left out except its keys."""
    values = {
        "Dir::State": str(folder),
        "Dir::State::lists": str(folder / "lists"),
        "Dir::State::status": str(folder / "status"),
        "Dir::Cache": str(folder / "cache"),
        "Dir::Log": str(folder / "log"),
        "Dir::Etc::sourcelist": str(folder / "sources.list"),
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::Etc::parts": "/dev/null",
        "Dir::Etc::main": "/dev/null",
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        # apt's own user may not read the cache folder of a person
        "APT::Sandbox::User": "root",
        **dict(option.split("=") for option in NETWORK if option != "-o"),
    }
    ca = ca_bundle()
    if ca is not None:
        values["Acquire::https::CAInfo"] = str(ca)
    return "".join(f'{name} "{value}";\n' for name, value in values.items())


def debs_in_container(
    engine: Engine, image: str, arch: Arch, base: Base, packages: Sequence[str]
) -> tuple[Deb, ...]:
    """Ask the apt of an image, in a container that is removed, what `packages` need on top of it.

    Raises OutsideError where the image cannot be pulled or its apt cannot answer.
    """
    from imagebuilder.engine import Run

    files = {"imgbuild-lock": IN_CONTAINER.encode()}
    ca, sources = ca_bundle(), mirror_sources(base)
    if ca is not None:
        files["imgbuild-ca"] = ca.read_bytes()
    if sources is not None:
        files["imgbuild-sources"] = sources.encode()
    engine.pull(image, f"linux/{arch}")
    outcome = engine.run(
        Run(
            image=image,
            entrypoint=["/bin/sh", "/tmp/imgbuild-lock", *NETWORK],  # noqa: S108 (in a container of our own)
            command=[],
            environment={**_proxies(), "PACKAGES": " ".join(packages)},
            user="0",
            files=files,
            files_at="/tmp",  # noqa: S108
            take="/tmp/imgbuild-uris",  # noqa: S108
            network=None,
            timeout=LIMIT,
        )
    )
    if outcome.exit_code != 0 or outcome.taken is None:
        raise apt_failure(outcome.logs or f"it did not end within {LIMIT} s")
    return read_uris(outcome.taken.decode())


def _proxies() -> dict[str, str]:
    names = ("http_proxy", "https_proxy", "no_proxy")
    found = {name: os.environ.get(name) or os.environ.get(name.upper(), "") for name in names}
    return {name: value for name, value in found.items() if value}


# apt's own words, and what to do about them.
HINTS = {
    "Unable to locate package": "imgbuild matrix show; the base does not have that package",
    "certificate": "export SSL_CERT_FILE=/path/to/your-ca-bundle.pem",
    "NO_PUBKEY": "apt-get install debian-archive-keyring ubuntu-keyring",
    "not signed": "apt-get install debian-archive-keyring ubuntu-keyring",
    "exec format error": "apt-get install qemu-user-static binfmt-support",
}


def apt_failure(text: str) -> OutsideError:
    """Say why apt failed, in its own words, without user and password of an address."""
    lines = [line for line in text.splitlines() if line.startswith(("E: ", "W: "))] or text.splitlines()[-3:]
    said = re.sub(r"://[^/@\s]+@", "://", "; ".join(lines))[:400]
    hint = next((hint for words, hint in HINTS.items() if words in text), "imgbuild doctor")
    return OutsideError("the distribution's packages cannot be asked for", why=said or "no answer", hint=hint)
