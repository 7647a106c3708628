"""Whether a build fits a GPU, a driver, a Python, a base: what `resolve` and `matrix show` both ask."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from imagebuilder.errors import UsageError
from imagebuilder.matrix.words import Capability, Cuda, Driver, Python, Target

if TYPE_CHECKING:
    from imagebuilder.matrix.facts import Base, Build, Gpu, Machine, Matrix, Release, Wheels

MACHINES: dict[str, Machine] = {"amd64": "x86_64", "arm64": "aarch64"}


def runs_on(
    matrix: Matrix, build: Build, wheels: Wheels, capability: Capability
) -> Literal["cubin", "ptx"] | None:
    """Tell how wheels run on a compute capability: as machine code, as PTX that the driver compiles, or not.

    The cuDNN release of the build must run there too where the matrix knows which code it holds: a
    framework with code for a GPU and a cuDNN without fails at the first convolution. PTX of cuDNN does not
    count: it covers a few kernels only (cuDNN 9.5 on Blackwell). Its code was read from x86-64 wheels, so it
    says nothing of other machines (sm_110 is on aarch64 alone).
    """
    if capability.major in build.fails_on:
        return None
    compiled = _compiles(matrix, build, capability)
    own = "cubin" if compiled else code_on(matrix, wheels.cubin, wheels.ptx, capability)
    if own is None or build.cudnn is None or build.cuda is None or build.wheels.get("x86_64") != wheels:
        return own
    library = matrix.cudnn.get(str(build.cudnn))
    code = library.code.get(f"cu{build.cuda.major}") if library else None
    if code is None:
        return own
    return own if code_on(matrix, code.sass, (), capability) else None


def _compiles(matrix: Matrix, build: Build, capability: Capability) -> bool:
    """Tell whether a framework makes machine code for a capability at run time, with its toolkit's ptxas.

    Integrated GPUs are left out: the CUDA libraries beside the framework hold no code for them.
    """
    if build.compiles_from is None or build.compiles_to is None or build.cuda is None:
        return False
    if not build.compiles_from <= capability <= build.compiles_to:
        return False
    if any(capability in runs_on.excepted for runs_on in matrix.code_runs_on.values()):
        return False
    return capability in matrix.toolkits[str(build.cuda)].capabilities


def code_on(
    matrix: Matrix, cubin: tuple[Target, ...], ptx: tuple[Target, ...], capability: Capability
) -> Literal["cubin", "ptx"] | None:
    """Tell how code for these targets runs on a compute capability, by the table `code_runs_on`."""
    if any(capability in matrix.code_runs_on[target.text] for target in cubin):
        return "cubin"
    return "ptx" if any(target.capability <= capability for target in ptx) else None


def capabilities(matrix: Matrix, build: Build, wheels: Wheels) -> tuple[Capability, ...]:
    """Give the compute capabilities, of all that GPUs of the matrix have, where the wheels run as cubin."""
    return tuple(one for one in known_capabilities(matrix) if runs_on(matrix, build, wheels, one) == "cubin")


def known_capabilities(matrix: Matrix) -> tuple[Capability, ...]:
    """Give every compute capability that a GPU of the matrix has, ascending."""
    return tuple(sorted({gpu.capability for gpu in matrix.gpus.values()}))


def driver_floor(matrix: Matrix, cuda: Cuda) -> Driver:
    """Give the oldest driver that runs this CUDA: the minor-version-compatibility floor of its major.

    Raises UsageError for a major that the matrix does not know.
    """
    major = matrix.cuda_majors.get(str(cuda.major))
    if major is None:
        known = ", ".join(f"{name}.x" for name in matrix.cuda_majors)
        raise UsageError(f"the matrix knows no driver floor for CUDA `{cuda}`", why=f"it knows {known}")
    return major.driver_min


def driver_runs(matrix: Matrix, cuda: Cuda, driver: Driver) -> bool:
    """Tell whether a host driver runs this CUDA by minor-version compatibility."""
    return driver >= driver_floor(matrix, cuda)


def driver_compiles(matrix: Matrix, cuda: Cuda, driver: Driver) -> bool:
    """Tell whether a host driver compiles PTX of this CUDA: only from the toolkit's own branch on.

    Under minor-version compatibility a driver runs machine code of a newer toolkit but refuses its PTX
    (cudaErrorUnsupportedPtxVersion, 222).
    """
    return driver.branch >= matrix.toolkits[str(cuda)].driver_branch


def driver_knows(gpu: Gpu, driver: Driver) -> bool:
    """Tell whether a host driver still, or already, knows a GPU; an unknown end of its range is open."""
    if gpu.driver_branch_first is not None and driver.branch < gpu.driver_branch_first:
        return False
    if gpu.driver_min is not None and driver < gpu.driver_min:
        return False
    return gpu.driver_branch_last is None or driver.branch <= gpu.driver_branch_last


def served_by(release: Release, build: Build, machine: Machine) -> tuple[str, ...]:
    """Give the indexes that serve a build's wheels for a machine, its own first.

    An index that has a CPU-only build of the same version for that machine does not: the two would be one
    file. Another may, under a local version such as 2.10.0+cu128.
    """
    beside = any(
        other.is_cpu_only
        and machine in other.wheels
        and (other.source, other.version) == (build.source, build.version)
        for other in release.builds.values()
        if other is not build
    )
    return build.also_on if beside else (build.source, *build.also_on)


def python_fits(wheels: Wheels, python: Python) -> bool:
    """Tell whether there is a wheel for this Python (the ordinary build of it, not the free-threaded one)."""
    return python.tag in wheels.python


def glibc_fits(wheels: Wheels, base: Base) -> bool:
    """Tell whether the base's glibc is at least the floor of the wheels, by their tag and as measured.

    The tag alone can lie: manylinux1 wheels of PyTorch up to 2.6 need glibc 2.16 or 2.17, not 2.5.
    """
    return max(wheels.glibc, wheels.glibc_measured or wheels.glibc) <= base.glibc


@lru_cache(maxsize=64)
def _pythons(tags: tuple[str, ...]) -> tuple[Python, ...]:
    return tuple(Python.parse(f"3.{tag[3:]}") for tag in tags if tag[3:].isdigit())


def pythons(wheels: Wheels) -> tuple[Python, ...]:
    """Give the Pythons that have an ordinary wheel, ascending; free-threaded builds (cp313t) are left out."""
    return _pythons(wheels.python)
