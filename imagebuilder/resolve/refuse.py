"""Why nothing meets a request: the smallest set of constraints that clash, a fact and its source for each."""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING

from packaging.version import Version

from imagebuilder.errors import UnmetError
from imagebuilder.matrix.fit import MACHINES, code_on, driver_floor, driver_knows, pythons
from imagebuilder.matrix.words import Driver
from imagebuilder.resolve.alternatives import (
    alternatives,
    asked_releases,
    matched,
    neighbours,
    neighbours_of_range,
)
from imagebuilder.resolve.cuda_sets import misfits
from imagebuilder.resolve.explain import code_source, graded, held_code, joined, source_of
from imagebuilder.resolve.together import apart, company_fact
from imagebuilder.resolve.unusable import unusable_for, why_none

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagebuilder.resolve.candidates import Constraint, Space
    from imagebuilder.resolve.names import WantedGpu
    from imagebuilder.resolve.offers import Offer

Fact = tuple[str, str | None]
_SHORT = 6


def refusal(space: Space) -> UnmetError:
    """Give the error for a space in which nothing meets the request."""
    clash = smallest_clash(space)
    shown = joined([f"`{constraint.shown}`" for constraint in clash])
    together = " together" if len(clash) > 1 else ""
    conflicts = []
    for constraint in clash:
        fact, source = _FACTS[constraint.option](space, constraint, clash)
        conflicts.append({"constraint": constraint.shown, "fact": fact, "source": source})
    return UnmetError(
        f"no GPU build of {space.name} meets {shown}{together}"
        if clash
        else f"{space.name} has no GPU build",
        conflicts=tuple(conflicts),
        alternatives=(*alternatives(space, clash), *apart(space, clash)),
    )


def smallest_clash(space: Space) -> tuple[Constraint, ...]:
    """Give the smallest set of constraints that nothing meets together; among equals the first by option."""
    for size in range(len(space.constraints) + 1):
        for some in combinations(space.constraints, size):
            if not space.meeting(some):
                return some
    raise AssertionError("a refusal was asked for a request that can be met")


def _others(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> tuple[str, list[Offer]]:
    """Give the rest of a clash as an opening phrase, and what meets it, on the platform if anything does."""
    rest = [other for other in clash if other != constraint]
    platform = [other for other in space.constraints if other.option == "arch" and other != constraint]
    offers = space.offers_in(space.meeting([*rest, *platform]) or space.meeting(rest))
    return (f"with {joined([f'`{other.shown}`' for other in rest])}, " if rest else ""), offers


def _sure(offers: list[Offer]) -> list[Offer]:
    """Leave out offers whose existence is only inferred, where there are others."""
    return [offer for offer in offers if offer.build.grade != "D"] or offers


def _framework(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    there = {offer.version: offer for offer in offers}
    asked = asked_releases(space, there)
    before, after = neighbours_of_range(asked, there)
    ends = [f"the last release before it is {before}"] if before else []
    ends += [f"the first release after it is {after}"] if after else []
    near = there[before or after or max(there)]
    said = given + (joined(ends) or f"releases are {min(there)} to {max(there)}")
    if not matched(space):
        why, source = why_none(space)
        nearest = joined([version for version in (before, after) if version])
        said = f"{why}; the nearest with a GPU build: {nearest}"
        return said, source or graded(space.matrix, near.build, "source")
    return said, graded(space.matrix, near.build, "source")


def _cuda(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    there = {offer.cuda: offer for offer in reversed(offers)}
    wanted = space.request.cuda
    values = sorted(there)
    below, above = neighbours(wanted, there)
    near = [value for value in (below, above) if value]
    if len(values) <= _SHORT:
        said = f"{given}builds are for CUDA {joined(values)}"
    else:
        said = f"{given}builds are for CUDA {values[0]} to {values[-1]}, nearest to {wanted}: {joined(near)}"
    if wanted is not None and str(wanted) not in space.matrix.toolkits:
        said += f"; no toolkit {wanted} is known"
    elif wanted is not None:
        why = next(chain(misfits(space, offers, wanted), unusable_for(space, wanted)), None)
        said += f"; {why}" if why else ""
    return said, graded(space.matrix, there[near[0]].build, "cuda", "source")


def _cudnn(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    there = {offer.build.cudnn: offer for offer in reversed(offers) if offer.build.cudnn}
    if not there:
        return f"{given}no source says which cuDNN the builds bring", None
    values = sorted(there)
    said = joined(values) if len(values) <= _SHORT else f"{values[0]} to {values[-1]}"
    return f"{given}builds bring cuDNN {said}", graded(space.matrix, there[values[-1]].build, "cudnn", "pins")


def _python(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    wanted = space.request.python
    there = sorted({python for offer in offers for python in pythons(offer.wheels)})
    if wanted in there:
        bases = [f"{base.python} ({os})" for os, base in sorted(space.bases, key=lambda item: item[1].python)]
        return f"{given}Python is the base's own, and bases have {joined(bases)}", None
    source = source_of(space.matrix, offers[0].wheels.src, "python")
    return (
        f"{given}wheels are for Python {joined(there)}",
        source or graded(space.matrix, offers[0].build, "python", "source"),
    )


def _os(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    base = space.matrix.bases[constraint.value]
    floor = min(offer.wheels.glibc for offer in offers)
    there = sorted({python for offer in offers for python in pythons(offer.wheels)})
    return (
        f"{constraint.value} has Python {base.python} and glibc {base.glibc}; {given}wheels need "
        f"Python {joined(there, 'or')} and glibc {floor} or newer",
        source_of(space.matrix, base.src, "python", "glibc"),
    )


def _source(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    there = sorted({offer.source for offer in offers})
    return f"{given}builds are on {joined(there)}", graded(space.matrix, offers[0].build, "source")


def _arch(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    wanted = MACHINES[space.request.arch]
    known = {machine: arch for arch, machine in MACHINES.items()}
    there = joined(sorted({known[offer.machine] for offer in offers}))
    versions = {offer.version for offer in offers}
    cpu_only = [
        build
        for text, release in space.framework.releases.items()
        if Version(text) in versions
        for build in release.builds.values()
        if build.is_cpu_only and wanted in build.wheels
    ]
    if cpu_only:
        said = f"{given}GPU builds are for {there} only: the wheels for {space.request.arch} are CPU-only"
        return said, graded(space.matrix, cpu_only[0], "source")
    return f"{given}GPU builds are for {there}", graded(space.matrix, offers[0].build, "source")


def _gpu(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    gpu = next(gpu for gpu in space.gpus if gpu.name == constraint.value)
    row = gpu.gpu
    if row.host and all(offer.machine != row.host for offer in offers):
        return f"{gpu.name} sits in {row.host} hosts", source_of(space.matrix, row.src, "host", "capability")
    driver = space.request.driver
    if driver and not driver_knows(row, driver) and any(other.option == "driver" for other in clash):
        first, last = row.driver_min or row.driver_branch_first, row.driver_branch_last
        ends = [f"from {first} on"] if first else []
        ends += [f"up to branch R{last}"] if last else []
        source = source_of(space.matrix, row.src, "driver_min", "driver_branch_first", "driver_branch_last")
        return f"drivers support {gpu.name} {joined(ends)}", source
    failing = next((offer for offer in offers if gpu.capability.major in offer.build.fails_on), None)
    if failing and all(gpu.capability.major in offer.build.fails_on for offer in offers):
        return (
            f"its compute capability is {gpu.capability}; {given}no build of {space.name} runs on "
            f"{gpu.capability.major}.x: none holds machine code for it, and compiling their PTX fails there",
            graded(space.matrix, failing.build, "fails_on"),
        )
    return (
        f"its compute capability is {gpu.capability}; {given}builds {held_code(offers, plural=True)}"
        f"{_libraries(space, gpu, offers)}{_nearest_with_code(space, gpu, offers)}",
        code_source(space, offers[0]),
    )


def _libraries(space: Space, gpu: WantedGpu, offers: list[Offer]) -> str:
    """Name the cuDNN that lacks code for a GPU which the framework's own code would run on."""
    lacking = sorted(
        {
            offer.build.cudnn
            for offer in offers
            if offer.build.cudnn
            and code_on(space.matrix, offer.wheels.cubin, offer.wheels.ptx, gpu.capability)
        }
    )
    return f", but cuDNN {joined(lacking)} has none for it" if lacking else ""


def _nearest_with_code(space: Space, gpu: WantedGpu, offers: list[Offer]) -> str:
    """Name the build with code for a GPU: the first for a GPU that is too new, the newest for one too old."""
    builds = _sure(space.offers_in(space.possible & space.with_gpu(gpu)))
    if not builds:
        return "; no build known has code for it"
    builds.sort(key=lambda offer: (offer.version, offer.cuda))
    targets = [target.capability for offer in offers for target in offer.wheels.cubin]
    too_old = bool(targets) and gpu.capability < min(targets)
    which, build = ("newest", builds[-1]) if too_old else ("first", builds[0])
    return f"; the {which} build that runs there is {build.version} for CUDA {build.cuda} ({build.source})"


def _driver(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    wanted = Driver.parse(constraint.value)
    least = min(offers, key=lambda offer: driver_floor(space.matrix, offer.cuda))
    floor = driver_floor(space.matrix, least.cuda)
    unknown = [gpu.name for gpu in space.gpus if not driver_knows(gpu.gpu, wanted)]
    row = space.matrix.cuda_majors[str(least.cuda.major)]
    if wanted >= floor and unknown:
        return f"R{wanted.branch} is not among the drivers that support {joined(unknown)}", None
    if wanted >= floor:
        branch = min(space.matrix.toolkits[str(offer.cuda)].driver_branch for offer in offers)
        return (
            f"{given}builds hold PTX only, which drivers from R{branch} on compile; {wanted} was named",
            None,
        )
    return (
        f"CUDA {least.cuda.major}.x needs driver {floor} or newer, {wanted} was named"
        f"{_newest_on_driver(space)}{_forward(space)}",
        source_of(space.matrix, row.src, "driver_min"),
    )


def _newest_on_driver(space: Space) -> str:
    """Name the newest build that runs on the named driver and GPUs."""
    kept = [c for c in space.constraints if c.option in ("driver", "gpu", "arch")]
    builds = _sure(space.offers_in(space.meeting(kept)))
    if not builds:
        return ""
    best = max(builds, key=lambda offer: (offer.version, offer.cuda))
    return f"; the newest build that runs there is {best.version} for CUDA {best.cuda} ({best.source})"


def _forward(space: Space) -> str:
    """Say that forward compatibility exists where every named GPU has it."""
    if all(gpu.gpu.forward_compat.startswith("yes") for gpu in space.gpus):
        return (
            "; forward compatibility (cuda-compat) exists for data-centre GPUs and is never chosen silently"
        )
    return ""


def _requirements(space: Space, constraint: Constraint, clash: tuple[Constraint, ...]) -> Fact:
    given, offers = _others(space, constraint, clash)
    asked = [offer for offer in offers if offer.version in matched(space)] or offers
    return company_fact(space, constraint, asked, given)


_FACTS: dict[str, Callable[[Space, Constraint, tuple[Constraint, ...]], Fact]] = {
    "framework": _framework,
    "cuda": _cuda,
    "cudnn": _cudnn,
    "python": _python,
    "os": _os,
    "source": _source,
    "arch": _arch,
    "gpu": _gpu,
    "driver": _driver,
    "requirements": _requirements,
}
