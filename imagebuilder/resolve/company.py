"""Other frameworks that the user's requirements bring into the image: they share its CUDA libraries.

One that pins its libraries decides the CUDA sets: a framework that takes ranges gets just these pins. Two
that pin apart cannot be in one image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from imagebuilder.matrix.sets import takes
from imagebuilder.matrix.words import Cuda

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from packaging.requirements import Requirement

    from imagebuilder.matrix.facts import Build, CudaSet, Matrix
    from imagebuilder.resolve.offers import Offer

PYPI = "pypi"
Clash = tuple[str, str, Version, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """One other framework: the `line` that asks for it, and the builds that the line allows, newest first.

    They are those of the default index, since requirements come from there. `wanted` is the package with
    the extras of the line.
    """

    line: str
    framework: str
    wanted: str
    builds: tuple[tuple[Version, Build], ...]


def company_of(matrix: Matrix, name: str, requirements: Sequence[Requirement]) -> tuple[Company, ...]:
    """Give the frameworks with CUDA among requirements that are not the one of this name.

    Lines with markers are left to the lock, which knows the image's environment, and so are lines without
    the extra that brings the CUDA libraries: `jax` alone is for the CPU.
    """
    packages = {row.package: key for key, row in matrix.frameworks.items() if key != name}
    found = []
    for line in requirements:
        package = canonicalize_name(line.name)
        if line.marker is not None or package not in packages:
            continue
        builds = tuple(_builds(matrix, packages[package], line))
        brought = tuple(one for one in builds if set(one[1].extras) <= line.extras)
        if brought or not builds:
            extras = f"[{','.join(sorted(line.extras))}]" if line.extras else ""
            found.append(
                Company(
                    line=str(line),
                    framework=packages[package],
                    wanted=f"{package}{extras}",
                    builds=brought,
                )
            )
    return tuple(found)


def with_company(matrix: Matrix, company: Sequence[Company]) -> Matrix:
    """Give the facts with the CUDA sets as the company decides them."""
    sets: Mapping[str, CudaSet] = matrix.cuda_sets
    for one in company:
        sets = {cuda: _joined(one, cuda, row) for cuda, row in sets.items()}
    return replace(matrix, cuda_sets=sets) if company else matrix


def agrees(company: Company, offer: Offer) -> bool:
    """Tell whether one of the builds takes every CUDA library as an offer has it.

    An offer whose libraries no source names agrees with no build that asks for some.
    """
    return any(
        _is_of(build, offer.cuda)
        and (_names_libraries(offer.build) or not _names_libraries(build))
        and not any(_clashes(offer.build, build))
        for _, build in company.builds
    )


def clash_of(company: Company, offer: Offer) -> Clash | None:
    """Give the first library on which an offer and the newest build of its CUDA do not agree.

    As the library, what the offer's build asks for, the other release, and what that asks for. What the
    build itself asks for counts before what it has of a CUDA set.
    """
    for version, build in company.builds:
        if not _is_of(build, offer.cuda):
            continue
        for ours in (offer.release.builds[offer.variant], offer.build):
            for name, held, wanted in _clashes(ours, build):
                return name, held, version, wanted
        return None
    return None


def _builds(matrix: Matrix, framework: str, line: Requirement) -> Iterator[tuple[Version, Build]]:
    releases = matrix.frameworks[framework].releases
    for version in sorted(map(Version, releases), reverse=True):
        release = releases[str(version)]
        named = line.specifier.contains(version, prereleases=True)
        if not named or (release.yanked and not any(one.operator == "==" for one in line.specifier)):
            continue
        for build in release.builds.values():
            if build.source == PYPI and not build.unusable and not build.is_cpu_only:
                yield version, build


def _joined(company: Company, cuda: str, row: CudaSet) -> CudaSet:
    """Give a CUDA set with the pins of the newest build that has its CUDA, if that pins at all."""
    for version, build in company.builds:
        low = build.cuda_from
        if low is not None and low.major == Cuda.parse(cuda).major and low <= Cuda.parse(cuda):
            return row
        if str(build.cuda) == cuda:
            exact = {
                name: Version(pin)
                for name, pin in build.pins.items()
                if name.startswith("nvidia-") and _is_exact(pin)
            }
            return replace(
                row,
                framework=company.framework,
                release=version,
                pins={**row.pins, **exact},
                fixed=(*row.fixed, *exact),
            )
    return row


def _is_of(build: Build, cuda: Cuda) -> bool:
    known = build.cuda or build.cuda_from
    return known is not None and known.major == cuda.major


def _clashes(ours: Build, theirs: Build) -> Iterator[tuple[str, str, str]]:
    """Give each library that two builds ask for apart: its name and what each asks for."""
    for name, wanted in theirs.pins.items():
        held = ours.pins.get(name)
        if held is not None and name.startswith("nvidia-") and not _agree(held, wanted):
            yield name, held, wanted


def _agree(one: str, other: str) -> bool:
    """Tell whether a version meets the other pin; two ranges, or what is neither, are not judged."""
    if _is_exact(one) and _is_exact(other):
        return Version(one) == Version(other)
    if _is_exact(one) or _is_exact(other):
        exact, spec = (one, other) if _is_exact(one) else (other, one)
        return "[" in spec or takes(spec, Version(exact))
    return True


def _names_libraries(build: Build) -> bool:
    return any(name.startswith(("nvidia-", "cuda-")) for name in build.pins)


def _is_exact(pin: str) -> bool:
    return pin[:1].isdigit() and "[" not in pin and "*" not in pin
