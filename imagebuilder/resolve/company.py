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
Clash = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """One other framework: the `line` that asks for it, and the builds that the line allows, newest first.

    They are those of the default index, since requirements come from there.
    """

    line: str
    framework: str
    package: str
    builds: tuple[tuple[Version, Build], ...]


def company_of(matrix: Matrix, name: str, requirements: Sequence[Requirement]) -> tuple[Company, ...]:
    """Give the frameworks among requirements that are not the one of this name.

    Lines with markers are left to the lock, which knows the image's environment.
    """
    packages = {row.package: key for key, row in matrix.frameworks.items() if key != name}
    return tuple(
        Company(
            line=str(line),
            framework=packages[package],
            package=package,
            builds=tuple(_builds(matrix, packages[package], line)),
        )
        for line in requirements
        if line.marker is None and (package := canonicalize_name(line.name)) in packages
    )


def with_company(matrix: Matrix, company: Sequence[Company]) -> Matrix:
    """Give the facts with the CUDA sets that the company leaves: none for a CUDA it has no build for."""
    sets: Mapping[str, CudaSet] = matrix.cuda_sets
    for one in company:
        joined = {cuda: _joined(one, cuda, row) for cuda, row in sets.items()}
        sets = {cuda: row for cuda, row in joined.items() if row is not None}
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
    """Give the first library on which the newest build of an offer's CUDA, or the newest, does not agree.

    As the library, what the offer has of it, and what the company asks for with its version before it.
    """
    ours = sorted(company.builds, key=lambda item: _is_of(item[1], offer.cuda), reverse=True)
    for version, build in ours[:1]:
        for name, held, wanted in _clashes(offer.build, build):
            return name, held, f"{company.package} {version} asks for {wanted}"
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


def _joined(company: Company, cuda: str, row: CudaSet) -> CudaSet | None:
    """Give a CUDA set as the company's newest build that can have it leaves it."""
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
    return None


def _is_of(build: Build, cuda: Cuda) -> bool:
    known = build.cuda or build.cuda_from
    return known is not None and known.major == cuda.major


def _clashes(ours: Build, theirs: Build) -> Iterator[Clash]:
    """Give each library that a build has exactly and another does not take: name, held, wanted."""
    for name, wanted in theirs.pins.items():
        held = ours.pins.get(name, "")
        if not name.startswith("nvidia-") or not _is_exact(held):
            continue
        fits = Version(wanted) == Version(held) if _is_exact(wanted) else takes(wanted, Version(held))
        if not fits:
            yield name, held, wanted


def _names_libraries(build: Build) -> bool:
    return any(name.startswith(("nvidia-", "cuda-")) for name in build.pins)


def _is_exact(pin: str) -> bool:
    return pin[:1].isdigit() and "[" not in pin and "*" not in pin
