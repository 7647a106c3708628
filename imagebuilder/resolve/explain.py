"""Why a stack is what it is: one reason for each chosen fact, with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.matrix.fit import pythons
from imagebuilder.matrix.sources import cite
from imagebuilder.resolve.cuda_sets import set_reasons
from imagebuilder.resolve.offers import is_named
from imagebuilder.resolve.pins import TRITON
from imagebuilder.resolve.stack import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagebuilder.matrix.facts import Build, Matrix
    from imagebuilder.resolve.candidates import Candidate, Space
    from imagebuilder.resolve.offers import Offer


def joined(words: Sequence[object], last: str = "and") -> str:
    """Write a list as a sentence has it: `a, b and c`."""
    texts = [str(word) for word in words]
    return f" {last} ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def source_of(matrix: Matrix, src: Mapping[str, str], *facts: str) -> str | None:
    """Give the source, with its grade, of the first of these facts that a row names one for."""
    for fact in facts:
        if fact in src:
            text, grade = cite(matrix, src[fact])
            return f"grade {grade}: {text}"
    return None


def graded(matrix: Matrix, build: Build, *facts: str) -> str:
    """Give the source of a build's fact; the grade of the whole build where no single source is known."""
    return source_of(matrix, build.src, *facts) or f"grade {build.grade}: the build's own record"


def reasons(space: Space, chosen: Candidate, packages: Mapping[str, str]) -> tuple[Reason, ...]:
    """Give one reason for each value of the stack."""
    return (
        *_build_reasons(space, chosen),
        *_base_reasons(space, chosen),
        *_host_reasons(space, chosen),
        *_package_reasons(space, chosen, packages),
    )


def _build_reasons(space: Space, chosen: Candidate) -> Iterator[Reason]:
    offer, build, matrix = chosen.offer, chosen.offer.build, space.matrix
    yield Reason(
        fact="framework",
        value=f"{space.name} {offer.version}",
        because=_why_release(space, offer),
        source=graded(matrix, build, "source"),
    )
    yield Reason(
        fact="source",
        value=offer.source,
        because=_why_source(space, offer),
        source=graded(matrix, build, "source"),
    )
    if build.cuda_from is not None:
        yield from set_reasons(space, offer)
        return
    yield Reason(
        fact="cuda",
        value=str(offer.cuda),
        because=f"what the build {offer.variant} of {offer.version} on {offer.source} is made for",
        source=graded(matrix, build, "cuda", "source"),
    )
    for name, version in (("cudnn", build.cudnn), ("nccl", build.nccl)):
        yield Reason(
            fact=name,
            value=str(version) if version else "unknown",
            because=_why_library(build, name) if version else "no source says what this build brings",
            source=graded(matrix, build, name, "pins") if version else None,
        )


def _why_release(space: Space, offer: Offer) -> str:
    """Say what kept a newer release of the same index out."""
    if is_named(offer.version, space.request.spec):
        return "named by the request"
    served = space.possible & space.with_source({offer.source})
    newer = [o for o in space.offers_in(served) if o.version > offer.version]
    if not newer:
        return f"the newest release on {offer.source}"
    nearest = min(newer, key=lambda o: o.version)
    said = f"the newest release on {offer.source} that meets {_asked(space)}"
    builds = sorted({o.cuda for o in newer if o.version == nearest.version})
    return f"{said}; {nearest.version} there is built for CUDA {joined(builds)}"


def _why_source(space: Space, offer: Offer) -> str:
    if space.request.sources:
        return "the first of the named sources that serves the request"
    before = space.sources[: space.sources.index(offer.source)]
    return (
        f"{joined(before)} does not serve this request" if before else "the first source in the default order"
    )


def _why_library(build: Build, name: str) -> str:
    pinned = any(f"nvidia-{name}-" in package for package in build.pins)
    return "pinned exactly by the build" if pinned else "what this build is made with"


def _asked(space: Space) -> str:
    """Write the constraints of the request as it would type them, without those of the platform."""
    named = [c.shown for c in space.constraints if c.option != "arch" or space.request.arch != "amd64"]
    return joined([f"`{shown}`" for shown in named]) if named else "the default platform"


def _base_reasons(space: Space, chosen: Candidate) -> Iterator[Reason]:
    base, wheels, matrix = chosen.base, chosen.offer.wheels, space.matrix
    if space.request.os:
        why_base = "named by the request"
    elif space.request.python:
        why_base = f"a base whose own Python is {base.python}"
    else:
        why_base = "the default base" if base.default else "the first base that these wheels run on"
    yield Reason(
        fact="os",
        value=chosen.os,
        because=f"{why_base}; its glibc {base.glibc} meets the wheels' floor {wheels.glibc}",
        source=source_of(matrix, base.src, "glibc", "python"),
    )
    yield Reason(
        fact="python",
        value=str(base.python),
        because=f"{chosen.os}'s own; wheels exist for Python {joined(pythons(wheels))}",
        source=source_of(matrix, wheels.src, "python") or graded(matrix, chosen.offer.build, "python"),
    )
    yield Reason(
        fact="arch",
        value=space.request.arch,
        because=f"the build has wheels for {chosen.offer.machine}",
        source=source_of(matrix, wheels.src, "source") or graded(matrix, chosen.offer.build, "source"),
    )


def _host_reasons(space: Space, chosen: Candidate) -> Iterator[Reason]:
    offer, matrix = chosen.offer, space.matrix
    major = matrix.cuda_majors[str(offer.cuda.major)]
    yield Reason(
        fact="driver_min",
        value=str(major.driver_min),
        because=f"any CUDA {offer.cuda.major}.x runs from this driver on (minor-version compatibility)",
        source=source_of(matrix, major.src, "driver_min"),
    )
    if space.request.driver:
        yield Reason(
            fact="driver",
            value=str(space.request.driver),
            because=f"not older than {major.driver_min}, the floor of CUDA {offer.cuda.major}.x",
            source=source_of(matrix, major.src, "driver_min"),
        )
    yield Reason(
        fact="compute_capabilities",
        value=joined(space.capabilities(offer)) or "unknown",
        because=f"the wheel {held_code([offer])}{_cudnn_code(space, offer)}",
        source=code_source(space, offer),
    )
    for gpu in space.gpus:
        how = (
            "machine code"
            if space.code_for(offer, gpu.capability) == "cubin"
            else "PTX, compiled at first start"
        )
        yield Reason(
            fact="gpu",
            value=gpu.name,
            because=f"compute capability {gpu.capability} runs this build's {how}",
            source=code_source(space, offer)
            if gpu.is_target
            else source_of(matrix, gpu.gpu.src, "capability"),
        )


def held_code(offers: Sequence[Offer], *, plural: bool = False) -> str:
    """Say what code offers hold, behind the subject of a sentence: targets, or from where on they compile."""
    targets = sorted({target for offer in offers for target in (*offer.wheels.cubin, *offer.wheels.ptx)})
    oldest = [offer.build.compiles_from for offer in offers if offer.build.compiles_from]
    newest = [offer.build.compiles_to for offer in offers if offer.build.compiles_to]
    if oldest and newest and not targets:
        verb = "compile" if plural else "compiles"
        return f"{verb} for compute capabilities {min(oldest)} to {max(newest)} that its CUDA can target"
    verb = "hold" if plural else "holds"
    return f"{verb} code for {joined(targets) or 'targets that no source names'}"


def code_source(space: Space, offer: Offer) -> str:
    """Give the source of the code targets of an offer."""
    return source_of(space.matrix, offer.wheels.src, "cubin", "archs") or graded(
        space.matrix, offer.build, "cubin", "archs", "compiles_from", "source"
    )


def _cudnn_code(space: Space, offer: Offer) -> str:
    row = space.matrix.cudnn.get(str(offer.build.cudnn))
    if row and f"cu{offer.cuda.major}" in row.code and offer.machine == "x86_64":
        return f", its cuDNN {offer.build.cudnn} too"
    return "; which code its cuDNN holds was not measured"


def _package_reasons(space: Space, chosen: Candidate, packages: Mapping[str, str]) -> Iterator[Reason]:
    release, matrix = chosen.offer.release, space.matrix
    if TRITON in packages:
        yield Reason(
            fact=TRITON,
            value=packages[TRITON],
            because="pinned exactly by the build",
            source=graded(matrix, chosen.offer.build, "pins", "triton"),
        )
    for name in space.framework.beside:
        if name not in packages:
            continue
        ceiling = release.ceilings.get(name)
        row = matrix.packages[name][packages[name]]
        yield Reason(
            fact=name,
            value=packages[name],
            because=f"the newest with `{ceiling.spec}`: {ceiling.why}"
            if ceiling
            else "the newest for this base",
            source=source_of(matrix, {"ceiling": ceiling.src} if ceiling else row.src, "ceiling", "python"),
        )
