"""What a user should know of a stack besides its values: traps that it comes near, other ways that exist."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from imagebuilder.matrix.fit import driver_compiles
from imagebuilder.resolve.cuda_sets import set_notes
from imagebuilder.resolve.explain import joined
from imagebuilder.resolve.pins import has_triton

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.resolve.candidates import Candidate, Space
    from imagebuilder.resolve.names import WantedGpu
    from imagebuilder.resolve.offers import Offer

DOUBTFUL = "CD"


def notes(space: Space, chosen: Candidate) -> tuple[str, ...]:
    """Give the remarks on a stack, the most urgent first."""
    return (
        *_doubts(space, chosen.offer),
        *_other_source(space, chosen),
        *set_notes(space, chosen.offer),
        *_pinned_minor(space, chosen.offer),
        *_triton(space, chosen),
        *_ptx(space, chosen.offer),
        *(note for gpu in space.gpus for note in _gpu(space, gpu)),
        *_companions(chosen.offer),
    )


def _doubts(space: Space, offer: Offer) -> Iterator[str]:
    """Say what of the build is known from third parties only (grade C) or is an inference (grade D)."""
    if offer.build.grade in DOUBTFUL:
        how = "inferred" if offer.build.grade == "D" else "known through third parties only"
        said = f": {offer.build.note}" if offer.build.note else ""
        grade = f"grade {offer.build.grade}"
        yield f"that {offer.pip} exists on the {offer.source} index is {how} ({grade}){said}"
    elif offer.build.note:
        yield offer.build.note
    if offer.release.yanked:
        yield f"{offer.version} was yanked: {offer.release.yanked}"
    if offer.release.note:
        yield offer.release.note
    if offer.build.cudnn is None:
        yield "the cuDNN version of this build is not known; `imgbuild lock` reads it from the index"


def _other_source(space: Space, chosen: Candidate) -> Iterator[str]:
    """Name a newer release that another index has, with the flags that select it."""
    if space.request.sources:
        return
    met = space.meeting(space.constraints)
    newer = [
        offer
        for offer in space.offers_in(met & ~space.with_source({chosen.offer.source}))
        if offer.version > chosen.offer.version
    ]
    if not newer:
        return
    sure = [offer for offer in newer if offer.build.grade not in DOUBTFUL] or newer
    best = max(sure, key=lambda offer: (offer.version, offer.cuda))
    spec = shlex.quote(f"{space.name}=={best.version}")
    yield (f"{best.pip} exists on the {best.source} index: add `--framework {spec} --source {best.source}`")


def _pinned_minor(space: Space, offer: Offer) -> Iterator[str]:
    """Say that `==2.1` is 2.1.0 and no other patch release."""
    for one in space.request.spec:
        if one.operator == "==" and one.version.count(".") == 1 and offer.version.micro == 0:
            newest = max(
                (o.version for o in space.offers if o.version.release[:2] == offer.version.release[:2]),
                default=None,
            )
            if newest and newest > offer.version:
                yield f"`=={one.version}` is {offer.version}; `=={one.version}.*` would give {newest}"


def _triton(space: Space, chosen: Candidate) -> Iterator[str]:
    release = chosen.offer.release
    if release.triton and not has_triton(release, chosen.base.python):
        yield (
            f"{space.name} {chosen.offer.version} brings no triton on Python {chosen.base.python} (only "
            f"below {release.triton_python_below}): torch.compile does not work on the GPU"
        )


def _ptx(space: Space, offer: Offer) -> Iterator[str]:
    """Warn where a driver has to compile PTX, or cannot."""
    slow = [gpu.name for gpu in space.gpus if space.code_for(offer, gpu.capability) == "ptx"]
    if slow:
        yield (
            f"{joined(slow)} runs this build's PTX only: the first start compiles for minutes; "
            "keep CUDA_CACHE_PATH on a volume"
        )
    driver = space.request.driver
    toolkit = space.matrix.toolkits[str(offer.cuda)]
    if driver and not driver_compiles(space.matrix, offer.cuda, driver):
        yield (
            f"driver {driver} is older than R{toolkit.driver_branch}, the branch of CUDA {offer.cuda}: "
            "machine code runs (minor-version compatibility), PTX made by its tools does not load (error 222)"
        )


def _gpu(space: Space, gpu: WantedGpu) -> Iterator[str]:
    row = gpu.gpu
    if row.driver_branch_last:
        yield f"{gpu.name}: R{row.driver_branch_last} is the last driver branch that supports it"
    if "bf16" not in row.tensor_cores:
        advice = "" if gpu.is_target else f", mixed precision is {row.amp}"
        yield f"{gpu.name}: no BF16 in hardware{advice}"


def _companions(offer: Offer) -> Iterator[str]:
    pairs = [f"{name} {max(versions)}" for name, versions in sorted(offer.release.companions.items())]
    if pairs:
        yield f"for {offer.version} take {joined(pairs)}"
