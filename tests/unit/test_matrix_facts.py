"""Facts of the packaged matrix, spot by spot, and what must hold of all of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from packaging.version import Version

from imagebuilder.matrix import load
from imagebuilder.matrix.facts import Build, Framework, Gpu, Machine, Matrix
from imagebuilder.matrix.fit import served_by
from imagebuilder.matrix.sources import cite
from imagebuilder.matrix.words import Capability

MATRIX = load()
PYTORCH = MATRIX.frameworks["pytorch"]


def build(release: str, variant: str) -> Build:
    """Give one build of PyTorch."""
    return PYTORCH.releases[release].builds[variant]


@pytest.mark.parametrize(
    ("release", "variant", "source", "cuda", "cudnn", "nccl"),
    [
        ("1.13.1", "cu117", "pypi", "11.7", "8.5.0.96", None),
        ("2.1.2", "cu121", "pypi", "12.1", "8.9.2.26", "2.18.1"),
        ("2.3.1", "cu121", "pypi", "12.1", "8.9.2.26", "2.20.5"),
        ("2.4.1", "cu121", "pypi", "12.1", "9.1.0.70", "2.20.5"),
        ("2.5.1", "cu121", "pytorch", "12.1", "9.1.0.70", None),
        ("2.5.1", "cu124", "pypi", "12.4", "9.1.0.70", "2.21.5"),
        ("2.8.0", "cu128", "pypi", "12.8", "9.10.2.21", "2.27.3"),
        ("2.11.0", "cu130", "pypi", "13.0", "9.19.0.56", "2.28.9"),
        ("2.15.0", "cu132", "pypi", "13.2", "9.26.0.51", "2.30.7"),
    ],
)
def test_builds(release: str, variant: str, source: str, cuda: str, cudnn: str, nccl: str | None) -> None:
    """What the wheels of a release were built with, as their metadata says."""
    one = build(release, variant)
    assert (one.source, str(one.cuda), str(one.cudnn)) == (source, cuda, cudnn)
    assert one.nccl == (Version(nccl) if nccl else None)


def test_the_main_build_in_full() -> None:
    """PyTorch 2.4.1 for CUDA 12.1: pins, tags, targets, companions, grades."""
    one = build("2.4.1", "cu121")
    wheels = one.wheels["x86_64"]
    assert one.pins["nvidia-cudnn-cu12"] == "9.1.0.70"
    assert one.pins["triton"] == "3.0.0"
    assert wheels.python == ("cp38", "cp39", "cp310", "cp311", "cp312")
    assert (str(wheels.glibc), str(wheels.glibc_measured)) == ("2.5", "2.17")
    assert [one.text for one in wheels.cubin] == [
        "sm_50",
        "sm_60",
        "sm_70",
        "sm_75",
        "sm_80",
        "sm_86",
        "sm_90",
    ]
    assert wheels.ptx == ()
    assert PYTORCH.releases["2.4.1"].companions["torchvision"] == (Version("0.19.1"),)
    assert one.grade == "A"
    assert cite(MATRIX, wheels.src["cubin"])[1] == "A"


def test_borrowed_facts_say_so() -> None:
    """Python tags and glibc that no one read from the PyTorch index are marked as inferred."""
    wheels = build("2.9.1", "cu126").wheels["aarch64"]
    assert wheels.src["python"] == wheels.src["glibc"] == "D: same release on PyPI"
    assert wheels.glibc == build("2.9.1", "cu128").wheels["x86_64"].glibc


@pytest.mark.parametrize(
    ("release", "has"), [("2.7.1", False), ("2.8.0", True), ("2.10.0", True), ("2.11.0", False)]
)
def test_volta_comes_and_goes(release: str, has: bool) -> None:
    """Support is not monotonic in the version: cu128 has Volta code from 2.8 to 2.10 alone."""
    assert ("sm_70" in [one.text for one in build(release, "cu128").wheels["x86_64"].cubin]) is has


def test_every_release_has_a_pypi_build_for_both_machines() -> None:
    """PyPI serves each release for x86-64 with CUDA, and for aarch64, before 2.11 without."""
    for text, release in PYTORCH.releases.items():
        machines: tuple[Machine, Machine] = ("x86_64", "aarch64")
        x86, arm = (
            [
                one.cuda is not None
                for one in release.builds.values()
                if machine in one.wheels and "pypi" in served_by(release, one, machine)
            ]
            for machine in machines
        )
        assert x86 == [True], text
        assert arm == [Version(text) >= Version("2.11")], text


def test_cuda_wheels_of_another_index() -> None:
    """PyPI's aarch64 wheel of 2.10 is CPU-only; the one with CUDA 12.8 is on the PyTorch index alone."""
    release = PYTORCH.releases["2.10.0"]
    assert served_by(release, release.builds["cu128"], "aarch64") == ("pytorch",)
    assert served_by(release, release.builds["cu128"], "x86_64") == ("pypi", "pytorch")


def test_numpy_ceiling_ends_with_2_3() -> None:
    """Releases before 2.3 were compiled against the NumPy 1 ABI, though their metadata does not say so."""
    for text, release in PYTORCH.releases.items():
        ceiling = release.ceilings.get("numpy")
        assert (ceiling is not None) is (Version(text) < Version("2.3")), text
        assert ceiling is None or (str(ceiling.spec), ceiling.first_without) == ("<2", Version("2.3.0"))


def test_there_is_a_numpy_for_every_python_of_the_bases() -> None:
    """Each base's Python has NumPy wheels, and all but the newest also below 2."""
    for base in MATRIX.bases.values():
        fitting = [text for text, row in MATRIX.packages["numpy"].items() if base.python.tag in row.python]
        assert fitting
        if base.python.tag != "cp313":
            assert min(map(Version, fitting)) < Version("2")


def test_driver_floors() -> None:
    """The floors of minor-version compatibility."""
    assert {name: str(row.driver_min) for name, row in MATRIX.cuda_majors.items()} == {
        "11": "450.80.02",
        "12": "525.60.13",
        "13": "580.65.06",
    }


def test_toolkits() -> None:
    """11.0 to 13.5, without the 12.7 that never was; 13.0 dropped Volta."""
    names = list(MATRIX.toolkits)
    assert (names[0], names[-1], len(names)) == ("11.0", "13.5", 24)
    assert "12.7" not in names
    assert Capability.parse("7.0") in MATRIX.toolkits["12.9"].capabilities
    assert Capability.parse("7.0") not in MATRIX.toolkits["13.0"].capabilities
    assert MATRIX.toolkits["12.3"].gcc_max == 12


def test_gpus() -> None:
    """All 46 of them; what their tensor cores do decides on AMP."""
    assert len(MATRIX.gpus) == 46
    assert MATRIX.gpus["T4"].tensor_cores == ("fp16", "int8")
    assert "bf16" in MATRIX.gpus["A100"].tensor_cores
    assert MATRIX.gpus["P100"].tensor_cores == ()
    assert MATRIX.gpus["V100"].driver_branch_last == 580


def test_code_tables() -> None:
    """Integrated GPUs run no code of their discrete kin; cuDNN 9.11 dropped Volta."""
    orin, rtx = Capability.parse("8.7"), Capability.parse("8.6")
    assert orin not in MATRIX.code_runs_on["sm_80"]
    assert rtx in MATRIX.code_runs_on["sm_80"]
    old, new = (MATRIX.cudnn[text].code["cu12"].sass for text in ("9.10.2.21", "9.11.0.98"))
    assert {one.text for one in old} - {one.text for one in new} == {"sm_50", "sm_60", "sm_61", "sm_70"}


def test_bases() -> None:
    """Four bases, Debian 12 the default, those of Debian can be bootstrapped."""
    assert {name: str(base.python) for name, base in MATRIX.bases.items()} == {
        "debian-12": "3.11", "debian-13": "3.13", "ubuntu-22.04": "3.10", "ubuntu-24.04": "3.12",
    }  # fmt: skip
    assert [name for name, base in MATRIX.bases.items() if base.default] == ["debian-12"]
    assert [name for name, base in MATRIX.bases.items() if base.bootstrap] == ["debian-12", "debian-13"]


def test_rows_are_frozen_and_keyword_only() -> None:
    """A row never changes; `replace` makes another one; unknown and missing facts are refused."""
    gpu = MATRIX.gpus["V100"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        gpu.arch = "Hopper"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del gpu.arch
    other = dataclasses.replace(gpu, memory="32 GB")
    assert (other != gpu, other.capability, gpu == dataclasses.replace(gpu)) == (True, gpu.capability, True)
    with pytest.raises(TypeError, match="lacks `package`"):
        Framework(releases={})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="knows no colour"):
        dataclasses.replace(gpu, colour="green")


def rows(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Give every row of a matrix with its place."""
    if dataclasses.is_dataclass(value) and hasattr(value, "__slots__"):
        yield where, value
        for field in dataclasses.fields(value):
            yield from rows(getattr(value, field.name), f"{where}.{field.name}")
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from rows(one, f"{where}.{name}")


def test_facts_that_decide_have_a_source() -> None:
    """Every fact of a toolkit, GPU, build and wheel that the resolver asks for says where it comes from."""
    asked = {
        "Toolkit": ("driver_branch", "driver_min", "capabilities"),
        "Gpu": ("capability", "cuda_first", "cuda_last", "driver_branch_first", "driver_branch_last"),
        "Build": ("source", "cuda", "cudnn", "nccl", "pins"),
        "Wheels": ("python", "glibc", "cubin", "ptx"),
        "Base": ("glibc", "python"),
        "CudaMajor": ("driver_min",),
    }  # fmt: skip
    for where, row in rows(MATRIX, ""):
        for fact in asked.get(type(row).__name__, ()):
            assert not getattr(row, fact) or fact in row.src, f"{where}.{fact}"


def test_no_source_is_idle() -> None:
    """Each source is the source of something."""
    text = repr(MATRIX)
    assert [name for name in MATRIX.sources if text.count(name) < 2] == []


def test_the_default_index_has_no_address() -> None:
    """It comes from configuration, never from facts; frameworks name their own indexes alone."""
    assert "pypi" in repr(MATRIX)
    assert not re.search(r"[/.]py(?:pi|thon-?hosted)\.\w", repr(MATRIX))


def test_types() -> None:
    """`Matrix` can be imported from the package, and `V100` is a Gpu."""
    assert isinstance(MATRIX, Matrix)
    assert isinstance(MATRIX.gpus["V100"], Gpu)
