"""What the matrix offers under a few conditions: the rows of `imgbuild matrix show`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from imagebuilder.matrix.fit import (
    capabilities,
    driver_compiles,
    driver_floor,
    driver_knows,
    driver_runs,
    glibc_fits,
    python_fits,
    pythons,
    runs_on,
    served_by,
)
from imagebuilder.matrix.sets import builds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.specifiers import SpecifierSet

    from imagebuilder.matrix.facts import Base, Build, Gpu, Grade, Machine, Matrix, Wheels
    from imagebuilder.matrix.words import Capability, Cuda, Driver, Python


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What is asked for; `None` and an empty tuple ask for nothing."""

    machine: Machine
    framework: str | None = None
    spec: SpecifierSet | None = None
    cuda: Cuda | None = None
    python: Python | None = None
    gpus: tuple[Gpu, ...] = ()
    driver: Driver | None = None
    base: Base | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """One build that meets the conditions."""

    framework: str
    release: Version
    variant: str
    cuda: Cuda
    cudnn: Version | None
    nccl: Version | None
    pythons: tuple[Python, ...]
    sources: tuple[str, ...]
    driver_min: Driver
    capabilities: tuple[Capability, ...]
    grade: Grade
    note: str | None


def offered(matrix: Matrix, conditions: Conditions) -> list[Offered]:
    """Give the builds with CUDA that meet the conditions, by framework, the newest release and CUDA first."""
    found = [row for name in matrix.frameworks for row in _of_framework(matrix, name, conditions)]
    found.sort(key=lambda row: (row.release, row.cuda), reverse=True)
    found.sort(key=lambda row: row.framework)
    return found


def _of_framework(matrix: Matrix, name: str, conditions: Conditions) -> Iterator[Offered]:
    if conditions.framework not in (None, name):
        return
    for text, release in matrix.frameworks[name].releases.items():
        version = Version(text)
        if conditions.spec is not None and not conditions.spec.contains(version, prereleases=True):
            continue
        for variant, build in builds_of(matrix, release):
            wheels = build.wheels.get(conditions.machine)
            if (
                wheels is None
                or build.cuda is None
                or not _meets(matrix, conditions, build, build.cuda, wheels)
            ):
                continue
            yield Offered(
                framework=name,
                release=version,
                variant=variant,
                cuda=build.cuda,
                cudnn=build.cudnn,
                nccl=build.nccl,
                pythons=pythons(wheels),
                sources=served_by(release, build, conditions.machine),
                driver_min=driver_floor(matrix, build.cuda),
                capabilities=capabilities(matrix, build, wheels),
                grade=build.grade,
                note=build.note,
            )


def _meets(matrix: Matrix, conditions: Conditions, build: Build, cuda: Cuda, wheels: Wheels) -> bool:
    base, driver = conditions.base, conditions.driver
    python = conditions.python or (base.python if base else None)
    return (
        conditions.cuda in (None, cuda)
        and (python is None or python_fits(wheels, python))
        and (base is None or (base.python == python and glibc_fits(wheels, base)))
        and (driver is None or driver_runs(matrix, cuda, driver))
        and all(_runs(matrix, conditions, build, cuda, wheels, gpu) for gpu in conditions.gpus)
    )


def _runs(matrix: Matrix, conditions: Conditions, build: Build, cuda: Cuda, wheels: Wheels, gpu: Gpu) -> bool:
    how = runs_on(matrix, build, wheels, gpu.capability)
    if how is None or gpu.host not in (None, conditions.machine):
        return False
    driver = conditions.driver
    return driver is None or (
        driver_knows(gpu, driver) and (how == "cubin" or driver_compiles(matrix, cuda, driver))
    )
