"""Builds that are recorded because people ask for them, and that no image can be made of: why not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagebuilder.matrix.sets import fit, sets_for
from imagebuilder.resolve.alternatives import matched
from imagebuilder.resolve.cuda_sets import misfit_words
from imagebuilder.resolve.explain import graded, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.matrix.facts import Build
    from imagebuilder.matrix.words import Cuda
    from imagebuilder.resolve.candidates import Space


def why_none(space: Space) -> tuple[str, str | None]:
    """Say why none of the releases that the specifier allows can be chosen, and the source."""
    spec = space.request.spec
    there = [text for text in space.framework.releases if spec.contains(text, prereleases=True)]
    for text in reversed(there):
        for build in space.framework.releases[text].builds.values():
            if build.unusable:
                return f"{text} cannot be had: {build.unusable}", graded(space.matrix, build, "unusable")
    for text in reversed(there):
        for build in space.framework.releases[text].builds.values():
            found = next(_no_set(space, text, build), None)
            if found:
                return found, graded(space.matrix, build, "pins")
    why = f"{joined(there)} is yanked, a pre-release or CPU-only" if there else "no such release is known"
    return why, None


def _no_set(space: Space, version: str, build: Build) -> Iterator[str]:
    """Say why no CUDA set fits a build that takes ranges, by the newest set of its major."""
    for cuda in reversed(list(sets_for(space.matrix, build))):
        yield from misfit_words(space, version, cuda, fit(space.matrix, build, cuda))


def unusable_for(space: Space, cuda: Cuda) -> Iterator[str]:
    """Say of the releases that the specifier allows which builds for a CUDA major cannot be had, and why."""
    for version in matched(space):
        for variant, build in space.framework.releases[str(version)].builds.items():
            if build.unusable and re.match(rf"cu(da)?{cuda.major}", variant):
                yield f"{version} for CUDA {cuda.major} cannot be had: {build.unusable}"
