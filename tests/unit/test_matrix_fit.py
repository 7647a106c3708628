"""Whether builds fit GPUs, drivers, Pythons and bases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagebuilder.errors import UsageError
from imagebuilder.matrix import load
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
)
from imagebuilder.matrix.words import Capability, Cuda, Driver, Python

if TYPE_CHECKING:
    from imagebuilder.matrix.facts import Build, Machine, Wheels

MATRIX = load()


def wheels(release: str, variant: str, machine: Machine = "x86_64") -> tuple[Build, Wheels]:
    """Give a build of PyTorch and its wheels for a machine."""
    build = MATRIX.frameworks["pytorch"].releases[release].builds[variant]
    return build, build.wheels[machine]


@pytest.mark.parametrize(
    ("release", "variant", "capability", "how"),
    [
        ("2.4.1", "cu121", "7.0", "cubin"),
        ("2.4.1", "cu121", "8.9", "cubin"),  # sm_86 code
        ("2.4.1", "cu121", "8.7", None),  # Orin needs its own code
        ("2.5.1", "cu124", "12.0", None),  # no sm_120, and PyPI wheels have no PTX
        ("2.7.0", "cu128", "12.0", "cubin"),
        ("2.8.0", "cu129", "12.1", "cubin"),
        ("2.8.0", "cu128", "7.0", "cubin"),
        ("2.11.0", "cu128", "7.0", None),
        ("2.11.0", "cu126", "7.0", "cubin"),
        ("2.8.0", "cu128", "6.1", None),
        ("2.8.0", "cu126", "6.1", "cubin"),
        ("1.13.1", "cu117", "9.0", None),
        ("2.0.1", "cu118", "3.7", "cubin"),
    ],
)
def test_code(release: str, variant: str, capability: str, how: str | None) -> None:
    """Machine code runs within its major from its minor on, with the exceptions of the table."""
    assert runs_on(MATRIX, *wheels(release, variant), Capability.parse(capability)) == how


def test_cudnn_must_run_too() -> None:
    """A build whose cuDNN has no code for a GPU does not run there, whatever its own code."""
    build, own = wheels("2.9.1", "cu128")
    from dataclasses import replace

    volta = Capability.parse("7.0")
    assert runs_on(MATRIX, build, own, volta) == "cubin"
    newer = replace(build, cudnn=build.cudnn and type(build.cudnn)("9.11.0.98"))
    assert runs_on(MATRIX, newer, own, volta) is None


def test_cudnn_of_x86_says_nothing_of_aarch64() -> None:
    """Thor (11.0) runs aarch64 wheels with sm_110, though the cuDNN wheels that were read lack it."""
    build, own = wheels("2.14.1", "cu130", "aarch64")
    assert runs_on(MATRIX, build, own, Capability.parse("11.0")) == "cubin"


def test_unknown_targets_run_nowhere() -> None:
    """Where the matrix does not know the code of a wheel it promises no GPU."""
    build, own = wheels("2.7.1", "cu128", "aarch64")
    assert own.cubin == ()
    assert capabilities(MATRIX, build, own) == ()


def test_capabilities_are_those_of_gpus() -> None:
    """The capabilities of a build are those of known GPUs that its machine code runs on, ascending."""
    assert [str(one) for one in capabilities(MATRIX, *wheels("2.4.1", "cu121"))] == [
        "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cuda", "driver", "runs", "compiles"),
    [
        ("12.1", "525.60.13", True, False),
        ("12.1", "525.60.12", False, False),
        ("12.9", "525.60.13", True, False),
        ("12.1", "530.30.02", True, True),
        ("11.8", "450.80.02", True, False),
        ("11.8", "470.57.02", True, False),
        ("13.0", "580", False, True),
        ("13.0", "580.65.06", True, True),
    ],
)
def test_drivers(cuda: str, driver: str, runs: bool, compiles: bool) -> None:
    """A driver runs machine code from its major's floor on, and compiles PTX from the toolkit's branch on."""
    assert driver_runs(MATRIX, Cuda.parse(cuda), Driver.parse(driver)) is runs
    assert driver_compiles(MATRIX, Cuda.parse(cuda), Driver.parse(driver)) is compiles


def test_an_unknown_major_has_no_floor() -> None:
    """A CUDA major outside of the matrix is an error that names those inside."""
    with pytest.raises(UsageError, match=r"no driver floor for CUDA `14.0`") as caught:
        driver_floor(MATRIX, Cuda.parse("14.0"))
    assert "13.x" in (caught.value.why or "")


def test_drivers_know_gpus_for_a_time() -> None:
    """A GPU has a first and a last driver branch; what is not known is open."""
    gpus = MATRIX.gpus
    assert driver_knows(gpus["V100"], Driver.parse("580.65.06"))
    assert not driver_knows(gpus["V100"], Driver.parse("590.44.01"))
    assert not driver_knows(gpus["B200"], Driver.parse("565.57.01"))
    assert not driver_knows(gpus["B200"], Driver.parse("570.124.06"))
    assert driver_knows(gpus["B200"], Driver.parse("570.133.20"))
    assert driver_knows(gpus["Jetson Orin (AGX, NX, Nano)"], Driver.parse("540.4.0"))


def test_pythons_are_ordinary_builds() -> None:
    """Free-threaded wheels do not count as wheels for their Python."""
    _, own = wheels("2.12.0", "cu130")
    assert "cp313t" in own.python
    assert list(map(str, pythons(own))) == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert python_fits(own, Python.parse("3.13"))
    assert not python_fits(own, Python.parse("3.9"))


def test_glibc_floor_is_the_measured_one_where_the_tag_lies() -> None:
    """The floor is the higher of the tag's and the measured one."""
    from dataclasses import replace

    from imagebuilder.matrix.words import Glibc

    _, own = wheels("2.4.1", "cu121")
    base = MATRIX.bases["debian-12"]
    assert glibc_fits(own, base)
    assert not glibc_fits(own, replace(base, glibc=Glibc.parse("2.12")))
    assert glibc_fits(own, replace(base, glibc=Glibc.parse("2.17")))
