"""What a stack has of its CUDA set: the words for what was taken, what moved, and what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.matrix.sets import fit, sets_for
from imagebuilder.matrix.sources import cite
from imagebuilder.resolve.stack import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.matrix.facts import CudaSet
    from imagebuilder.matrix.sets import Fitted
    from imagebuilder.matrix.words import Cuda
    from imagebuilder.resolve.candidates import Space
    from imagebuilder.resolve.offers import Offer

_NAMES = {"cudnn": "cuDNN", "nccl": "NCCL"}


def set_reasons(space: Space, offer: Offer) -> Iterator[Reason]:
    """Give the reasons for CUDA, cuDNN and NCCL of a build that takes a CUDA set."""
    row, fitted = space.matrix.cuda_sets[str(offer.cuda)], fitted_of(space, offer)
    yield Reason(
        fact="cuda",
        value=str(offer.cuda),
        because=f"the newest CUDA set that meets the request and the ranges of {space.name} {offer.version}: "
        f"{_of(row)}",
        source=_source(space, row, "pins"),
    )
    for name, version in (("cudnn", offer.build.cudnn), ("nccl", offer.build.nccl)):
        package = next((one for one in offer.build.pins if one.startswith(f"nvidia-{name}-")), name)
        moved = fitted.moved.get(package)
        yield Reason(
            fact=name,
            value=str(version) if version else "unknown",
            because=_why_moved(offer, package, str(moved)) if moved else f"of the CUDA set, {_of(row)}",
            source=_source(space, row, f"pins.{package}", "pins"),
        )


def set_notes(space: Space, offer: Offer) -> Iterator[str]:
    """Say which libraries are not those of the CUDA set, so that their layers are not shared."""
    if offer.build.cuda_from is None:
        return
    for package, version in fitted_of(space, offer).moved.items():
        name = _NAMES[package.split("-")[1]]
        yield (
            f"{name} is {offer.build.pins[package]}, not {version} of the CUDA set {offer.cuda}: "
            f"{space.name} {offer.version} takes `{_range(offer, package)}`"
        )


def misfits(space: Space, offers: list[Offer], cuda: Cuda) -> Iterator[str]:
    """Say why builds that take ranges cannot have the CUDA set of this CUDA, the newest release first."""
    row = space.matrix.cuda_sets.get(str(cuda))
    for offer in offers:
        raw = offer.release.builds[offer.variant]
        if raw.cuda_from is None or raw.cuda_from.major != cuda.major:
            continue
        if row is None:
            yield f"there is no CUDA set {cuda}, since no release pins all of its libraries"
            continue
        if str(cuda) not in sets_for(space.matrix, raw):
            yield f"{space.name} {offer.version} takes CUDA {raw.cuda_from} and newer"
            continue
        yield from misfit_words(space, str(offer.version), str(cuda), fit(space.matrix, raw, str(cuda)))


def misfit_words(space: Space, version: str, cuda: str, fitted: Fitted) -> Iterator[str]:
    """Say for each library of a CUDA set that a release does not take it."""
    row = space.matrix.cuda_sets[cuda]
    for package, (wanted, held) in fitted.misfits.items():
        has = f"has {package} {held}" if held else f"has no {package}"
        yield f"the CUDA set {cuda}, {_of(row)}, {has}, and {space.name} {version} takes `{wanted}`"


def fitted_of(space: Space, offer: Offer) -> Fitted:
    """Give what an offer that takes a CUDA set got of it."""
    return fit(space.matrix, offer.release.builds[offer.variant], str(offer.cuda))


def _of(row: CudaSet) -> str:
    return f"the libraries of {row.framework} {row.release}"


def _range(offer: Offer, package: str) -> str:
    return offer.release.builds[offer.variant].pins[package]


def _why_moved(offer: Offer, package: str, held: str) -> str:
    return f"nearest to {held} of the CUDA set that `{_range(offer, package)}` of this build takes"


def _source(space: Space, row: CudaSet, *facts: str) -> str | None:
    for fact in facts:
        if fact in row.src:
            text, grade = cite(space.matrix, row.src[fact])
            return f"grade {grade}: {text}"
    return None
