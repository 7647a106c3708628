"""A root file system made of a distribution's packages alone, where no registry is reachable.

mmdebstrap makes it: the same packages give the same bytes. It is kept in the user's cache, named by its
digest, and made again when the distribution has an update for one of its packages.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from imagebuilder.base import Deb
from imagebuilder.base.apt import AptFolder, mirror_sources
from imagebuilder.base.mmdebstrap import RECIPE, check_host, make

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.base import Arch
    from imagebuilder.matrix.facts import Base


@dataclass(frozen=True, slots=True, kw_only=True)
class RootFs:
    """A bootstrapped base: its tar, the tar's digest, the packages in it, and an apt that knows them."""

    tar: Path
    digest: str
    packages: tuple[Deb, ...]
    apt: AptFolder

    def debs(self, names: tuple[str, ...]) -> tuple[Deb, ...]:
        """Give the packages that `names` need on top of this base; raises OutsideError."""
        return self.apt.uris("install", *names)


def bootstrap(name: str, base: Base, arch: Arch, cache: Path, *, pinned: tuple[Deb, ...] = ()) -> RootFs:
    """Make the base `name`, or take the cache's where the distribution has no update for it.

    `pinned` are the versions wanted, as far as the distribution still has them. Raises OutsideError where
    this host cannot bootstrap or the packages cannot be reached.
    """
    folder = cache / "bases"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / f"{name}-{arch}.busy"):
        record = folder / f"{name}-{arch}.json"
        apt = folder / f"{name}-{arch}.apt"
        known = None if pinned else _known(record, folder, base, arch, apt)
        if known is not None and not known.apt.uris("dist-upgrade"):
            return known
        check_host(base, arch)
        with tempfile.TemporaryDirectory(prefix=".bootstrap-", dir=folder) as work:
            made = make(base, arch, Path(work), pinned)
            digest = _digest(made)
            tar = folder / _file_name(digest)
            made.replace(tar)
        found = _describe(tar, digest, base, arch, apt)
        if not pinned:
            _write(
                record, {"recipe": RECIPE, "digest": digest, "packages": list(map(asdict, found.packages))}
            )
        return found


def cached_tar(digest: str, cache: Path) -> Path | None:
    """Give the tar of a digest from the cache, None where it is not there or not what its name says."""
    tar = cache / "bases" / _file_name(digest)
    return tar if tar.is_file() and _digest(tar) == digest else None


def _file_name(digest: str) -> str:
    return f"{digest.replace(':', '-')}.tar"


def _digest(tar: Path) -> str:
    with tar.open("rb") as stream:
        return f"sha256:{file_digest(stream, 'sha256').hexdigest()}"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process works on the same base."""
    import fcntl

    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _write(record: Path, document: dict[str, object]) -> None:
    beside = record.with_suffix(".part")
    beside.write_text(json.dumps(document))
    beside.replace(record)


def _known(record: Path, folder: Path, base: Base, arch: Arch, apt: Path) -> RootFs | None:
    """Give what the cache has of a base, None unless it is whole and made as we would make it."""
    try:
        document = json.loads(record.read_text())
        packages = tuple(Deb(**entry) for entry in document["packages"])
        digest = str(document["digest"])
        if document["recipe"] != RECIPE:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    tar = folder / _file_name(digest)
    if not tar.is_file():
        return None
    return RootFs(tar=tar, digest=digest, packages=packages, apt=_apt(tar, base, arch, apt))


def _describe(tar: Path, digest: str, base: Base, arch: Arch, apt: Path) -> RootFs:
    """Ask apt for the hashes of the packages that a new base consists of."""
    asked = _apt(tar, base, arch, apt)
    packages = asked.uris("download", *installed(_member(tar, "./var/lib/dpkg/status").decode()))
    return RootFs(tar=tar, digest=digest, packages=packages, apt=asked)


def _apt(tar: Path, base: Base, arch: Arch, folder: Path) -> AptFolder:
    sources = mirror_sources(base) or _member(tar, "./etc/apt/sources.list").decode()
    apt = AptFolder(folder, arch, sources, _member(tar, "./var/lib/dpkg/status"))
    apt.update()
    return apt


def _member(tar: Path, name: str) -> bytes:
    with tarfile.open(tar) as archive:
        stream = archive.extractfile(name)
        return stream.read() if stream else b""


def installed(status: str) -> list[str]:
    """Give the packages of a dpkg status file as apt names them: NAME:ARCH=VERSION."""
    names = []
    for paragraph in status.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " "
        )
        if fields.get("Status") == "install ok installed":
            arch = "" if fields["Architecture"] == "all" else f":{fields['Architecture']}"
            names.append(f"{fields['Package']}{arch}={fields['Version']}")
    return sorted(names)
