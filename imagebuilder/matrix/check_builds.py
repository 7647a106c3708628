"""What the releases and builds of a framework must hold against the rest of the matrix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from imagebuilder.matrix.findings import Finding, dangling, odd_tags
from imagebuilder.matrix.sets import sets_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.matrix.facts import Build, CudaSet, Framework, Matrix, Release, Wheels
    from imagebuilder.matrix.read import Where
    from imagebuilder.matrix.words import Cuda, Target

_FRAMEWORK = re.compile(r"[a-z][a-z0-9_-]*")
_PACKAGE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# No character that a shell or a Dockerfile acts on, no user, no query.
_PART = r"[A-Za-z0-9._~%+:/=,-]"
_ADDRESS = re.compile(rf"https?://{_PART}+(\{{variant\}}{_PART}*)?")
_PIN = re.compile(r"(?P<spec>[^ \[\]]+)( \[[a-z0-9-]+(,[a-z0-9-]+)*\])?")


def check_framework(matrix: Matrix, name: str, framework: Framework) -> Iterator[Finding]:
    """Find what is wrong with a framework."""
    where: Where = ("frameworks", name)
    if not _FRAMEWORK.fullmatch(name):
        yield Finding(where, f"`{name}` is not the name of a framework such as `pytorch`")
    for other, rival in matrix.frameworks.items():
        for alias in framework.aliases:
            if alias == other or (other < name and alias in rival.aliases):
                yield Finding((*where, "aliases"), f"`{alias}` already names `{other}`")
    yield from _package((*where, "package"), framework.package)
    for index, address in framework.indexes.items():
        if not _ADDRESS.fullmatch(address):
            yield Finding(
                (*where, "indexes", index), f"`{address}` is not an address with at most one `{{variant}}`"
            )
    for number, package in enumerate(framework.beside):
        yield from dangling((*where, "beside", number), "package", package, matrix.packages, ("packages",))
    for version, release in framework.releases.items():
        yield from _release(matrix, framework, (*where, "releases", version), release)


def _release(matrix: Matrix, framework: Framework, where: Where, release: Release) -> Iterator[Finding]:
    version = str(where[-1])
    for fact in ("requires", "companions", "ceilings"):
        for package in getattr(release, fact):
            yield from _package((*where, fact, package), package)
    for package, ceiling in release.ceilings.items():
        if ceiling.first_without is not None and ceiling.first_without <= _version(version):
            place = (*where, "ceilings", package, "first_without")
            yield Finding(place, f"`{ceiling.first_without}` is not newer than the release itself")
    if release.triton is not None:
        yield from _pin((*where, "triton"), release.triton)
    if not release.builds:
        yield Finding((*where, "builds"), "is empty; a release has at least one build")
    for variant, build in release.builds.items():
        place = (*where, "builds", variant)
        yield from _build(matrix, framework, place, build)
        for machine, wheels in build.wheels.items():
            yield from _wheels(matrix, build, (*place, "wheels", machine), wheels)
            yield from _pythons((*place, "wheels", machine, "python"), wheels, release.requires_python)


def _build(matrix: Matrix, framework: Framework, where: Where, build: Build) -> Iterator[Finding]:
    yield from _served(framework, where, build)
    for number, extra in enumerate(build.extras):
        yield from _package((*where, "extras", number), extra)
    if build.unusable is not None:
        return
    for machine, wheels in build.wheels.items():
        if not wheels.python:
            yield Finding(
                (*where, "wheels", machine, "python"), "is empty; wheels are for at least one Python"
            )
    if not build.wheels:
        yield Finding((*where, "wheels"), "is empty; a build has wheels for at least one machine")
    if build.cuda_from is not None:
        yield from _ranges(matrix, where, build, build.cuda_from)
    elif build.cuda is not None:
        yield from _libraries(matrix, where, build, build.cuda)
    else:
        yield from _without_cuda(where, build)


def _served(framework: Framework, where: Where, build: Build) -> Iterator[Finding]:
    """Check which index serves a build, and under which version."""
    version, variant = str(where[-3]), str(where[-1])
    indexes = ("pypi", *framework.indexes)
    for fact, name in (("source", build.source), *(("also_on", one) for one in build.also_on)):
        yield from dangling((*where, fact), "index", name, indexes)
    if build.source in build.also_on:
        yield Finding((*where, "also_on"), f"`{build.source}` is its source already")
    if build.version.public != version:
        yield Finding((*where, "version"), f"`{build.version}` is not a build of release `{version}`")
    if build.source != "pypi" and build.version.local not in (None, variant):
        yield Finding(
            (*where, "version"), f"`{build.version}` is not the variant `{variant}`: it wants `+{variant}`"
        )
    if build.local_version not in (None, f"{version}+{variant}"):
        yield Finding((*where, "local_version"), f"`{build.local_version}` is not `{version}+{variant}`")


def _ranges(matrix: Matrix, where: Where, build: Build, cuda: Cuda) -> Iterator[Finding]:
    """Check a build that takes a CUDA set: it names no library of its own, and there is a set for it."""
    for fact in ("cuda", "cudnn", "nccl"):
        if getattr(build, fact) is not None:
            yield Finding((*where, fact), "is there, though the build names `cuda_from` and takes a CUDA set")
    if where[-1] != f"cuda{cuda.major}":
        yield Finding(where, f"is not the name of a build for any CUDA {cuda.major}.x, `cuda{cuda.major}`")
    yield from dangling((*where, "cuda_from"), "toolkit", cuda, matrix.toolkits, ("toolkits",))
    yield from _pins(where, build, cuda)
    if not any(True for _ in sets_for(matrix, build)):
        yield Finding(
            (*where, "cuda_from"), f"no row of `cuda_sets` is for CUDA {cuda} or newer of its major"
        )


def check_set(matrix: Matrix, name: str, row: CudaSet) -> Iterator[Finding]:
    """Find what is wrong with a CUDA set: what it names exists, and its release pins what it says."""
    where: Where = ("cuda_sets", name)
    yield from dangling(where, "toolkit", name, matrix.toolkits, ("toolkits", name))
    yield from dangling((*where, "framework"), "framework", row.framework, matrix.frameworks, ("frameworks",))
    framework = matrix.frameworks.get(row.framework)
    release = framework.releases.get(str(row.release)) if framework else None
    found = [build for build in release.builds.values() if str(build.cuda) == name] if release else []
    if framework and not found:
        yield Finding((*where, "release"), f"{row.framework} {row.release} has no build for CUDA {name}")
    for package, version in row.pins.items():
        yield from _package((*where, "pins", package), package)
        library = re.fullmatch(r"nvidia-(cudnn|nccl)-cu\d\d", package)
        if library:
            table = getattr(matrix, library[1])
            place = (*where, "pins", package)
            yield from dangling(place, f"{library[1]} release", version, table, (library[1],))
        for build in found:
            pin = build.pins.get(package, str(version))
            if pin != str(version):
                yield Finding((*where, "pins", package), f"`{version}` is not what the release pins, `{pin}`")


def _without_cuda(where: Where, build: Build) -> Iterator[Finding]:
    if re.fullmatch(r"cu\d+", str(where[-1])):
        yield Finding(where, "is the name of a build with CUDA, though the build names no `cuda`")
    for fact in ("toolkit", "cudnn", "nccl", "cublas", "pins"):
        if getattr(build, fact):
            yield Finding((*where, fact), "is there, though the build names no `cuda`")
    for machine, wheels in build.wheels.items():
        if wheels.cubin or wheels.ptx:
            yield Finding(
                (*where, "wheels", machine), "holds code for GPUs, though the build names no `cuda`"
            )


def _libraries(matrix: Matrix, where: Where, build: Build, cuda: Cuda) -> Iterator[Finding]:
    if where[-1] != "cu" + str(cuda).replace(".", ""):
        yield Finding(where, f"is not the name of a build for CUDA {cuda}")
    yield from dangling((*where, "cuda"), "toolkit", cuda, matrix.toolkits, ("toolkits",))
    toolkit = matrix.toolkits.get(str(cuda))
    if build.toolkit is not None and toolkit is not None:
        yield from dangling(
            (*where, "toolkit"),
            f"release of CUDA {cuda}",
            build.toolkit,
            toolkit.releases,
            ("toolkits", str(cuda), "releases"),
        )
    for fact, table in (("cudnn", matrix.cudnn), ("nccl", matrix.nccl)):
        version = getattr(build, fact)
        if version is None:
            continue
        yield from dangling((*where, fact), f"{fact} release", version, table, (fact,))
        row = table.get(str(version))
        if row is not None and cuda.major not in row.cuda_majors:
            yield Finding((*where, fact), f"`{version}` does not exist for CUDA {cuda.major}")
        pin = build.pins.get(f"nvidia-{fact}-cu{cuda.major}")
        if pin is not None and pin[0].isdigit() and pin != str(version):
            yield Finding((*where, fact), f"`{version}` is not what the build pins, `{pin}`")
    yield from _pins(where, build, cuda)


def _pins(where: Where, build: Build, cuda: Cuda) -> Iterator[Finding]:
    for package, pin in build.pins.items():
        yield from _package((*where, "pins", package), package)
        yield from _pin((*where, "pins", package), pin)
        suffix = re.search(r"-cu(\d\d)$", package)
        if suffix and int(suffix[1]) != cuda.major:
            yield Finding((*where, "pins", package), f"is not a package of CUDA {cuda.major}")


def _wheels(matrix: Matrix, build: Build, where: Where, wheels: Wheels) -> Iterator[Finding]:
    for target in wheels.cubin:
        if target.is_ptx:
            yield Finding((*where, "cubin"), f"`{target}` is PTX, not machine code")
        else:
            yield from dangling(
                (*where, "cubin"), "target of `code_runs_on`", target, matrix.code_runs_on, ("code_runs_on",)
            )
    for target in wheels.ptx:
        if not target.is_ptx:
            yield Finding((*where, "ptx"), f"`{target}` is machine code, not PTX")
    toolkit = matrix.toolkits.get(str(build.cuda))
    if toolkit is None:
        return
    for fact, targets in (("cubin", wheels.cubin), ("ptx", wheels.ptx)):
        for target in targets:
            if (
                not _can_target(toolkit.capabilities_specific, target)
                and target.capability not in toolkit.capabilities
            ):
                yield Finding((*where, fact), f"CUDA {build.cuda} cannot make code for `{target}`")


def _can_target(specific: tuple[Target, ...], target: Target) -> bool:
    return target in specific


def _pythons(where: Where, wheels: Wheels, requires: SpecifierSet) -> Iterator[Finding]:
    odd = tuple(odd_tags(where, wheels.python))
    yield from odd
    for tag in () if odd else wheels.python:
        if not requires.contains(f"3.{tag[3:].removesuffix('t')}.99", prereleases=True):
            yield Finding(where, f"`{tag}` is outside of the release's `requires_python`, `{requires}`")


def _package(where: Where, name: str) -> Iterator[Finding]:
    if not _PACKAGE.fullmatch(name):
        yield Finding(
            where, f"`{name}` is not a normalised package name: lower case, digits and single hyphens"
        )


def _pin(where: Where, text: str) -> Iterator[Finding]:
    """Check a pin: an exact version without an operator, or a range, with extras in brackets behind it."""
    taken = _PIN.fullmatch(text)
    spec = taken["spec"] if taken else text
    try:
        SpecifierSet(f"=={spec}" if spec[0].isdigit() else spec)
    except InvalidSpecifier:
        yield Finding(
            where, f"`{text}` is neither a version nor a version range, with extras in brackets behind"
        )


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
