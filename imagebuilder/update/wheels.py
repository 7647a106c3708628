"""What the names of a release's wheels say for one machine, and which of them speaks for all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from imagebuilder.matrix.words import Python

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from packaging.tags import Tag

    from imagebuilder.remote.project import WheelFile

MIB = 2**20
# The names of before PEP 600, and the glibc that they stand for.
LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def for_machine(files: Sequence[WheelFile], machine: str) -> tuple[WheelFile, ...]:
    """Give the wheels that Linux on this machine takes."""
    return tuple(file for file in files if any(True for _ in _tags(file, machine)))


def named(files: Sequence[WheelFile], machine: str) -> dict[str, Any]:
    """Give the facts that file names and sizes tell, as a row of `wheels` with its sources."""
    tags = [tag for file in files for tag in _tags(file, machine)]
    row: dict[str, Any] = {"python": sorted({_python_tag(tag) for tag in tags}, key=_by_python)}
    floors = {floor for tag in tags if (floor := _glibc(tag.platform))}
    if floors:
        # a wheel with several tags runs on the lowest of them
        row["glibc"] = min(floors, key=Version)
    sizes = [file.size for file in files]
    if sizes and all(size is not None for size in sizes):
        row["size_mib"] = round(max(size for size in sizes if size is not None) / MIB, 1)
    return {**row, "src": dict.fromkeys(row, "pypi-index")}


def sample(files: Sequence[WheelFile], machine: str, python: Python) -> WheelFile:
    """Give the wheel that is read for all: for this Python, else the oldest that is newer, else the newest.

    Of two for the same Python it is the one with the higher build number, as for installers.
    """

    def rank(file: WheelFile) -> tuple[bool, bool, int, int, str]:
        found = min(_pythons(file, machine) or [python], key=lambda one: (one < python, _gap(one, python)))
        free_threaded = all(tag.abi.endswith("t") for tag in _tags(file, machine))
        build = file.build[0] if file.build else 0
        return free_threaded, found < python, _gap(found, python), -build, file.name

    return min(files, key=rank)


def python_of(file: WheelFile, machine: str, python: Python) -> Python:
    """Give the Python that markers are read for: the wheel's own; `python` where it runs on any."""
    found = _pythons(file, machine)
    return python if python in found or not found else found[0]


def released(files: Sequence[WheelFile]) -> str | None:
    """Give the date of the first upload, None where the index does not say it of every file."""
    dates = [file.uploaded for file in files]
    return min(date for date in dates if date) if dates and all(dates) else None


def _tags(file: WheelFile, machine: str) -> Iterator[Tag]:
    for tag in sorted(file.tags, key=str):
        if tag.platform == "any" or ("linux" in tag.platform and tag.platform.endswith(f"_{machine}")):
            yield tag


def _python_tag(tag: Tag) -> str:
    if tag.abi.startswith(tag.interpreter) and tag.abi.endswith("t"):
        return tag.abi
    return f"{tag.interpreter}-abi3" if tag.abi == "abi3" else tag.interpreter


def _by_python(tag: str) -> tuple[int, int, str]:
    match = re.match(r"[a-z]+(\d)(\d*)", tag)
    return (int(match[1]), int(match[2] or 0), tag) if match else (0, 0, tag)


def _pythons(file: WheelFile, machine: str) -> list[Python]:
    matches = [re.fullmatch(r"cp3(\d+)", tag.interpreter) for tag in _tags(file, machine)]
    return [Python.parse(f"3.{match[1]}") for match in matches if match]


def _gap(one: Python, other: Python) -> int:
    return abs(one.numbers[1] - other.numbers[1])


def _glibc(platform: str) -> str | None:
    match = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    return f"{match[1]}.{match[2]}" if match else LEGACY.get(platform.partition("_")[0])
