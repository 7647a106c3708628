"""A release of a framework as an index tells it: a plain row of the matrix, each fact with its source.

Only what an index can tell: other indexes, ceilings and notes are not its affair.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from imagebuilder.matrix.words import Machine, Python, Target
from imagebuilder.remote.project import wheels_of
from imagebuilder.remote.wheel import metadata_of
from imagebuilder.update.inside import Inside, inside
from imagebuilder.update.requirements import Asked, python_wanted, requirements
from imagebuilder.update.wheels import for_machine, named, python_of, released, sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.version import Version

    from imagebuilder.remote.client import Client
    from imagebuilder.remote.project import WheelFile
    from imagebuilder.update.recipes import Recipe

Row = dict[str, Any]
# The facts of a build that are pins of single libraries, and the package of each without its CUDA suffix.
_LIBRARIES = {"cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl", "cublas": "nvidia-cublas"}
_TOOLKIT = "cuda-toolkit"


class _Told(NamedTuple):
    """What one wheel tells."""

    file: WheelFile
    inside: Inside
    metadata: str
    asked: tuple[Asked, ...]


def derive(client: Client, recipe: Recipe, files: Sequence[WheelFile], python: Python) -> Row:
    """Give the row of a release whose wheels these are; raises OutsideError.

    `python` is the one whose wheels are read for all of them. A release without wheels for Linux has no
    builds.
    """
    told = {
        machine: _tell(client, recipe, mine, machine, python)
        for machine in get_args(Machine)
        if (mine := for_machine(files, machine))
    }
    builds: dict[str, Row] = {}
    for machine, one in told.items():
        wheels = named(for_machine(files, machine), machine)
        cuda = one.inside.cuda
        variant = f"cu{cuda.replace('.', '')}" if cuda else f"cpu-{machine}"
        if variant not in builds:
            builds[variant] = _build(client, recipe, one, machine, python)
        builds[variant]["wheels"][machine] = _with_targets(wheels, one) if cuda else wheels
    row, src = _release(recipe, files, next((one for one in told.values() if one.inside.cuda), None))
    return {**row, "builds": builds, "src": src}


def _tell(client: Client, recipe: Recipe, files: Sequence[WheelFile], machine: str, python: Python) -> _Told:
    file = sample(files, machine, python)
    metadata = metadata_of(client, file)
    asked = requirements(metadata, file, machine, python_of(file, machine, python))
    return _Told(file, inside(client, recipe, file), metadata, asked)


def _release(recipe: Recipe, files: Sequence[WheelFile], told: _Told | None) -> tuple[Row, dict[str, str]]:
    row: Row = {}
    src: dict[str, str] = {}
    if date := released(files):
        row["released"], src["released"] = date, "pypi-index"
    if all(file.yanked is not None for file in files):
        row["yanked"], src["yanked"] = str(files[0].yanked), "pypi-index"
    if told is None:
        return row, src
    facts = {
        "requires_python": python_wanted(told.metadata),
        "requires": {
            one.name: str(one.written.specifier)
            for one in told.asked
            if one.written.specifier and not re.fullmatch(recipe.libraries, one.name)
        },
    }
    for one in told.asked:
        if one.name == recipe.compiler:
            facts[recipe.compiler] = one.pin
            facts[f"{recipe.compiler}_python_below"] = one.python_below
    held = {name: value for name, value in facts.items() if value}
    src.update(dict.fromkeys(held, "pypi-meta"))
    if f"{recipe.compiler}_python_below" in held:
        src[f"{recipe.compiler}_python_below"] += f" (marker of the {recipe.compiler} requirement)"
    return {**row, **held}, src


def _build(client: Client, recipe: Recipe, told: _Told, machine: str, python: Python) -> Row:
    row: Row = {"source": "pypi", "version": str(told.file.version), "grade": "A", "wheels": {}}
    if told.inside.cuda is None:
        note = f"pip on {machine} gets a CPU-only wheel"
        return {**row, "note": note, "src": {"source": "pypi-index"}}
    pins = {one.name: one.pin for one in told.asked if re.fullmatch(recipe.libraries, one.name)}
    stated = {name: getattr(told.inside, name) for name in ("cuda", "local_version", "commit")}
    toolkit = next((one for one in told.asked if one.name == _TOOLKIT), None)
    meta: Row = {"toolkit": str(toolkit.written.specifier).removeprefix("==") if toolkit else None}
    meta |= {fact: _pinned(pins, stem) for fact, stem in _LIBRARIES.items()}
    if toolkit and not meta["cublas"]:
        meta["cublas"] = _of_toolkit(client, toolkit, machine, python).get("nvidia-cublas")
    meta["pins"] = pins
    sources = (
        (stated, "wheel-version"),
        (meta, "pypi-meta"),
        ({"bundled": [*told.inside.bundled]}, "wheel-elf"),
    )
    for facts, source in sources:
        held = {name: value for name, value in facts.items() if value}
        row.update(held)
        row.setdefault("src", {"source": "pypi-index"}).update(dict.fromkeys(held, source))
    return row


def _pinned(pins: dict[str, str], stem: str) -> str | None:
    return next((pin for name, pin in pins.items() if re.fullmatch(rf"{stem}(-cu\d+)?", name)), None)


def _of_toolkit(client: Client, toolkit: Asked, machine: str, python: Python) -> dict[str, str]:
    """Give the components that the toolkit metapackage pins for the extras that are asked for."""
    files = [file for file in wheels_of(client, _TOOLKIT) if file.version in toolkit.written.specifier]
    if not files:
        return {}
    file = max(files, key=lambda one: one.version)
    metadata = metadata_of(client, file)
    extras = sorted(toolkit.written.extras)
    found = (requirements(metadata, file, machine, python, extra) for extra in extras)
    return {one.name: one.pin for asked in found for one in asked}


def _with_targets(wheels: Row, told: _Told) -> Row:
    targets = sorted(told.inside.targets, key=Target.parse)
    facts = {
        "cubin": [one for one in targets if one.startswith("sm")],
        "ptx": [one for one in targets if one.startswith("compute")],
    }
    held: Row = {name: value for name, value in facts.items() if value}
    src = dict.fromkeys(held, f"wheel-arch ({told.file.name})")
    for name, value in (("glibc_measured", told.inside.glibc), ("glibcxx", told.inside.glibcxx)):
        if value:
            held[name], src[name] = value, "wheel-elf"
    return {**wheels, **held, "src": {**wheels["src"], **src}}


def releases_of(files: Sequence[WheelFile]) -> dict[Version, list[WheelFile]]:
    """Give the wheels by release, oldest first; pre-releases are none, and files of CUDA variants neither."""
    found: dict[Version, list[WheelFile]] = {}
    for file in sorted(files, key=lambda one: one.version):
        if not file.version.is_prerelease and file.version.local is None:
            found.setdefault(file.version, []).append(file)
    return found
