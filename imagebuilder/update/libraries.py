"""Rows of cuDNN and NCCL releases that a framework pins and the matrix lacks, from their index pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version

from imagebuilder.remote.project import wheels_of
from imagebuilder.update.wheels import for_machine, named, released

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagebuilder.remote.client import Client
    from imagebuilder.remote.project import WheelFile

Row = dict[str, Any]
LIBRARIES = ("cudnn", "nccl")


def missing(plain: Mapping[str, Any], releases: Iterable[Row]) -> dict[str, list[str]]:
    """Give the releases of libraries that builds pin and the matrix has no row of."""
    pinned = {
        (library, str(build[library]))
        for release in releases
        for build in release["builds"].values()
        for library in LIBRARIES
        if library in build
    }
    lacking = sorted(
        ((name, one) for name, one in pinned if one not in plain[name]), key=lambda pair: Version(pair[1])
    )
    return {library: [one for name, one in lacking if name == library] for library in LIBRARIES}


def library_row(client: Client, library: str, version: str, majors: Iterable[int]) -> Row:
    """Give the row of one release, `cuda_majors` empty where the index has none; raises OutsideError.

    Which code it holds is not read: that is measured by hand.
    """
    held: dict[int, list[WheelFile]] = {}
    for major in majors:
        files = wheels_of(client, f"nvidia-{library}-cu{major}")
        if mine := [file for file in files if file.version == Version(version)]:
            held[major] = mine
    every = [file for files in held.values() for file in files]
    row: Row = {}
    if date := released(every):
        row["released"] = date
    row["cuda_majors"] = sorted(held)
    if arm := [major for major, files in sorted(held.items()) if for_machine(files, "aarch64")]:
        row["aarch64"] = arm
    if yanked := [
        one for one, files in sorted(held.items()) if all(file.yanked is not None for file in files)
    ]:
        row["yanked"] = yanked
    if "glibc" in (x86 := named(for_machine(every, "x86_64"), "x86_64")):
        row["glibc"] = x86["glibc"]
    return {**row, "src": dict.fromkeys(row, "pypi-index")}
