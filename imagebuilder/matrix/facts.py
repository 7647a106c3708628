"""The facts of matrix.yaml as frozen typed values: one class a kind of row.

Every row can say where its facts come from: `src` maps the name of a fact to its source, a text in the
grammar of `imagebuilder.matrix.sources`. An absent fact is unknown, never a default.
Type hints here *are* the schema: `read` checks a file against them and `dump` writes them back.
"""
# ruff: noqa: TC001, TC002, TC003 - the hints are read at run time, by `shape`

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.matrix.releases import Build as Build
from imagebuilder.matrix.releases import Ceiling as Ceiling
from imagebuilder.matrix.releases import Framework as Framework
from imagebuilder.matrix.releases import Release as Release
from imagebuilder.matrix.releases import Wheels as Wheels
from imagebuilder.matrix.row import Row, row
from imagebuilder.matrix.words import Capability, Cuda, Driver, Glibc, Python, Target
from imagebuilder.matrix.words import Grade as Grade
from imagebuilder.matrix.words import Machine as Machine


@row
class Source(Row):
    """Where facts come from. A: read from the artefact, B: official text, C: third party, D: inferred."""

    grade: Grade
    what: str | None = None
    where: str | None = None
    read: str | None = None


@row
class CudaMajor(Row):
    """The minor-version-compatibility floor of a CUDA major: its toolkits run from `driver_min` on."""

    driver_min: Driver
    src: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None


@row
class ToolkitRelease(Row):
    """One toolkit release such as 12.1.1: what it packages and which nvidia/cuda image tags exist."""

    driver: Driver | None = None
    cudart: Version | None = None
    cublas: Version | None = None
    nvcc: Version | None = None
    nvjitlink: Version | None = None
    metapackage: str | None = None
    wrong_pins: str | None = None
    images: ImageTags | None = None
    src: Mapping[str, str] = field(default_factory=dict)


@row
class ImageTags(Row):
    """What is known of the nvidia/cuda tags of a toolkit release."""

    state: str
    os: tuple[str, ...] = ()
    cudnn_os: tuple[str, ...] = ()
    cudnn_suffix: str | None = None
    cudart: tuple[Version, ...] = ()
    cublas: tuple[Version, ...] = ()
    cudnn: tuple[Version, ...] = ()
    nccl: tuple[Version, ...] = ()
    seen: tuple[str, ...] = ()
    seen_on_hub: tuple[str, ...] = ()
    library_path: str | None = None
    note: str | None = None
    src: str | None = None


@row
class Toolkit(Row):
    """One CUDA minor: its packaged driver and the compute capabilities it can target."""

    driver_branch: int
    driver_packaged: Driver | None = None
    driver_packaged_of: Version | None = None
    driver_min: Driver
    capabilities: tuple[Capability, ...]
    capabilities_specific: tuple[Target, ...] = ()
    gcc_max: int | None = None
    clang_below: int | None = None
    compat_branches: tuple[int, ...] = ()
    compat_package: str | None = None
    compat_from_image: Version | None = None
    releases: Mapping[str, ToolkitRelease]
    note: str | None = None
    src: Mapping[str, str] = field(default_factory=dict)


@row
class RunsOn(Row):
    """Which compute capabilities run the machine code of one target."""

    same_major_from: Capability | None = None
    excepted: tuple[Capability, ...] = ()
    only: tuple[Capability, ...] = ()

    def __contains__(self, capability: Capability) -> bool:
        if self.same_major_from is None:
            return capability in self.only
        low = self.same_major_from
        return capability.major == low.major and capability >= low and capability not in self.excepted


@row
class Gpu(Row):
    """One GPU or series: compute capability, what its tensor cores multiply, the drivers that know it."""

    capability: Capability
    aliases: tuple[str, ...] = ()
    arch: str
    kind: Literal["datacenter", "workstation", "geforce", "jetson", "superchip"]
    memory: str | None = None
    host: Machine | None = None
    tensor_cores: tuple[str, ...]
    amp: str
    cuda_first: Cuda
    cuda_last: Cuda | None = None
    driver_branch_first: int | None = None
    driver_branch_last: int | None = None
    driver_min: Driver | None = None
    kernel_module: str | None = None
    forward_compat: str
    note: str | None = None
    src: Mapping[str, str] = field(default_factory=dict)


@row
class DriverBranch(Row):
    """Support of a driver branch."""

    kind: str
    eol: str | None = None
    note: str | None = None
    src: Mapping[str, str] = field(default_factory=dict)


@row
class CudaCode(Row):
    """The code that one library build holds."""

    sass: tuple[Target, ...]
    ptx: tuple[Target, ...] = ()
    tensor_ir_engine: bool | None = None


@row
class LibraryRelease(Row):
    """One cuDNN or NCCL release on the package index; `code` is keyed by CUDA package suffix (cu12)."""

    released: str | None = None
    cuda_majors: tuple[int, ...]
    aarch64: tuple[int, ...] = ()
    yanked: tuple[int, ...] = ()
    glibc: Glibc | None = None
    code: Mapping[str, CudaCode] = field(default_factory=dict)
    note: str | None = None
    src: Mapping[str, str] = field(default_factory=dict)


@row
class CudaSet(Row):
    """The libraries of one CUDA minor: exact versions of the nvidia wheels, as one release pins them.

    Builds that take ranges get these, so that images of the same CUDA hold the same libraries. Wheels that
    the release does not pin name their own source: `src: {pins.nvidia-cuda-nvcc-cu12: ...}`. All of them are
    there for `machines`. What is `fixed` cannot move, since another framework of the image pins it; no file
    says so.
    """

    framework: str
    release: Version
    machines: tuple[Machine, ...]
    pins: Mapping[str, Version]
    src: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None
    fixed: tuple[str, ...] = field(default=(), metadata={"fact": False})


@row
class PackageRelease(Row):
    """One release of a package that a stack holds beside the framework (numpy)."""

    python: tuple[str, ...]
    glibc: Mapping[Machine, Glibc] = field(default_factory=dict)
    src: Mapping[str, str] = field(default_factory=dict)


@row
class Base(Row):
    """A base image: its distribution, glibc, its own Python, and where it comes from.

    `image` is the registry reference without digest, `suite` the distribution's name of the release
    for a bootstrap from its packages (absent where we do not bootstrap it).
    """

    distribution: str
    suite: str
    bootstrap: bool
    image: str
    glibc: Glibc
    python: Python
    gcc: int
    machines: tuple[Machine, ...]
    default: bool = False
    eol: str | None = None
    src: Mapping[str, str] = field(default_factory=dict)


@row
class Gone(Row):
    """Image tags that people still ask for and that are gone or must not be used."""

    why: str
    instead: str
    src: str


@row
class Clash(Row):
    """A rule that package metadata does not hold: with `framework` `spec`, `package` must meet `needs`."""

    framework: str
    spec: SpecifierSet
    package: str
    needs: SpecifierSet
    why: str
    src: str


@row
class Floor(Row):
    """The lowest version of a program on the host that is free of a known fault, and which fault."""

    program: str
    version: Version
    why: str
    src: str


@row
class Extra(Row):
    """What `--with NAME` adds: wheels by framework (`any` for all of them), packages of the distribution."""

    what: str
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    debs: tuple[str, ...] = ()
    note: str | None = None
    src: Mapping[str, str] = field(default_factory=dict)


@row
class Matrix(Row):
    """All facts. Keys are the printable names: `12.1`, `V100`, `sm_80`, `2.4.1`, `debian-12`."""

    schema: int
    sources: Mapping[str, Source]
    cuda_majors: Mapping[str, CudaMajor]
    toolkits: Mapping[str, Toolkit]
    code_runs_on: Mapping[str, RunsOn]
    gpus: Mapping[str, Gpu]
    driver_branches: Mapping[str, DriverBranch]
    cudnn: Mapping[str, LibraryRelease]
    nccl: Mapping[str, LibraryRelease]
    cuda_sets: Mapping[str, CudaSet] = field(default_factory=dict)
    bases: Mapping[str, Base]
    gone: Mapping[str, Gone]
    packages: Mapping[str, Mapping[str, PackageRelease]]
    clashes: tuple[Clash, ...]
    floors: Mapping[str, Floor] = field(default_factory=dict)
    extras: Mapping[str, Extra] = field(default_factory=dict)
    frameworks: Mapping[str, Framework]
    digest: str = field(default="", compare=False, metadata={"fact": False})
