"""Which images run on some GPUs, best first, and what each of them means there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from imagebuilder.resolve import resolve
from imagebuilder.resolve.candidates import Space
from imagebuilder.resolve.explain import joined
from imagebuilder.resolve.remarks import DOUBTFUL
from imagebuilder.resolve.spread import spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from packaging.requirements import Requirement

    from imagebuilder.matrix.facts import Matrix
    from imagebuilder.request import Request
    from imagebuilder.resolve import Stack
    from imagebuilder.resolve.candidates import Candidate
    from imagebuilder.resolve.names import WantedGpu

# What tensor cores multiply that no mixed-precision training uses.
INFERENCE_ONLY = ("int8",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One GPU with one image: how its code runs there, what its tensor cores multiply, the AMP to use."""

    gpu: str
    runs: Literal["cubin", "ptx"]
    modes: tuple[str, ...]
    amp: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One image: the request that gives it, and what is lost beside the best of its framework."""

    request: Request
    stack: Stack
    fits: tuple[Fit, ...]
    lost: tuple[str, ...]


def recommend(
    request: Request, matrix: Matrix, requirements: Sequence[Requirement] = ()
) -> tuple[Recommendation, ...]:
    """Rank the images that run on all GPUs of a request, on its driver where one is named.

    One for each framework and CUDA minor that the request leaves open. Machine code comes before PTX, then
    the order is the one of `resolve`: by index, the newest release, the newest CUDA. Raises as `resolve`
    does where none runs.
    """
    found = []
    for one in spread(request, matrix, requirements):
        space = Space(one, matrix, requirements)
        chosen = next(space.candidates(space.meeting(space.constraints)))
        found.append((one, space, chosen))
    found.sort(key=lambda item: (item[2].offer.version, item[2].offer.cuda), reverse=True)
    found.sort(key=lambda item: _rank(item[1], item[2]))
    best: dict[str, Candidate] = {}
    rows = []
    for one, space, chosen in found:
        first = best.setdefault(space.name, chosen)
        rows.append(
            Recommendation(
                request=one,
                stack=resolve(one, matrix, requirements),
                fits=_fits(space, chosen),
                lost=tuple(_lost(space, chosen, first)),
            )
        )
    return tuple(rows)


def _rank(space: Space, chosen: Candidate) -> tuple[str, bool, int]:
    slow = any(fit.runs == "ptx" for fit in _fits(space, chosen))
    return space.name, slow, space.sources.index(chosen.offer.source)


def _fits(space: Space, chosen: Candidate) -> tuple[Fit, ...]:
    return tuple(
        Fit(gpu=gpu.name, runs=how, modes=modes(gpu), amp=gpu.gpu.amp)
        for gpu in space.gpus
        if (how := space.code_for(chosen.offer, gpu.capability)) is not None
    )


def modes(gpu: WantedGpu) -> tuple[str, ...]:
    """Give the types that a GPU's tensor cores multiply in training; none where it has no tensor cores."""
    return tuple(one for one in gpu.gpu.tensor_cores if one not in INFERENCE_ONLY)


def _lost(space: Space, chosen: Candidate, best: Candidate) -> Iterator[str]:
    """Say what a build lacks that the best one of its framework has."""
    slow = [gpu.name for gpu in space.gpus if space.code_for(chosen.offer, gpu.capability) == "ptx"]
    if slow:
        yield f"no machine code for {joined(slow)}: the driver compiles PTX at the first start"
    if chosen.offer.build.grade in DOUBTFUL:
        yield f"that it exists is of grade {chosen.offer.build.grade}"
    if chosen is best:
        return
    ours, theirs = chosen.offer, best.offer
    if ours.version < theirs.version:
        yield f"{ours.version} instead of {theirs.version}"
    if ours.build.cudnn and theirs.build.cudnn and ours.build.cudnn.major < theirs.build.cudnn.major:
        yield f"cuDNN {ours.build.cudnn.major}"
    lacking = [one for one in space.capabilities(theirs) if one not in space.capabilities(ours)]
    if lacking:
        yield f"no code for compute capability {joined(lacking)}"
    for name, ceiling in sorted(ours.release.ceilings.items()):
        if name not in theirs.release.ceilings:
            yield f"only {name} {ceiling.spec}"
