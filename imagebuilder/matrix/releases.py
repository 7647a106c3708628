"""The facts of a framework: its releases, their builds and the wheels of those. Part of `facts`."""
# ruff: noqa: TC001, TC002, TC003 - the hints are read at run time, by `shape`

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.matrix.row import Row, row
from imagebuilder.matrix.words import Capability, Cuda, Glibc, Grade, Machine, Python, Target


@row
class Wheels(Row):
    """The wheels of one build for one machine: Python tags, glibc floor, code targets.

    `glibc` is the floor of the platform tag, `glibc_measured` and `glibcxx` the highest symbol versions
    found in the libraries. Empty `cubin` and `ptx` mean that the targets are not known.
    """

    python: tuple[str, ...]
    glibc: Glibc
    glibc_measured: Glibc | None = None
    glibcxx: Version | None = None
    cubin: tuple[Target, ...] = ()
    ptx: tuple[Target, ...] = ()
    size_mib: float | None = None
    src: Mapping[str, str] = field(default_factory=dict)


@row
class Build(Row):
    """One build of a framework release for one CUDA, as one index serves it.

    `source` names the index (`pypi`, or a key of the framework's `indexes`), `also_on` further ones that
    serve a wheel of the same version and variant. Where `source` has a CPU-only build of the same version
    for a machine, the wheels here for that machine are on the `also_on` indexes alone.

    A build that pins its CUDA libraries names its `cuda`. One that takes ranges of them names `cuda_from`,
    the oldest CUDA of the major that it runs with; which one it gets is a row of `cuda_sets`. One with
    neither is CPU-only: recorded because an index serves it silently, never chosen. `unusable` says why no
    image can be made of a build, which is then recorded to be refused with this reason.

    `extras` are the extras of the package that ask for the CUDA wheels. `compiles_from` and `compiles_to` are
    the oldest and the newest compute capability that the framework compiles its kernels for at run time;
    `fails_on` are majors of capabilities on which it does not run, although a driver could compile its PTX.
    """

    source: str
    also_on: tuple[str, ...] = ()
    version: Version
    extras: tuple[str, ...] = ()
    unusable: str | None = None
    cuda: Cuda | None = None
    cuda_from: Cuda | None = None
    toolkit: Version | None = None
    cudnn: Version | None = None
    nccl: Version | None = None
    cublas: str | None = None
    pins: Mapping[str, str] = field(default_factory=dict)
    local_version: str | None = None
    commit: str | None = None
    bundled: tuple[str, ...] = ()
    wheels: Mapping[Machine, Wheels]
    compiles_from: Capability | None = None
    compiles_to: Capability | None = None
    fails_on: tuple[int, ...] = ()
    grade: Grade
    note: str | None = None
    src: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_cpu_only(self) -> bool:
        """Whether the wheels know no GPU at all."""
        return self.cuda is None and self.cuda_from is None and self.unusable is None


@row
class Ceiling(Row):
    """A known break that package metadata does not declare: `spec` of a package that works, and why."""

    spec: SpecifierSet
    why: str
    first_without: Version | None = None
    src: str


@row
class Release(Row):
    """One release of a framework with all its builds, keyed by variant (cu121)."""

    released: str | None = None
    yanked: str | None = None
    requires_python: SpecifierSet = field(default_factory=SpecifierSet)
    requires: Mapping[str, SpecifierSet] = field(default_factory=dict)
    triton: str | None = None
    triton_python_below: Python | None = None
    cxx11_abi: Mapping[str, bool] = field(default_factory=dict)
    companions: Mapping[str, tuple[Version, ...]] = field(default_factory=dict)
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    builds: Mapping[str, Build]
    note: str | None = None
    src: Mapping[str, str] = field(default_factory=dict)


@row
class Framework(Row):
    """A framework: its package, the names people call it, its own indexes, its releases (by version)."""

    package: str
    aliases: tuple[str, ...] = ()
    indexes: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    releases: Mapping[str, Release]
