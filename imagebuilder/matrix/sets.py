"""CUDA sets: which exact libraries a build gets that asks for ranges of them.

Of the wheels that the build asks for it gets those of the set. cuDNN and NCCL, whose releases work with every
CUDA of a major, move to the nearest release that the range takes; any other wheel outside of its range means
that the build cannot have this set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.matrix.words import Cuda

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagebuilder.matrix.facts import Build, CudaSet, LibraryRelease, Machine, Matrix, Release

_MOVABLE = re.compile(r"nvidia-(?P<table>cudnn|nccl)-cu\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a build gets of a CUDA set: `build` with exact pins, what `moved` (from the set's version).

    `misfits` are the wheels whose range does not take the set: the range, and the set's version or None. A
    build with misfits cannot have the set.
    """

    build: Build
    moved: Mapping[str, Version]
    misfits: Mapping[str, tuple[str, Version | None]]


def builds_of(matrix: Matrix, release: Release) -> Iterator[tuple[str, Build]]:
    """Give the builds of a release with CUDA by variant; one that takes ranges, once for each set it fits."""
    for variant, build in release.builds.items():
        if build.unusable is not None:
            continue
        if build.cuda is not None:
            yield variant, build
        elif build.cuda_from is not None:
            for cuda in sets_for(matrix, build):
                fitted = fit(matrix, build, cuda)
                if not fitted.misfits:
                    yield variant, fitted.build


def sets_for(matrix: Matrix, build: Build) -> Iterator[str]:
    """Give the CUDA sets of a build's major from its oldest CUDA on."""
    for text in matrix.cuda_sets:
        cuda = Cuda.parse(text)
        if build.cuda_from and cuda.major == build.cuda_from.major and cuda >= build.cuda_from:
            yield text


def fit(matrix: Matrix, build: Build, cuda: str) -> Fitted:
    """Give a build that takes ranges the libraries of the CUDA set of this name."""
    row = matrix.cuda_sets[cuda]
    pins: dict[str, str] = {}
    moved: dict[str, Version] = {}
    misfits: dict[str, tuple[str, Version | None]] = {}
    for name, text in build.pins.items():
        version = row.pins.get(name)
        if text[0].isdigit() or takes(text, version):
            pins[name] = text if version is None or text[0].isdigit() else str(version)
            continue
        near = None if name in row.fixed else _nearest(matrix, name, text, version)
        if near is None:
            misfits[name] = (text, version)
        elif version is not None:
            pins[name], moved[name] = str(near), version
    fitted = replace(
        build,
        cuda=Cuda.parse(cuda),
        cudnn=_library(pins, "cudnn"),
        nccl=_library(pins, "nccl"),
        pins=pins,
        wheels={
            machine: wheels
            for machine, wheels in build.wheels.items()
            if machine in row.machines and all(_is_there(matrix, name, pins, machine) for name in moved)
        },
    )
    return Fitted(build=fitted, moved=moved, misfits=misfits)


def rest_of(row: CudaSet, build: Build) -> dict[str, str]:
    """Give the pins of a set that a build does not ask for: what else comes of CUDA must be these."""
    return {name: f"=={version}" for name, version in row.pins.items() if name not in build.pins}


@lru_cache(maxsize=4096)
def takes(text: str, version: Version | None) -> bool:
    """Tell whether a range takes a version."""
    return version is not None and SpecifierSet(text).contains(version, prereleases=True)


def _nearest(matrix: Matrix, name: str, text: str, wanted: Version | None) -> Version | None:
    """Give the cuDNN or NCCL release in a range that is nearest to the set's, newer ones before older."""
    movable = _MOVABLE.fullmatch(name)
    if movable is None or wanted is None:
        return None
    releases: Mapping[str, LibraryRelease] = getattr(matrix, movable["table"])
    major = int(name[-2:])
    there = [
        version
        for key, release in releases.items()
        if takes(text, version := _version(key))
        and major in release.cuda_majors
        and major not in release.yanked
    ]
    newer = [version for version in there if version > wanted]
    return min(newer, default=max(there, default=None))


@lru_cache(maxsize=512)
def _version(text: str) -> Version:
    return Version(text)


def _is_there(matrix: Matrix, name: str, pins: Mapping[str, str], machine: Machine) -> bool:
    """Tell whether a cuDNN or NCCL that moved has a wheel for a machine."""
    releases: Mapping[str, LibraryRelease] = getattr(matrix, name.split("-")[1])
    return machine == "x86_64" or int(name[-2:]) in releases[pins[name]].aarch64


def _library(pins: Mapping[str, str], name: str) -> Version | None:
    return next((Version(pin) for key, pin in pins.items() if key.startswith(f"nvidia-{name}-")), None)
