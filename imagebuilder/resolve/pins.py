"""The packages of a stack: what its build pins exactly, what it leaves open, what stands beside it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.matrix.sets import rest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagebuilder.matrix.facts import PackageRelease, Release
    from imagebuilder.matrix.words import Python
    from imagebuilder.resolve.candidates import Candidate, Space

TRITON = "triton"
_PIN = re.compile(r"(?P<spec>[^\[\]]*?)\s*(?P<extras>\[[^\[\]]+\])?")


def has_triton(release: Release, python: Python) -> bool:
    """Tell whether the release asks for triton on this Python: its requirement carries its own marker."""
    return release.triton_python_below is None or python < release.triton_python_below


def pins(candidate: Candidate) -> tuple[dict[str, str], dict[str, str]]:
    """Give the exact pins of a build, and what it asks of CUDA packages that it does not pin."""
    build, release = candidate.offer.build, candidate.offer.release
    exact: dict[str, str] = {}
    open_: dict[str, str] = {}
    for name, text in build.pins.items():
        if name == TRITON and not has_triton(release, candidate.base.python):
            continue
        found = _PIN.fullmatch(text)
        spec, extras = (found["spec"], found["extras"] or "") if found else (text, "")
        if not extras and spec[:1].isdigit() and not spec.endswith(".*"):
            exact[name] = str(Version(spec))
        else:
            open_[name] = extras + str(SpecifierSet(spec if spec[:1] in "<>=!~" else f"=={spec}"))
    return exact, open_


def requirements(space: Space, candidate: Candidate) -> dict[str, SpecifierSet]:
    """Give what else is known to fit: the release's requirements, its companions, the known breaks."""
    offer = candidate.offer
    known: dict[str, SpecifierSet] = dict(offer.release.requires)

    def add(name: str, spec: SpecifierSet) -> None:
        known[name] = known[name] & spec if name in known else spec

    for name, versions in offer.release.companions.items():
        add(name, companion_spec(versions))
    for name, ceiling in offer.release.ceilings.items():
        add(name, ceiling.spec)
    for clash in space.matrix.clashes:
        if clash.framework == space.name and clash.spec.contains(offer.version, prereleases=True):
            add(clash.package, clash.needs)
    return known


def companion_spec(versions: tuple[Version, ...]) -> SpecifierSet:
    """Give the specifier of the companion versions that belong to a release."""
    low, high = min(versions), max(versions)
    return SpecifierSet(f"=={low}" if low == high else f">={low},<={high}")


def beside(
    candidate: Candidate, releases: Mapping[str, PackageRelease], spec: SpecifierSet
) -> Version | None:
    """Give the newest release of a package that has a wheel for the candidate's base and meets `spec`."""
    fitting = [
        version
        for text, release in releases.items()
        if not (version := Version(text)).is_prerelease
        and spec.contains(version)
        and _installs(release, candidate)
    ]
    return max(fitting, default=None)


def _installs(release: PackageRelease, candidate: Candidate) -> bool:
    """Tell whether a release has a wheel for the base; one without any glibc floor is pure Python."""
    if candidate.base.python.tag not in release.python:
        return False
    if not release.glibc:
        return True
    floor = release.glibc.get(candidate.offer.machine)
    return floor is not None and floor <= candidate.base.glibc


def packages(space: Space, candidate: Candidate) -> tuple[dict[str, str], dict[str, str]]:
    """Give a stack's exact packages and its constraints on others, both sorted by name."""
    exact, constraints = pins(candidate)
    exact[space.framework.package] = str(candidate.offer.pip)
    known = requirements(space, candidate)
    for name in space.framework.beside:
        newest = beside(candidate, space.matrix.packages.get(name, {}), known.get(name, SpecifierSet()))
        if newest:
            exact[name] = str(newest)
    constraints.update((name, str(spec)) for name, spec in known.items() if name not in constraints)
    row = space.matrix.cuda_sets.get(str(candidate.offer.cuda))
    if row is not None and (space.company or candidate.offer.build.cuda_from is not None):
        constraints.update(rest_of(row, candidate.offer.build))
    return dict(sorted(exact.items())), dict(sorted(constraints.items()))
