"""What the indexes offer of a framework: one value for each build, machine and index, best first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from imagebuilder.matrix.sets import builds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.specifiers import SpecifierSet

    from imagebuilder.matrix.facts import Build, Framework, Machine, Matrix, Release, Wheels
    from imagebuilder.matrix.words import Cuda


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One build of one release for one machine, as one index serves it.

    `pip` is the version by which that index has it. `code` names the code it holds: offers with equal `code`
    run on the same compute capabilities.
    """

    source: str
    version: Version
    pip: Version
    release: Release
    variant: str
    build: Build
    cuda: Cuda
    machine: Machine
    wheels: Wheels
    code: tuple[str, ...]


def offers_of(matrix: Matrix, framework: Framework, sources: tuple[str, ...]) -> list[Offer]:
    """Give every GPU build of a framework in the order of preference: source, release, CUDA, grade."""
    offers = [
        offer
        for text, release in framework.releases.items()
        for offer in _of_release(matrix, Version(text), release)
    ]
    offers.sort(key=lambda offer: (offer.build.grade, offer.variant, offer.machine))
    offers.sort(key=lambda offer: (offer.version, offer.cuda), reverse=True)
    offers.sort(key=lambda offer: sources.index(offer.source))
    return offers


def _of_release(matrix: Matrix, version: Version, release: Release) -> Iterator[Offer]:
    """Give the offers of a release; a build that takes ranges is one for each CUDA set.

    Where an index has a CPU-only wheel of a version for a machine, it has no GPU wheel of the same version
    for it: the two would be one file. Another index may, under a local version (2.10.0+cu128).
    """
    cpu_only = {
        (build.source, machine, build.version)
        for build in release.builds.values()
        if build.is_cpu_only
        for machine in build.wheels
    }
    for variant, build in builds_of(matrix, release):
        if build.cuda is None:
            continue
        local = Version(build.local_version or str(build.version))
        served = [(build.source, build.version), *((source, local) for source in build.also_on)]
        for machine, wheels in build.wheels.items():
            code = _code(build, build.cuda, machine, wheels)
            for source, pip in served:
                if (source, machine, pip) not in cpu_only:
                    yield Offer(
                        version=version, release=release, variant=variant, build=build, cuda=build.cuda,
                        machine=machine, wheels=wheels, code=code, source=source, pip=pip,
                    )  # fmt: skip


def _code(build: Build, cuda: Cuda, machine: Machine, wheels: Wheels) -> tuple[str, ...]:
    targets = (target.text for target in (*wheels.cubin, *wheels.ptx))
    compiled = (
        str(cuda if build.compiles_from else cuda.major),
        f"{build.compiles_from}-{build.compiles_to}",
    )
    return (machine, str(build.cudnn), *compiled, *map(str, build.fails_on), *targets)


def is_named(version: Version, spec: SpecifierSet) -> bool:
    """Tell whether a specifier names just this version."""
    return any(
        one.operator in ("==", "===")
        and not one.version.endswith("*")
        and Version(one.version).public == str(version)
        for one in spec
    )
