"""Which releases of companion packages ask for which release of a framework, from their own metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from imagebuilder.remote.project import wheels_of
from imagebuilder.remote.wheel import metadata_of
from imagebuilder.update.requirements import requirements
from imagebuilder.update.wheels import for_machine, python_of, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.specifiers import SpecifierSet

    from imagebuilder.matrix.words import Python
    from imagebuilder.remote.client import Client
    from imagebuilder.remote.project import WheelFile

_MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """One release of a companion: what it asks of the framework's package."""

    package: str
    version: Version
    framework: str
    asks: SpecifierSet

    @property
    def exact(self) -> Version | None:
        """The release that it pins, None where it takes a range."""
        text = str(self.asks)
        return Version(text[2:]) if text.startswith("==") and "," not in text and "*" not in text else None


def companions(
    client: Client, package: str, framework: str, python: Python, since: str | None
) -> Iterator[Companion]:
    """Give the releases of one companion that say which `framework` (its package) they want.

    Those whose every wheel was there before `since`, a date, cannot ask for what came out then: they are not
    read. Raises OutsideError.
    """
    files: dict[Version, list[WheelFile]] = {}
    for file in wheels_of(client, package):
        if not file.version.is_prerelease and file.yanked is None:
            files.setdefault(file.version, []).append(file)
    for version, held in sorted(files.items()):
        machine = next((one for one in _MACHINES if for_machine(held, one)), None)
        if machine is None or (since and all(file.uploaded and file.uploaded < since for file in held)):
            continue
        file = sample(for_machine(held, machine), machine, python)
        metadata = metadata_of(client, file)
        for asked in requirements(metadata, file, machine, python_of(file, machine, python)):
            if asked.name == framework and asked.written.specifier:
                yield Companion(
                    package=package, version=version, framework=framework, asks=asked.written.specifier
                )


def beside(held: list[Companion], release: Version) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Give the companions of one release, and the source of each.

    Those that pin it; where none does, those whose range takes it in.
    """
    found: dict[str, list[str]] = {}
    src: dict[str, str] = {}
    for package in dict.fromkeys(one.package for one in held):
        own = [one for one in held if one.package == package]
        pinned = [one for one in own if one.exact is not None and one.exact == release]
        ranged = [one for one in own if one.exact is None and release in one.asks]
        if taken := pinned or ranged:
            how = (
                "exact pin in the companion wheel"
                if pinned
                else f"companion wheel asks for {ranged[-1].framework}{ranged[-1].asks}"
            )
            found[package] = [str(one.version) for one in taken]
            src[f"companions.{package}"] = f"pypi-meta ({how})"
    return found, src
