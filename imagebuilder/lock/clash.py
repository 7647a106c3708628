"""Where a requirement of the user contradicts a fact of the stack: found before any index is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.errors import UnmetError
from imagebuilder.lock.remedies import Remedy, mended, other_release
from imagebuilder.matrix.sets import builds_of
from imagebuilder.resolve.explain import graded, source_of
from imagebuilder.resolve.pins import companion_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagebuilder.lock.requirements import UserRequirement
    from imagebuilder.matrix.facts import Build, Matrix, Release
    from imagebuilder.resolve.stack import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the matrix says of a stack: the rows of its release and build, `variant` names the build."""

    stack: Stack
    matrix: Matrix
    release: Release
    variant: str
    build: Build

    @property
    def soft(self) -> frozenset[str]:
        """The packages that stand beside the framework: the user may have other versions of these."""
        return frozenset(self.matrix.frameworks[self.stack.framework].beside)

    @property
    def shown(self) -> str:
        """The framework's package as the stack pins it."""
        return f"{self.stack.package}=={self.stack.packages[self.stack.package]}"


def known_of(stack: Stack, matrix: Matrix) -> Known:
    """Look a stack up in the matrix; raises UnmetError where the matrix no longer has its build."""
    framework = matrix.frameworks.get(stack.framework)
    release = framework.releases.get(stack.version.public) if framework else None
    for variant, build in builds_of(matrix, release) if release else ():
        served = stack.source in (build.source, *build.also_on)
        if build.cuda == stack.cuda and served and release:
            return Known(stack=stack, matrix=matrix, release=release, variant=variant, build=build)
    raise UnmetError(
        f"the matrix has no build for {stack.identifier}",
        conflicts=(
            {
                "constraint": stack.identifier,
                "fact": f"chosen from the matrix {stack.matrix}, this one is {matrix.digest}",
                "source": None,
            },
        ),
        hint=f"imgbuild resolve --framework {stack.framework}",
    )


def target_environment(stack: Stack, machine: str) -> dict[str, str]:
    """Give the marker environment of the image (PEP 508), not of this host."""
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{stack.python}.0",
        "python_version": str(stack.python),
        "sys_platform": "linux",
        "extra": "",
    }


def applying(
    requirements: Sequence[UserRequirement], known: Known, machine: str
) -> tuple[UserRequirement, ...]:
    """Give the requirements whose markers hold in the image; a local version that names the build is public.

    `torch==2.4.1+cu121` on PyPI is 2.4.1: the default index has the same build without the local version.
    """
    environment = target_environment(known.stack, machine)
    found = []
    for one in requirements:
        marker = one.requirement.marker
        if marker is None or marker.evaluate(environment):
            found.append(_public(one, known))
    return tuple(found)


def _public(one: UserRequirement, known: Known) -> UserRequirement:
    label = f"+{known.variant}"
    ours = {known.stack.package, *known.release.companions}
    text = str(one.requirement.specifier)
    if known.stack.source != "pypi" or one.name not in ours or not text.endswith(label) or "," in text:
        return one
    requirement = Requirement(str(one.requirement))
    requirement.specifier = SpecifierSet(text.removesuffix(label))
    return replace(one, requirement=requirement)


def refuse_known_clashes(known: Known, requirements: Sequence[UserRequirement]) -> None:
    """Compare each requirement with the facts of the stack. Raises UnmetError naming both lines."""
    for one in requirements:
        spec = one.requirement.specifier
        pin = known.stack.packages.get(one.name)
        if pin is not None and one.name not in known.soft and not spec.contains(pin, prereleases=True):
            raise _refusal(known, requirements, one, f"=={pin}", *_why_pinned(known, one.name, pin))
        bound = known.stack.constraints.get(one.name, "").rpartition("]")[2]
        if bound and _disjoint(spec, SpecifierSet(bound), known, one.name):
            raise _refusal(known, requirements, one, bound, *why_bound(known, one.name, spec))


def _disjoint(wanted: SpecifierSet, bound: SpecifierSet, known: Known, name: str) -> bool:
    """Tell whether no version that we can name meets both: exact ones, or else those of the matrix."""
    exact = [one.version for one in (*wanted, *bound) if one.operator == "==" and "*" not in one.version]
    versions = exact or [
        *map(str, known.release.companions.get(name, ())),
        *known.matrix.packages.get(name, {}),
    ]
    return bool(versions) and not any(
        wanted.contains(version, prereleases=True) and bound.contains(version, prereleases=True)
        for version in versions
    )


def _why_pinned(known: Known, name: str, pin: str) -> tuple[str, str | None]:
    stack = known.stack
    if name == stack.package:
        return f"it is {stack.identifier}", graded(known.matrix, known.build, "source")
    if known.build.cuda_from is not None and name.startswith("nvidia-"):
        return f"{stack.identifier} has it from the CUDA set {stack.cuda}", graded(
            known.matrix, known.build, "pins", name
        )
    return f"{known.shown} needs just this version", graded(known.matrix, known.build, "pins", name)


def why_bound(known: Known, name: str, wanted: SpecifierSet) -> tuple[str, str | None]:
    """Say why the stack bounds a package, and the source: a break, a companion, a rule, a requirement.

    Of several rules it is the one that `wanted` breaks.
    """
    matrix, release, version = known.matrix, known.release, known.stack.version
    if name in release.ceilings:
        ceiling = release.ceilings[name]
        return f"{known.shown} is {ceiling.why}", source_of(matrix, {name: ceiling.src}, name)
    if name in release.companions:
        source = source_of(matrix, release.src, f"companions.{name}", "companions")
        return f"{name} {companion_spec(release.companions[name])} is made for {known.shown}", source
    rules = [
        rule
        for rule in matrix.clashes
        if rule.package == name
        and rule.framework == known.stack.framework
        and rule.spec.contains(version, prereleases=True)
    ]
    broken = [rule for rule in rules if _disjoint(wanted, rule.needs, known, name)]
    for rule in broken or rules:
        return rule.why, source_of(matrix, {name: rule.src}, name)
    row = matrix.cuda_sets.get(str(known.stack.cuda))
    if row is not None and name in row.pins and name not in release.requires:
        source = source_of(matrix, row.src, f"pins.{name}", "pins")
        return (
            f"the CUDA set {known.stack.cuda} holds it: the libraries of {row.framework} {row.release}",
            source,
        )
    return f"{known.shown} requires it", source_of(matrix, release.src, f"requires.{name}", "requires")


def _refusal(
    known: Known,
    requirements: Sequence[UserRequirement],
    one: UserRequirement,
    fits: str,
    why: str,
    source: str | None,
) -> UnmetError:
    return UnmetError(
        f"`{one.text}` ({one.place}) does not fit `{one.name}{fits}`, which {known.shown} needs"
        if one.name != known.stack.package
        else f"`{one.text}` ({one.place}) asks for another {one.name} than the stack's {known.shown}",
        conflicts=(
            one.conflict,
            {"constraint": f"{one.name}{fits}", "fact": why, "source": source},
        ),
        alternatives=(mended(known.stack, requirements, one, fits), *_releases_for(known, requirements, one)),
    )


def _releases_for(
    known: Known, requirements: Sequence[UserRequirement], one: UserRequirement
) -> Iterator[Remedy]:
    """Give the newest release of the framework that a requirement fits, where the matrix has one."""
    spec = one.requirement.specifier
    wanted: tuple[str, str | None] | None = None
    if one.name == known.stack.package:
        wanted = str(spec), None
    elif one.name in known.release.ceilings and known.release.ceilings[one.name].first_without:
        wanted = f">={known.release.ceilings[one.name].first_without}", None
    else:
        wanted = next(_fitting_builds(known, one.name, spec), None)
    remedy = other_release(known.stack, known.matrix, requirements, *wanted) if wanted else None
    if remedy:
        yield remedy


def _fitting_builds(known: Known, name: str, spec: SpecifierSet) -> Iterator[tuple[str, str | None]]:
    """Give releases, newest first, whose companions or pins meet a specifier."""
    releases = known.matrix.frameworks[known.stack.framework].releases
    for text in sorted(releases, key=Version, reverse=True):
        release = releases[text]
        if any(spec.contains(version, prereleases=True) for version in release.companions.get(name, ())):
            yield f"=={text}", None
        for build in release.builds.values():
            pin = build.pins.get(name, "")
            if build.cuda and pin[:1].isdigit() and "*" not in pin and spec.contains(pin.split()[0]):
                yield f"=={text}", str(build.cuda)
