"""Two frameworks in one image: they share its CUDA libraries, or are refused with the one that clashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from imagebuilder.errors import UnmetError
from imagebuilder.lock.clash import applying, known_of, refuse_known_clashes
from imagebuilder.lock.requirements import read_requirements, requirements_of
from imagebuilder.matrix import Matrix, load
from imagebuilder.request import parse_request
from imagebuilder.resolve import Stack, resolve

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Give the packaged facts."""
    return load()


def together(matrix: Matrix, framework: str, *lines: str, **options: Any) -> Stack:
    """Resolve a framework with lines of requirements."""
    return resolve(parse_request(framework=framework, **options), matrix, [*map(Requirement, lines)])


def refusal(matrix: Matrix, framework: str, *lines: str, **options: Any) -> UnmetError:
    """Give the refusal of a framework with lines of requirements."""
    with pytest.raises(UnmetError) as caught:
        together(matrix, framework, *lines, **options)
    return caught.value


def test_ranges_take_the_libraries_of_the_framework_that_pins(matrix: Matrix) -> None:
    """TensorFlow 2.20.0 beside torch 2.9.1: NCCL 2.27.5 and every other pin of torch."""
    stack = together(matrix, "tensorflow==2.20.0", "torch==2.9.1")
    assert (str(stack.cuda), str(stack.cudnn), str(stack.nccl)) == ("12.8", "9.10.2.21", "2.27.5")
    torch = resolve(parse_request(framework="pytorch==2.9.1"), matrix).packages
    exact = {name: pin for name, pin in stack.packages.items() if name in torch and "nvidia" in name}
    assert exact == {name: torch[name] for name in exact}
    reason = next(one for one in stack.reasons if one.fact == "cuda")
    assert "the libraries of pytorch 2.9.1" in reason.because


def test_the_framework_that_pins_takes_the_other_as_a_requirement(matrix: Matrix) -> None:
    """Its pins, of torch 2.9.1, stay; what TensorFlow brings beside them is held by the CUDA set."""
    alone = resolve(parse_request(framework="pytorch==2.9.1"), matrix)
    stack = together(matrix, "pytorch==2.9.1", "tensorflow[and-cuda]==2.20.0", "einops")
    assert stack.packages == alone.packages
    assert "nvidia-cuda-nvcc-cu12" not in alone.constraints
    assert stack.constraints["nvidia-cuda-nvcc-cu12"] == "==12.8.93"


def test_13_tensorflow_2_16_1_and_torch_2_3_1_clash(matrix: Matrix) -> None:
    """Both pin CUDA: the library, both versions, the pair that can be, and two images."""
    error = refusal(matrix, "tensorflow==2.16.1", "torch==2.3.1")
    fact = str(error.conflicts)
    assert "tensorflow 2.16.1 asks for 12.3.107, torch 2.3.1 for 12.1.105" in fact
    assert "nvidia-cuda-nvrtc-cu12" in fact
    assert "and tensorflow==2.20.0" in fact
    assert [one["command"] for one in error.alternatives] == [
        "imgbuild resolve --framework tensorflow==2.16.1"
    ]


@pytest.mark.parametrize(
    ("tensorflow", "torch"),
    [("2.17.0", "2.3.1"), ("2.18.0", "2.5.1"), ("2.19.0", "2.6.0"), ("2.21.0", "2.10.0")],
)
def test_13_pairs_that_the_index_cannot_solve_are_refused(
    matrix: Matrix, tensorflow: str, torch: str
) -> None:
    """Each pair was tried on the live index: pins of CUDA, or NCCL outside of the range."""
    assert refusal(matrix, f"tensorflow=={tensorflow}", f"torch=={torch}").conflicts
    assert refusal(matrix, f"pytorch=={torch}", f"tensorflow[and-cuda]=={tensorflow}").conflicts


@pytest.mark.parametrize("torch", ["2.8.0", "2.9.1"])
def test_13_pairs_that_the_index_solves_are_taken(matrix: Matrix, torch: str) -> None:
    """2.20.0 with 2.8.0 and with 2.9.1, whichever of them the image is named by."""
    for stack in (
        together(matrix, "tensorflow==2.20.0", f"torch=={torch}"),
        together(matrix, f"pytorch=={torch}", "tensorflow[and-cuda]==2.20.0"),
    ):
        assert (str(stack.cuda), str(stack.cudnn)) == ("12.8", "9.10.2.21")


def test_a_library_that_another_framework_pins_does_not_move(matrix: Matrix) -> None:
    """Alone TensorFlow 2.21.0 gets a newer NCCL; beside torch 2.10.0 there is just one NCCL."""
    error = refusal(matrix, "tensorflow==2.21.0", "torch==2.10.0")
    words = "nvidia-nccl-cu12: tensorflow 2.21.0 asks for <3.0,>=2.27.7, torch 2.10.0 for 2.27.5"
    assert words in str(error.conflicts)
    assert str(together(matrix, "tensorflow", "torch==2.10.0").version) == "2.20.0"


def test_libraries_that_no_source_names_agree_with_nothing(matrix: Matrix) -> None:
    """A build of another index whose pins are unknown is not guessed to fit."""
    assert refusal(matrix, "pytorch==2.4.1", "tensorflow[and-cuda]==2.20.0", cuda="12.4")


def test_a_framework_for_the_cpu_brings_no_libraries(matrix: Matrix) -> None:
    """Without its extra jax has no CUDA: it fits beside every PyTorch, and the lock solves the rest."""
    alone = resolve(parse_request(framework="pytorch==2.3.1"), matrix)
    assert together(matrix, "pytorch==2.3.1", "jax==0.7.2", "tensorflow==2.20.0") == alone
    assert refusal(matrix, "pytorch==2.3.1", "jax[cuda12]==0.7.2")


def test_a_release_that_nobody_knows_agrees_with_nothing(matrix: Matrix) -> None:
    """What it pins is not known, so it is refused with a pair that is."""
    error = refusal(matrix, "tensorflow==2.20.0", "torch==99")
    assert "no build of torch on the default index is known" in str(error.conflicts)
    assert "together there can be torch==2.10.0 and tensorflow==2.20.0" in str(error.conflicts)


def test_other_requirements_and_markers_do_not_count(matrix: Matrix) -> None:
    """A stack is the same with packages that are no framework, and with lines that have a marker."""
    alone = resolve(parse_request(framework="tensorflow==2.16.1"), matrix)
    lines = ("einops", "torchmetrics>=1", 'torch==2.3.1; python_version < "3.8"')
    assert together(matrix, "tensorflow==2.16.1", *lines) == alone


def test_17_a_plugin_of_another_version_is_refused(matrix: Matrix, tmp_path: Path) -> None:
    """jax-ml/jax#24901: the index solves it, and it crashes; the stack pins the plugin to its jax."""
    path = tmp_path / "requirements.txt"
    path.write_text("jaxlib==0.4.30\njax-cuda12-plugin==0.4.35\n")
    lines = read_requirements([path])
    stack = together(matrix, "jax==0.4.30", *map(str, requirements_of(lines)))
    known = known_of(stack, matrix)
    with pytest.raises(UnmetError, match=r"does not fit `jax-cuda12-plugin==0\.4\.30`"):
        refuse_known_clashes(known, applying(lines, known, "x86_64"))


def test_the_lock_knows_why_a_library_of_the_set_is_held(matrix: Matrix, tmp_path: Path) -> None:
    """A line that moves a library of the set is refused with the set as the reason."""
    path = tmp_path / "requirements.txt"
    for line, words in (
        ("nvidia-cudnn-cu12==9.28.0.42", "from the CUDA set 12.8"),
        ("nvidia-nvtx-cu12==12.9.79", "the CUDA set 12.8 holds it: the libraries of pytorch 2.8.0"),
    ):
        path.write_text(line + "\n")
        stack = together(matrix, "tensorflow==2.20.0")
        known = known_of(stack, matrix)
        with pytest.raises(UnmetError) as caught:
            refuse_known_clashes(known, applying(read_requirements([path]), known, "x86_64"))
        assert words in str(caught.value.conflicts)
