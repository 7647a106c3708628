"""Known incompatibilities of PyTorch stacks that are caught before a build, by number of the list."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.errors import UnmetError
from imagebuilder.matrix import Matrix, load
from imagebuilder.request import parse_request
from imagebuilder.resolve import Stack, resolve


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Give the packaged facts."""
    return load()


def can(matrix: Matrix, framework: str, **options: Any) -> bool:
    """Tell whether a request can be met."""
    try:
        resolve(parse_request(framework=framework, **options), matrix)
    except UnmetError:
        return False
    return True


def ask(matrix: Matrix, framework: str, **options: Any) -> Stack:
    """Resolve a request."""
    return resolve(parse_request(framework=framework, **options), matrix)


@pytest.mark.parametrize("cuda", ["11.8", "12.1", "12.4", "12.6"])
def test_1_blackwell_needs_cuda_12_8(matrix: Matrix, cuda: str) -> None:
    """No build below CUDA 12.8 has code for sm_100 or sm_120."""
    assert not can(matrix, "pytorch", cuda=cuda, gpus=["B200"])
    assert not can(matrix, "pytorch", cuda=cuda, gpus=["RTX 5090"])
    assert can(matrix, "pytorch", cuda="12.8", gpus=["B200", "RTX 5090"])


def test_3_volta_ends_with_cuda_12_and_cudnn_9_10(matrix: Matrix) -> None:
    """V100 has cu126 up to 2.14 and cu128 in 2.8 to 2.10, never CUDA 13."""
    for version in ("2.8.0", "2.9.1", "2.10.0"):
        assert can(matrix, f"pytorch=={version}", cuda="12.8", gpus=["V100"])
    assert can(matrix, "pytorch==2.14.1", cuda="12.6", gpus=["V100"])
    assert not can(matrix, "pytorch", cuda="13.0", gpus=["V100"])


def test_4_support_is_not_monotonic(matrix: Matrix) -> None:
    """cu128 lacks sm_70 in 2.7, has it in 2.8 to 2.10, lacks it again from 2.11 on."""
    versions = ("2.7.1", "2.8.0", "2.10.0", "2.11.0")
    found = [can(matrix, f"pytorch=={version}", cuda="12.8", gpus=["V100"]) for version in versions]
    assert found == [False, True, True, False]


@pytest.mark.parametrize("gpu", ["P100", "P40", "GTX 1080", "M40"])
def test_5_maxwell_and_pascal_are_out_of_cuda_12_8(matrix: Matrix, gpu: str) -> None:
    """They live in cu118 and cu126 alone among the current variants."""
    assert not can(matrix, "pytorch", cuda="12.8", gpus=[gpu])
    assert can(matrix, "pytorch", cuda="12.6", gpus=[gpu])


def test_6_pypi_moved_to_cuda_13(matrix: Matrix) -> None:
    """A plain request for an R570 driver gives the last CUDA 12 build of PyPI, not its newest release."""
    assert ask(matrix, "pytorch").cuda.major == 13
    stack = ask(matrix, "pytorch", driver="570.133.20")
    assert (str(stack.version), stack.cuda.major) == ("2.10.0", 12)


def test_7_pypi_wheels_carry_no_ptx(matrix: Matrix) -> None:
    """A GPU newer than the newest machine code is refused, not served slowly."""
    assert not can(matrix, "pytorch==2.6.0", gpus=["B200"])
    assert not any(
        build.wheels["x86_64"].ptx
        for release in matrix.frameworks["pytorch"].releases.values()
        for build in release.builds.values()
        if build.source == "pypi" and "x86_64" in build.wheels
    )


def test_8_aarch64_wheels_have_fewer_targets(matrix: Matrix) -> None:
    """T4G and Orin have no build, and before 2.11 no GPU build comes from PyPI for arm64."""
    assert not can(matrix, "pytorch", arch="arm64", gpus=["T4G"])
    assert not can(matrix, "pytorch", arch="arm64", gpus=["Jetson Orin"])
    assert not can(matrix, "pytorch<2.11", arch="arm64", sources=["pypi"])


def test_9_integrated_gpus_need_their_own_code(matrix: Matrix) -> None:
    """sm_80 and sm_86 code does not run on capability 8.7, although the major is the same."""
    assert not can(matrix, "pytorch==2.4.1", gpus=["sm_87"])
    assert can(matrix, "pytorch==2.4.1", gpus=["sm_86", "sm_89"])


def test_14_minor_version_compatibility_floors(matrix: Matrix) -> None:
    """The floor of a major holds for all its toolkits; the driver packaged with one is not demanded."""
    assert can(matrix, "pytorch", cuda="12.9", driver="525.60.13")
    assert can(matrix, "pytorch", cuda="11.8", driver="450.80.02")
    assert not can(matrix, "pytorch", cuda="11.8", driver="450.51.06")
    assert not can(matrix, "pytorch", cuda="13.0", driver="575.57.08")


def test_15_ptx_of_a_newer_toolkit_is_warned_of(matrix: Matrix) -> None:
    """A driver older than the toolkit's branch runs machine code only: said in a note (error 222)."""
    assert any("222" in note for note in ask(matrix, "pytorch", cuda="12.8", driver="535.104.05").notes)
    assert not any("222" in note for note in ask(matrix, "pytorch", cuda="12.8", driver="570.133.20").notes)


@pytest.mark.parametrize(("gpu", "driver"), [("K80", "525.60.13"), ("V100", "590.44"), ("P100", "595.10")])
def test_18_19_drivers_age(matrix: Matrix, gpu: str, driver: str) -> None:
    """A driver newer than the last branch for a GPU serves no image at all on it."""
    with pytest.raises(UnmetError) as caught:
        ask(matrix, "pytorch", gpus=[gpu], driver=driver)
    assert {conflict["constraint"] for conflict in caught.value.conflicts} == {
        f"--gpu {gpu}",
        f"--driver {driver}",
    }


def test_23_cudnn_major_follows_the_release(matrix: Matrix) -> None:
    """2.3 is cuDNN 8 and 2.4 is cuDNN 9, and packages that load cuDNN are held to it."""
    old, new = ask(matrix, "pytorch==2.3.1"), ask(matrix, "pytorch==2.4.1")
    assert (str(old.cudnn), str(new.cudnn)) == ("8.9.2.26", "9.1.0.70")
    assert Version("1.18.1") in SpecifierSet(old.constraints["onnxruntime-gpu"])
    assert Version("1.18.1") not in SpecifierSet(new.constraints["onnxruntime-gpu"])
    assert not can(matrix, "pytorch==2.4.1", cudnn="8")


def test_27_toolkit_extras_are_kept_for_the_lock(matrix: Matrix) -> None:
    """From 2.11 on CUDA comes as `cuda-toolkit` with extras: a constraint, never a bare pin."""
    stack = ask(matrix, "pytorch==2.14.1")
    assert stack.constraints["cuda-toolkit"].startswith("[cublas,")
    assert stack.constraints["cuda-toolkit"].endswith("]==13.0.3")
    assert "cuda-toolkit" not in stack.packages


def test_32_versions_are_those_of_the_wheel(matrix: Matrix) -> None:
    """2.11's cuDNN is what its metadata pins, not what the release notes print."""
    assert str(ask(matrix, "pytorch==2.11.0").cudnn) == "9.19.0.56"


def test_33_numpy_1_abi(matrix: Matrix) -> None:
    """Every release before 2.3 is held below NumPy 2, none after it."""
    for text, release in matrix.frameworks["pytorch"].releases.items():
        assert ("numpy" in release.ceilings) == (Version(text) < Version("2.3"))


def test_36_python_floors_and_ceilings(matrix: Matrix) -> None:
    """Pythons come from wheel tags, and triton from its own marker."""
    assert not can(matrix, "pytorch==2.4.1", python="3.13")
    assert can(matrix, "pytorch==2.5.1", python="3.13")
    assert not can(matrix, "pytorch==2.15.0", python="3.10")
    assert "triton" not in ask(matrix, "pytorch==2.5.1", python="3.13").packages
    assert ask(matrix, "pytorch==2.5.1", python="3.12").packages["triton"] == "3.1.0"


def test_38_setuptools_bounds_are_constraints(matrix: Matrix) -> None:
    """What a release says of setuptools binds the user's requirements too."""
    assert ask(matrix, "pytorch==2.11.0").constraints["setuptools"] == "<82"
    assert ask(matrix, "pytorch==2.14.1").constraints["setuptools"] == ">=77.0.3"


def test_39_companions_do_not_share_the_version(matrix: Matrix) -> None:
    """Torchaudio stays at 2.11, torchvision 0.29 serves 2.14.1 and 2.15: both come from the facts."""
    stack = ask(matrix, "pytorch==2.14.1")
    assert stack.constraints["torchaudio"] == "==2.11.1"
    assert Version("0.29.2") in SpecifierSet(stack.constraints["torchvision"])


def test_41_no_bf16_below_ampere(matrix: Matrix) -> None:
    """A V100 or T4 is told that its mixed precision is FP16 with a scaler; an A100 is told nothing."""
    for gpu in ("V100", "T4"):
        assert any("no BF16" in note for note in ask(matrix, "pytorch", gpus=[gpu]).notes)
    assert not any("BF16" in note for note in ask(matrix, "pytorch", gpus=["A100"]).notes)
