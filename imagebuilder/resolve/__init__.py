"""Request x Matrix -> Stack, or why not. Pure: no clock, no network, no environment, no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.matrix.fit import driver_floor
from imagebuilder.resolve.candidates import Space
from imagebuilder.resolve.extras import check_extras
from imagebuilder.resolve.stack import Fallback, Reason, Stack, stack_from_dict, stack_to_dict, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.requirements import Requirement

    from imagebuilder.matrix.facts import Matrix
    from imagebuilder.request import Request
    from imagebuilder.resolve.candidates import Candidate

__all__ = ["Fallback", "Reason", "Stack", "resolve", "stack_from_dict", "stack_to_dict"]


def resolve(request: Request, matrix: Matrix, requirements: Sequence[Requirement] = ()) -> Stack:
    """Choose the one stack that meets the request best, by the order of preference of the design.

    Of the user's `requirements` other frameworks count here, which share the CUDA libraries of the stack;
    the rest of them is the lock's. Raises UsageError where the request names something that the matrix does
    not know, UnmetError with the smallest set of clashing constraints and the nearest alternatives where
    nothing meets it.
    """
    space = Space(request, matrix, requirements)
    check_extras(matrix, space.name, request.extras)
    met = space.meeting(space.constraints)
    if not met:
        from imagebuilder.resolve.refuse import refusal

        raise refusal(space)
    return _stack(space, next(space.candidates(met)))


def _stack(space: Space, chosen: Candidate) -> Stack:
    """Write a candidate out as a stack."""
    from imagebuilder.resolve.explain import reasons
    from imagebuilder.resolve.pins import packages
    from imagebuilder.resolve.remarks import notes

    offer, build = chosen.offer, chosen.offer.build
    exact, constraints = packages(space, chosen)
    return Stack(
        framework=space.name,
        package=space.framework.package,
        version=offer.version,
        cuda=offer.cuda,
        cudnn=build.cudnn,
        nccl=build.nccl,
        python=chosen.base.python,
        os=chosen.os,
        arch=space.request.arch,
        variant=space.request.variant,
        extras=space.request.extras,
        source=offer.source,
        driver_min=driver_floor(space.matrix, offer.cuda),
        driver_packaged=space.matrix.toolkits[str(offer.cuda)].driver_packaged,
        compute_capabilities=space.capabilities(offer),
        packages=exact,
        constraints=constraints,
        fallbacks=_fallbacks(space, chosen),
        reasons=reasons(space, chosen, exact),
        notes=notes(space, chosen),
        matrix=space.matrix.digest,
    )


def _fallbacks(space: Space, chosen: Candidate) -> tuple[Fallback, ...]:
    """Give the best other stacks for drivers that are too old for this one and GPUs that it has no code for.

    One for each older CUDA major, then for each CUDA major one for each compute capability that none of that
    major so far serves: a new GPU may stand on a driver that is too old for the newest CUDA. Those that need
    the newest drivers come first.
    """
    usable = space.of_machine(chosen.offer.machine) & space.possible
    found: dict[str, Fallback] = {}
    majors = sorted({offer.cuda.major for offer in space.offers}, reverse=True)
    served = {
        (major, capability)
        for major in majors
        if major >= chosen.offer.cuda.major
        for capability in space.capabilities(chosen.offer)
    }

    def add(major: int, allowed: int) -> None:
        other = _best(space, usable & space.with_major(major) & allowed, chosen)
        if other:
            fallback = _fallback(space, other)
            found.setdefault(fallback.stack, fallback)
            served.update((major, capability) for capability in fallback.compute_capabilities)

    for major in majors:
        if major < chosen.offer.cuda.major:
            add(major, usable)
    for capability in reversed(space.known_capabilities):
        for major in majors:
            if (major, capability) not in served:
                add(major, space.with_code(capability))
    return tuple(sorted(found.values(), key=lambda other: other.driver_min, reverse=True))


def _best(space: Space, allowed: int, chosen: Candidate) -> Candidate | None:
    """Give the best of a set: on the same base where it can be, and not one whose existence is inferred."""
    for preferred in (allowed & space.on_base(chosen.os), allowed):
        sure = preferred & ~space.with_grade("D")
        for best in space.candidates(sure or preferred):
            return best
    return None


def _fallback(space: Space, other: Candidate) -> Fallback:
    offer = other.offer
    name = tag(offer.version, offer.cuda, offer.build.cudnn, other.base.python, other.os, space.request.arch)
    return Fallback(
        stack=f"{space.name}-{name}",
        driver_min=driver_floor(space.matrix, offer.cuda),
        compute_capabilities=space.capabilities(offer),
    )
