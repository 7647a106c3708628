"""CUDA sets: images of one CUDA hold the same libraries, whatever their framework."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from imagebuilder.errors import UnmetError
from imagebuilder.matrix import Matrix, load
from imagebuilder.matrix.check_builds import check_framework, check_set
from imagebuilder.matrix.fit import runs_on
from imagebuilder.matrix.sets import builds_of, fit, takes
from imagebuilder.matrix.words import Capability, Cuda
from imagebuilder.request import parse_request
from imagebuilder.resolve import Stack, resolve

if TYPE_CHECKING:
    from imagebuilder.matrix.facts import Build


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Give the packaged facts."""
    return load()


def ask(matrix: Matrix, framework: str, **options: Any) -> Stack:
    """Resolve a request."""
    return resolve(parse_request(framework=framework, **options), matrix)


def reason(stack: Stack, fact: str) -> str:
    """Give why a value of a stack is what it is."""
    return next(one.because for one in stack.reasons if one.fact == fact)


def raw(matrix: Matrix, framework: str, release: str, variant: str) -> Build:
    """Give a build as the matrix has it."""
    return matrix.frameworks[framework].releases[release].builds[variant]


@pytest.mark.parametrize("framework", ["tensorflow==2.20.0", "jax==0.7.2", "jax==0.6.2", "jax==0.12.0.1"])
def test_frameworks_of_cuda_12_8_have_the_libraries_of_pytorch_2_8_0(matrix: Matrix, framework: str) -> None:
    """All CUDA wheels that both have are equal, so that their layers are."""
    torch = ask(matrix, "pytorch==2.8.0").packages
    stack = ask(matrix, framework, cuda="12.8")
    common = {name for name in stack.packages if name.startswith("nvidia-")} & set(torch)
    assert len(common) >= 10
    assert {name: stack.packages[name] for name in common} == {name: torch[name] for name in common}
    assert (str(stack.cudnn), str(stack.nccl)) == ("9.10.2.21", "2.27.3")
    assert "the libraries of pytorch 2.8.0" in reason(stack, "cuda")


def test_nothing_of_cuda_floats(matrix: Matrix) -> None:
    """Every wheel of CUDA in a stack is exact, and what others may bring is held by the rest of the set."""
    for framework in ("tensorflow", "jax"):
        stack = ask(matrix, framework)
        held = matrix.cuda_sets[str(stack.cuda)].pins
        named = {*stack.packages, *stack.constraints}
        assert set(held) <= named
        assert not any(
            name.startswith("nvidia-") and not text.startswith("==")
            for name, text in stack.constraints.items()
        )


@pytest.mark.parametrize(
    ("release", "cuda", "cudnn", "nccl"),
    [
        ("2.14.1", "11.8", "8.7.0.84", "2.16.5"),
        ("2.15.1", "12.2", "8.9.4.25", "2.16.5"),
        ("2.17.1", "12.3", "8.9.7.29", "2.19.3"),
        ("2.19.1", "12.5", "9.3.0.75", "2.23.4"),
    ],
)
def test_exact_pins_are_kept(matrix: Matrix, release: str, cuda: str, cudnn: str, nccl: str) -> None:
    """TensorFlow 2.14 to 2.19 pins its libraries: it keeps them, and has no other CUDA."""
    stack = ask(matrix, f"tensorflow=={release}")
    assert (str(stack.cuda), str(stack.cudnn), str(stack.nccl)) == (cuda, cudnn, nccl)
    with pytest.raises(UnmetError):
        ask(matrix, f"tensorflow=={release}", cuda="12.8")


def test_a_library_outside_of_the_range_moves_to_the_nearest_and_says_so(matrix: Matrix) -> None:
    """TensorFlow 2.21 wants NCCL 2.27.7, the set has 2.27.3; everything else stays that of the set."""
    stack = ask(matrix, "tensorflow==2.21.0", cuda="12.8")
    pins = matrix.cuda_sets["12.8"].pins
    assert str(stack.nccl) == stack.packages["nvidia-nccl-cu12"] == "2.27.7"
    assert "NCCL is 2.27.7, not 2.27.3 of the CUDA set 12.8" in " ".join(stack.notes)
    assert "nearest to 2.27.3" in reason(stack, "nccl")
    different = [name for name, pin in stack.packages.items() if name in pins and Version(pin) != pins[name]]
    assert different == ["nvidia-nccl-cu12"]


def test_why_a_set_does_not_fit_is_said(matrix: Matrix) -> None:
    """A wheel that the set lacks, or a CUDA without a set, is named with what the build asks for."""
    with pytest.raises(UnmetError) as caught:
        ask(matrix, "jax==0.7.2", cuda="12.6")
    assert (
        "the CUDA set 12.6, the libraries of pytorch 2.7.1, has no nvidia-nvshmem-cu12, and jax 0.7.2 takes"
        in str(caught.value.conflicts)
    )
    with pytest.raises(UnmetError) as caught:
        ask(matrix, "jax==0.7.2", cuda="12.9")
    assert "there is no CUDA set 12.9" in str(caught.value.conflicts)


def test_a_release_that_fits_no_set_says_why(matrix: Matrix) -> None:
    """Where facts have no set that a build takes, the library is named, not that nothing is known."""
    poor = replace(matrix, cuda_sets={"12.6": matrix.cuda_sets["12.6"]})
    with pytest.raises(UnmetError) as caught:
        ask(poor, "jax==0.7.2")
    assert "has no nvidia-nvshmem-cu12, and jax 0.7.2 takes `>=3.2.5`" in str(caught.value.conflicts)


def test_every_pin_of_every_set_build_is_in_its_range(matrix: Matrix) -> None:
    """Whatever set a build gets, each wheel is one that its own metadata takes."""
    seen = 0
    for framework in matrix.frameworks.values():
        for release in framework.releases.values():
            for variant, build in builds_of(matrix, release):
                wanted = release.builds[variant].pins
                if build.cuda_from is None:
                    assert build is release.builds[variant]
                    continue
                seen += 1
                assert build.cuda is not None and build.cuda >= build.cuda_from
                for name, pin in build.pins.items():
                    assert pin == wanted[name] or takes(wanted[name], Version(pin)), (variant, name)
    assert seen > 100


def test_a_newer_release_is_taken_before_an_older_one(matrix: Matrix) -> None:
    """The set 12.6 has cuDNN 9.5.1.17, below 9.8: the first release above it that the range takes."""
    fitted = fit(matrix, raw(matrix, "jax", "0.6.0", "cuda12"), "12.6")
    assert str(fitted.build.cudnn) == "9.8.0.87"
    assert fitted.moved == {"nvidia-cudnn-cu12": Version("9.5.1.17")}
    older = fit(matrix, raw(matrix, "jax", "0.4.26", "cuda12"), "12.8")
    assert str(older.build.cudnn) == "8.9.7.29"


def test_a_compiler_of_the_framework_reaches_as_far_as_its_cuda(matrix: Matrix) -> None:
    """JAX makes code at run time: for what its CUDA set can target, and not for integrated GPUs."""
    build = fit(matrix, raw(matrix, "jax", "0.7.2", "cuda12"), "12.8").build
    found = {
        one: runs_on(matrix, build, build.wheels["x86_64"], Capability.parse(one))
        for one in ("5.0", "5.2", "7.0", "8.7", "9.0", "12.0")
    }
    assert found == {
        "5.0": None,
        "5.2": "cubin",
        "7.0": "cubin",
        "8.7": None,
        "9.0": "cubin",
        "12.0": "cubin",
    }


@pytest.mark.parametrize(
    "framework", ["jax==0.4.35", "jax==0.7.2", "jax==0.8.3", "jax==0.12.0.1", "jax==0.5.2"]
)
def test_the_packages_of_jax_agree(matrix: Matrix, framework: str) -> None:
    """jaxlib, the plugin and its runtime are one version, whichever the release of jax asks for."""
    packages = ask(matrix, framework).packages
    found = {version for name, version in packages.items() if name.startswith(("jaxlib", "jax-cuda"))}
    assert len([name for name in packages if name.startswith("jax")]) == 4
    assert len(found) == 1


def test_a_set_is_for_the_machines_that_have_its_wheels(matrix: Matrix) -> None:
    """CUDA 12.1 has no arm64 wheels, and no cuDNN 8 has: jax 0.4.27 cannot be had there."""
    assert {one for one, row in matrix.cuda_sets.items() if "aarch64" in row.machines} == {
        "12.5", "12.6", "12.8", "13.0",
    }  # fmt: skip
    assert str(ask(matrix, "jax==0.4.35", arch="arm64").cuda) == "12.8"
    for request in ({"framework": "jax==0.4.27"}, {"framework": "jax==0.4.35", "cuda": "12.1"}):
        with pytest.raises(UnmetError):
            ask(matrix, arch="arm64", **request)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"framework": "torch"}, "names an unknown framework `torch`"),
        ({"release": Version("2.6.0")}, "pytorch 2.6.0 has no build for CUDA 12.8"),
        ({"pins": {"nvidia-nccl-cu12": Version("2.27.5")}}, "is not what the release pins, `2.27.3`"),
        ({"pins": {"nvidia-cudnn-cu12": Version("9.99")}}, "names an unknown cudnn release `9.99`"),
        ({"pins": {"nvidia;id": Version("1")}}, "is not a normalised package name"),
    ],
)
def test_a_set_that_is_not_its_releases_is_found(
    matrix: Matrix, changes: dict[str, Any], message: str
) -> None:
    """A set says nothing else than the release that it names."""
    found = [one.message for one in check_set(matrix, "12.8", replace(matrix.cuda_sets["12.8"], **changes))]
    assert any(message in one for one in found), found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cudnn": Version("9.1.0.70")}, "takes a CUDA set"),
        ({"cuda_from": Cuda.parse("13.0")}, "is not the name of a build for any CUDA 13.x, `cuda13`"),
        ({"cuda_from": Cuda.parse("12.9")}, "no row of `cuda_sets` is for CUDA 12.9 or newer"),
        ({"pins": {"nvidia-nccl-cu11": ">=2"}}, "is not a package of CUDA 12"),
        ({"extras": ("with cuda",)}, "is not a normalised package name"),
    ],
)
def test_a_build_that_cannot_take_a_set_is_found(
    matrix: Matrix, changes: dict[str, Any], message: str
) -> None:
    """A build with ranges names no library of its own, and there is a set for it."""
    framework = matrix.frameworks["jax"]
    release = framework.releases["0.7.2"]
    broken = replace(release, builds={"cuda12": replace(release.builds["cuda12"], **changes)})
    one = replace(framework, releases={"0.7.2": broken})
    found = [one.message for one in check_framework(matrix, "jax", one)]
    assert any(message in one for one in found), found


def test_the_table_of_the_docs_is_that_of_the_matrix(matrix: Matrix) -> None:
    """The page docs/frameworks.md names each set with its release, cuDNN and NCCL."""
    names = {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}
    lines = []
    for cuda, row in matrix.cuda_sets.items():
        found = {name.split("-")[1]: pin for name, pin in row.pins.items()}
        of = f"{names[row.framework]} {row.release}"
        lines.append(f"| {cuda} | {of} | {found['cudnn']} | {found['nccl']} |")
    text = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("| 1")] == lines
