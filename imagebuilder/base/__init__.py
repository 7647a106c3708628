"""Bases: what an image stands on, found in a registry or bootstrapped, and named by digest."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (a lock is read against these hints)
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from imagebuilder.errors import DifferenceError, OutsideError

if TYPE_CHECKING:
    from pathlib import Path

    from imagebuilder.engine import Engine
    from imagebuilder.matrix.facts import Base
    from imagebuilder.registry import RemoteImage

Origin = Literal["registry", "bootstrap"]
Arch = Literal["amd64", "arm64"]

# What the distribution installs on every base. The names are the same in all of them, so which Python and
# which compiler that is follows from the base. `g++` brings gcc: inductor calls the one, Triton the other,
# and both need Python.h. Without `ca-certificates` Python's ssl knows no authority.
PACKAGES = ("python3", "libpython3-dev", "g++", "ca-certificates")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deb:
    """One locked Debian package; `size` in bytes, `filename` as apt stores it (an epoch's colon is `%3a`)."""

    name: str
    version: str
    arch: str
    filename: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedBase:
    """The base: a registry image by manifest digest, or a bootstrapped root file system by its tar's digest.

    `debs` are installed on top of it (Python, and the C compiler that torch.compile needs). `packages` are
    those that a bootstrapped base consists of. `environment` is what a registry image sets for everything
    that is built on it. `note` says how the base was chosen.
    """

    name: str
    origin: Origin
    image: str | None = None
    digest: str
    debs: tuple[Deb, ...]
    packages: tuple[Deb, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None


def lock_base(
    name: str,
    base: Base,
    arch: Arch,
    packages: tuple[str, ...] = PACKAGES,
    *,
    origin: Literal["auto", "registry", "bootstrap"] = "auto",
    cache: Path,
    engine: Engine | None = None,
) -> LockedBase:
    """Name a base and the packages on top of it by hash, as the registry or the distribution has them now.

    `auto` takes the registry when it answers and bootstraps otherwise. `engine` runs apt inside a registry
    base; a bootstrapped one needs none. `cache` is the user's cache folder. Raises OutsideError.
    """
    if origin == "bootstrap":
        return _bootstrapped(name, base, arch, packages, cache, "bootstrapped as asked")
    from imagebuilder.registry import find_image

    try:
        image = find_image(base.image, arch)
    except OutsideError as error:
        if origin == "registry" or not base.bootstrap:
            raise
        return _bootstrapped(name, base, arch, packages, cache, f"bootstrapped, since {error.what}")
    return _from_registry(name, image, arch, packages, base, engine)


def _from_registry(
    name: str, image: RemoteImage, arch: Arch, packages: tuple[str, ...], base: Base, engine: Engine | None
) -> LockedBase:
    from imagebuilder.base.apt import debs_in_container
    from imagebuilder.engine import Engine as Docker

    return LockedBase(
        name=name,
        origin="registry",
        image=image.reference,
        digest=image.digest,
        debs=debs_in_container(engine or Docker.connect(), image.source, arch, base, packages),
        environment=image.environment,
        note="found in the registry",
    )


def _bootstrapped(
    name: str, base: Base, arch: Arch, packages: tuple[str, ...], cache: Path, note: str
) -> LockedBase:
    from imagebuilder.base.bootstrap import bootstrap

    root = bootstrap(name, base, arch, cache)
    return LockedBase(
        name=name,
        origin="bootstrap",
        digest=root.digest,
        debs=root.debs(packages),
        packages=root.packages,
        note=note,
    )


def ensure_base(locked: LockedBase, base: Base, arch: Arch, cache: Path) -> Path | None:
    """Give the tar of a locked base from the cache, or bootstrap it again; None for a registry base.

    Raises OutsideError where the distribution no longer has the locked packages, DifferenceError where it
    has them and the tar differs all the same.
    """
    if locked.origin == "registry":
        return None
    from imagebuilder.base.bootstrap import bootstrap, cached_tar

    tar = cached_tar(locked.digest, cache)
    if tar is not None:
        return tar
    root = bootstrap(locked.name, base, arch, cache, pinned=locked.packages)
    if root.digest == locked.digest:
        return root.tar
    moved = _moved(locked.packages, root.packages)
    if not moved:
        raise DifferenceError(
            f"the base `{locked.name}` has the locked packages and not the locked digest",
            why=f"locked {locked.digest}, bootstrapped {root.digest}: another mmdebstrap or tar made it",
            hint="imgbuild lock",
        )
    raise OutsideError(
        f"the distribution no longer has the locked packages of `{locked.name}`",
        why="; ".join(moved),
        hint="IMGBUILD_APT_MIRROR=ADDRESS of a snapshot that has them, or `imgbuild lock` for today's",
    )


def _moved(locked: tuple[Deb, ...], found: tuple[Deb, ...]) -> list[str]:
    """Say which packages differ between a lock and what the distribution has now."""
    before = {deb.name: deb.version for deb in locked}
    now = {deb.name: deb.version for deb in found}
    return [
        f"{name}: locked {before.get(name, 'not at all')}, now {now.get(name, 'gone')}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
