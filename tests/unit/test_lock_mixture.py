"""Wheels that must not lie side by side, and what is said of those that may."""

from pathlib import Path

import pytest
from locks import make_wheel

from imagebuilder.errors import UnmetError
from imagebuilder.lock import Wheel
from imagebuilder.lock.clash import Known, known_of
from imagebuilder.lock.mixture import check_hashes, check_pins, refuse_mixtures, remarks
from imagebuilder.lock.requirements import UserRequirement, read_requirements
from imagebuilder.matrix import load
from imagebuilder.request import parse_request
from imagebuilder.resolve import resolve


@pytest.fixture(scope="module")
def known() -> Known:
    """PyTorch 2.4.1 for CUDA 12.1 with the packaged facts."""
    matrix = load()
    return known_of(resolve(parse_request(framework="pytorch==2.4.1"), matrix), matrix)


def wheels(known: Known, *more: str, **changed: str) -> tuple[Wheel, ...]:
    """Give the wheels of the stack with some in another version (`_` for `-`), and further ones."""
    pins = {**known.stack.packages, **{name.replace("_", "-"): text for name, text in changed.items()}}
    added = dict(one.split("==") for one in more)
    return tuple(make_wheel(name, version) for name, version in sorted({**pins, **added}.items()))


def asked(tmp_path: Path, text: str) -> tuple[UserRequirement, ...]:
    """Give the requirements of a file of this text."""
    (tmp_path / "req.txt").write_text(text)
    return read_requirements([tmp_path / "req.txt"])


@pytest.mark.parametrize(
    ("line", "brought"),
    [
        ("nvidia-nccl-cu11", "nvidia-nccl-cu11==2.21.5"),
        ("nvidia-nccl-cu13", "nvidia-nccl-cu13==2.28.0"),
        ("nvidia-cublas-cu11", "nvidia-cublas-cu11==11.11.3.6"),
        ("nvidia-npp-cu11", "nvidia-npp-cu11==11.8"),
        ("nvidia-cublas", "nvidia-cublas==13.0"),
        ("other", "nvidia-cudnn-cu13==9.10"),
    ],
)
def test_a_second_cuda_set_is_refused(known: Known, tmp_path: Path, line: str, brought: str) -> None:
    """Libraries of another CUDA major, or a second provider of one: the line and both wheels are named."""
    with pytest.raises(UnmetError) as caught:
        refuse_mixtures(known, wheels(known, brought), asked(tmp_path, line))
    name = brought.split("==")[0]
    assert f"`{name}`" in caught.value.what
    assert ("req.txt:1" in caught.value.what) == (line == name)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("cpu", "gpu"),
    [
        ("onnxruntime", "onnxruntime-gpu"),
        ("faiss-cpu", "faiss-gpu"),
        ("paddlepaddle", "paddlepaddle-gpu"),
    ],
)
def test_a_cpu_build_beside_the_gpu_build_is_refused(
    known: Known, tmp_path: Path, cpu: str, gpu: str
) -> None:
    """They own the same files: whichever is installed last wins, silently."""
    with pytest.raises(UnmetError, match=f"`{cpu}` beside `{gpu}==1.20`"):
        refuse_mixtures(known, wheels(known, f"{cpu}==1.20", f"{gpu}==1.20"), asked(tmp_path, gpu))


@pytest.mark.parametrize(
    "more", ["nvidia-ml-py==12.535", "nvidia-npp-cu12==12.0", "onnxruntime-gpu==1.20", "cupy-cuda12x==13.0"]
)
def test_what_may_lie_beside_the_stack(known: Known, tmp_path: Path, more: str) -> None:
    """More libraries of the stack's own CUDA major, and what is no CUDA library, are fine."""
    refuse_mixtures(known, wheels(known, more), asked(tmp_path, more.split("==")[0]))


def test_the_stack_alone_is_not_judged(known: Known) -> None:
    """A framework may bring what it likes: nobody but upstream chose it."""
    refuse_mixtures(known, wheels(known, "nvidia-cublas-cu11==1.0"), ())


@pytest.mark.parametrize("name", ["torch", "nvidia_nccl_cu12"])
def test_every_pin_is_there_in_its_version(known: Known, name: str) -> None:
    """`==2.4.1` admits 2.4.1+cpu, which a mirror of several indexes may serve: that is noticed."""
    check_pins(known, wheels(known), "https://example.org")
    pin = known.stack.packages[name.replace("_", "-")]
    with pytest.raises(UnmetError) as caught:
        check_pins(known, wheels(known, **{name: f"{pin}+cpu"}), "https://example.org")
    assert f"it serves {pin}+cpu" in str(caught.value.why)
    without = tuple(wheel for wheel in wheels(known) if wheel.name != name.replace("_", "-"))
    with pytest.raises(UnmetError):
        check_pins(known, without, "https://example.org")


def test_a_package_beside_the_framework_may_differ(known: Known) -> None:
    """NumPy is the user's to choose where the release allows it, and that is said."""
    chosen = wheels(known, numpy="1.26.4")
    check_pins(known, chosen, "https://example.org")
    assert [note for note in remarks(known, chosen) if "numpy is 1.26.4 instead of" in note]
    assert not list(remarks(known, wheels(known)))


def test_hashes_of_the_user_are_held_against_the_index(known: Known, tmp_path: Path) -> None:
    """One of the given hashes must be the chosen wheel's."""
    chosen = (make_wheel("timm", "1.0"),)
    good = f"--hash=sha256:{chosen[0].sha256}"
    check_hashes(asked(tmp_path, f"timm {good} --hash=sha256:{'0' * 64}\n"), chosen)
    with pytest.raises(UnmetError) as caught:
        check_hashes(asked(tmp_path, f"timm --hash=sha256:{'0' * 64}\n"), chosen)
    assert chosen[0].sha256 in str(caught.value.why)


def test_opencv_needs_a_desktop(known: Known) -> None:
    """The build that needs libGL gets a note that names the one which does not."""
    notes = list(remarks(known, wheels(known, "opencv-python==4.11", "opencv-python-headless==4.11")))
    assert len(notes) == 1
    assert "opencv-python-headless" in notes[0]
