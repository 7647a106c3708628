"""Requests and hosts from public threads: what is chosen, refused and said, by the numbers of the cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from imagebuilder.checks import shm
from imagebuilder.cli.pipeline import library_paths
from imagebuilder.engine.faults import next_step
from imagebuilder.errors import UnmetError
from imagebuilder.lint import LintFacts, Problem, lint
from imagebuilder.lock.clash import applying, known_of, refuse_known_clashes
from imagebuilder.lock.requirements import read_requirements
from imagebuilder.matrix import Matrix, load
from imagebuilder.matrix.words import Cuda
from imagebuilder.request import parse_request
from imagebuilder.resolve import Stack, resolve

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "sha256:" + "a" * 64


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Give the packaged facts."""
    return load()


def stack_of(matrix: Matrix, framework: str, **options: Any) -> Stack:
    """Resolve a request."""
    return resolve(parse_request(framework=framework, **options), matrix)


def refusal_of(matrix: Matrix, framework: str, **options: Any) -> UnmetError:
    """Give the refusal of a request."""
    with pytest.raises(UnmetError) as caught:
        stack_of(matrix, framework, **options)
    return caught.value


def clash_of(matrix: Matrix, folder: Path, line: str, framework: str, **options: Any) -> UnmetError:
    """Give the refusal of a requirement beside a stack, before any index is asked."""
    path = folder / "requirements.txt"
    path.write_text(line + "\n")
    known = known_of(stack_of(matrix, framework, **options), matrix)
    with pytest.raises(UnmetError) as caught:
        refuse_known_clashes(known, applying(read_requirements([path]), known, "x86_64"))
    return caught.value


def linted(matrix: Matrix, image: str, cuda: str, *lines: str) -> list[Problem]:
    """Lint an image on a base of NVIDIA's, or a plain one, whose wheels bring a CUDA."""
    text = "\n".join([f"FROM {image}@{DIGEST}", *lines, "USER 1000", "ENTRYPOINT []"])
    facts = LintFacts(
        gone=matrix.gone,
        library_paths=library_paths(matrix),
        cuda=Cuda.parse(cuda),
        floor=Cuda.parse(f"{Cuda.parse(cuda).major}.0"),
    )
    return list(lint(text + "\n", facts))


def commands(error: UnmetError) -> list[str]:
    """Give the commands of the alternatives."""
    return [other["command"] for other in error.alternatives]


def targets(matrix: Matrix, version: str, variant: str) -> list[str]:
    """Give the targets of a build's x86-64 wheels."""
    wheels = matrix.frameworks["pytorch"].releases[version].builds[variant].wheels["x86_64"]
    return [target.text for target in (*wheels.cubin, *wheels.ptx)]


def test_1_python_that_a_release_has_no_wheel_for(matrix: Matrix) -> None:
    """pytorch/pytorch#112882: 2.1 on Python 3.12 names its Pythons and the first release that fits."""
    error = refusal_of(matrix, "pytorch==2.1.2", cuda="12.1", python="3.12")
    said = str(error.conflicts)
    assert "3.8, 3.9, 3.10 and 3.11" in said
    assert "2.2.0" in said
    assert commands(error) == [
        "imgbuild resolve --framework pytorch==2.1.2 --cuda 12.1 --python 3.11",
        "imgbuild resolve --framework pytorch==2.2.2 --cuda 12.1 --python 3.12",
    ]
    follow = stack_of(matrix, "pytorch==2.2.2", cuda="12.1", python="3.12")
    assert "triton" not in follow.packages
    assert any("torch.compile" in note for note in follow.notes)


def test_2_driver_470_on_a_t4(matrix: Matrix) -> None:
    """NVIDIA/nvidia-docker#400: R470 cannot run 12.1; cu118 runs, forward compatibility is a remark."""
    error = refusal_of(matrix, "pytorch==2.3.1", cuda="12.1", gpus=["T4"], driver="470.57.02")
    said = str(error.conflicts)
    assert all(word in said for word in ("525.60.13", "470.57.02", "forward compatibility"))
    assert "--cuda 11.8" in commands(error)[0]
    assert "--driver 525.60.13" in commands(error)[1]
    geforce = refusal_of(matrix, "pytorch==2.3.1", cuda="12.1", gpus=["RTX 3060"], driver="470.57.02")
    assert "forward compatibility" not in str(geforce.conflicts)


def test_3_numpy_ceiling_of_an_old_release(matrix: Matrix) -> None:
    """securefederatedai/openfl#999: torch 2.2 gets NumPy 1.26.4 and a ceiling that its metadata lacks."""
    stack = stack_of(matrix, "pytorch==2.2.2", cuda="12.1", python="3.11")
    assert stack.packages["numpy"] == "1.26.4"
    assert stack.constraints["numpy"] == "<2"
    assert any(reason.fact == "numpy" and "NumPy 1 ABI" in reason.because for reason in stack.reasons)
    assert Version(stack_of(matrix, "pytorch==2.3.0").packages["numpy"]) >= Version("2")


def test_3_numpy_2_beside_it_is_refused(matrix: Matrix, tmp_path: Path) -> None:
    """securefederatedai/openfl#999: what an index accepts is refused, with the first torch for NumPy 2."""
    error = clash_of(matrix, tmp_path, "numpy>=2", "pytorch==2.2.2", cuda="12.1", python="3.11")
    assert "`numpy>=2`" in error.what
    assert "NumPy 1 ABI" in str(error.conflicts)
    assert "numpy<2" in commands(error)[0]
    assert "'pytorch>=2.3.0'" in commands(error)[1]


def test_4_rtx_5090_and_torch_2_5(matrix: Matrix) -> None:
    """pytorch/pytorch#150733: no build of 2.5 has sm_120; the first is 2.7.0 cu128, none older is offered."""
    error = refusal_of(matrix, "pytorch==2.5.1", cuda="12.4", gpus=["RTX 5090"])
    said = str(error.conflicts)
    assert all(word in said for word in ("sm_90", "12.0", "2.7.0 for CUDA 12.8"))
    with_gpu = [command for command in commands(error) if "RTX 5090" in command]
    assert with_gpu
    assert not any(
        f"--cuda {cuda}" in command for command in with_gpu for cuda in ("11.8", "12.1", "12.4", "12.6")
    )
    for version, cuda in (("2.7.0", "12.8"), ("2.8.0", "12.8")):
        assert "sm_120" in targets(matrix, version, "cu128")
        assert str(stack_of(matrix, f"pytorch=={version}", gpus=["RTX 5090"], cuda=cuda).version) == version


def test_5_v100_and_torch_2_11(matrix: Matrix) -> None:
    """pytorch/pytorch#172352: of 2.11 only cu126 has Volta code; CUDA 13.0 is refused towards it."""
    stack = stack_of(matrix, "pytorch==2.11.0", gpus=["V100"])
    assert (str(stack.cuda), str(stack.driver_min)) == ("12.6", "525.60.13")
    assert "sm_70" in targets(matrix, "2.11.0", "cu126")
    assert any("R580 is the last driver branch" in note for note in stack.notes)
    error = refusal_of(matrix, "pytorch==2.11.0", gpus=["V100"], cuda="13.0")
    assert "imgbuild resolve --framework pytorch==2.11.0 --cuda 12.6 --gpu V100" in commands(error)


def test_7_pascal_and_the_default_torch_2_8(matrix: Matrix) -> None:
    """jhj0517/Whisper-WebUI#653: PyPI's 2.8 starts at sm_70; GTX 1080 and P100 get cu126."""
    stack = stack_of(matrix, "pytorch==2.8.0", gpus=["GTX 1080", "P100"])
    assert str(stack.cuda) == "12.6"
    assert "sm_60" in targets(matrix, "2.8.0", "cu126")
    assert targets(matrix, "2.8.0", "cu128")[0] == "sm_70"


def test_9_variant_that_was_never_built(matrix: Matrix) -> None:
    """pytorch/pytorch#155790: 2.7.1 has no 12.4 build; its variants and the last that has one are named."""
    error = refusal_of(matrix, "pytorch==2.7.1", cuda="12.4")
    assert "11.8, 12.6 and 12.8" in str(error.conflicts)
    assert "imgbuild resolve --framework pytorch==2.7.1 --cuda 12.6" in commands(error)
    assert "imgbuild resolve --framework pytorch==2.6.0 --cuda 12.4" in commands(error)


def test_14_companions_are_pinned_to_the_release(matrix: Matrix) -> None:
    """vladmandic/sdnext#3531: a stack holds the torchvision that belongs to its torch."""
    right = {"2.2.2": "0.17.2", "2.4.1": "0.19.1", "2.5.1": "0.20.1", "2.9.1": "0.24.1"}
    found = {version: stack_of(matrix, f"pytorch=={version}").constraints["torchvision"] for version in right}
    assert found == {version: f"=={companion}" for version, companion in right.items()}


def test_14_another_torchvision_is_refused(matrix: Matrix, tmp_path: Path) -> None:
    """vladmandic/sdnext#3531: torchvision 0.18.1 belongs to torch 2.3.1, 0.19.1 to this one."""
    error = clash_of(matrix, tmp_path, "torchvision==0.18.1", "pytorch==2.4.1")
    assert "does not fit `torchvision==0.19.1`" in error.what
    assert "torchvision 0.19.1 is made for" in str(error.conflicts) or "==0.19.1" in str(error.conflicts)
    assert "pytorch==2.3.1" in commands(error)[1]


def test_18_gh200_gets_no_cpu_only_wheel(matrix: Matrix) -> None:
    """pytorch/pytorch#160162: 2.10.0 for aarch64 is CPU-only on PyPI; the other index has GPU builds."""
    stack = stack_of(matrix, "pytorch==2.10.0", arch="arm64", gpus=["GH200"])
    assert stack.source == "pytorch"
    assert str(stack.cuda) in ("12.6", "13.0")
    assert "9.0" in map(str, stack.compute_capabilities)
    newer = stack_of(matrix, "pytorch==2.11.0", arch="arm64", gpus=["GH200"])
    assert (newer.source, str(newer.cuda), str(newer.driver_min)) == ("pypi", "13.0", "580.65.06")
    assert newer.packages["nvidia-cudnn-cu13"] == "9.19.0.56"


@pytest.mark.parametrize("base", ["nvidia/cuda:10.2-cudnn8-devel-ubuntu18.04", "nvidia/cuda:latest"])
def test_19_base_tags_that_are_gone(matrix: Matrix, base: str) -> None:
    """NVIDIA/nvidia-docker#1768: a deleted tag is refused from data alone, with what to take instead."""
    error = refusal_of(matrix, "pytorch", os=base)
    assert "11.8.0-cudnn8-devel-ubuntu22.04" in str(error.conflicts)


def test_23_driver_525_and_cuda_12_4(matrix: Matrix) -> None:
    """mistralai/mistral-inference#144: minor-version compatibility, but PTX of 12.4 does not load."""
    stack = stack_of(matrix, "pytorch==2.5.1", cuda="12.4", gpus=["RTX 3060"], driver="525.147.05")
    assert str(stack.driver_min) == "525.60.13"
    assert any("error 222" in note for note in stack.notes)
    newer = stack_of(matrix, "pytorch==2.5.1", cuda="12.4", gpus=["RTX 3060"], driver="550.54.14")
    assert not any("error 222" in note for note in newer.notes)


@pytest.mark.parametrize("tag", ["12.4.1-runtime-ubuntu22.04", "12.6.3-runtime-ubuntu22.04"])
def test_23_a_base_of_nvidia_brings_compat_and_a_gate(matrix: Matrix, tag: str) -> None:
    """NVIDIA/nvidia-container-toolkit#152: its gate must be replaced, its cuda-compat is warned of."""
    found = {problem.rule: problem for problem in linted(matrix, f"nvidia/cuda:{tag}", "12.4")}
    assert found["require-cuda"].level == "error"
    assert found["cuda-twice"].level == "warning"
    assert "error 804 on GeForce" in str(found["cuda-twice"])
    gated = linted(matrix, f"nvidia/cuda:{tag}", "12.4", 'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.0"')
    assert [problem.rule for problem in gated] == ["cuda-twice"]


@pytest.mark.parametrize(
    ("image", "cuda", "level"),
    [
        ("nvidia/cuda:12.8.1-runtime-ubuntu24.04", "12.9", "error"),
        ("nvidia/cuda:12.8.1-runtime-ubuntu24.04", "12.8", "warning"),
        ("ubuntu:24.04", "12.8", None),
    ],
)
def test_28_the_base_shadows_the_wheels(matrix: Matrix, image: str, cuda: str, level: str | None) -> None:
    """jax-ml/jax#17497: an older CUDA of the base is an error, the same a warning, a plain base is right."""
    gate = 'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.0"'
    found = [one for one in linted(matrix, image, cuda, gate) if one.rule == "library-path"]
    assert [one.level for one in found] == ([level] if level else [])
    assert all("`/usr/local/cuda/lib64`" in one.what for one in found)
    reset = linted(matrix, image, cuda, gate, "ENV LD_LIBRARY_PATH=")
    assert not any(one.rule == "library-path" for one in reset)


def test_28_every_base_that_sets_the_path_is_known(matrix: Matrix) -> None:
    """pytorch/pytorch#152783: the bases that put their toolkit first are facts, 12.8.0 is none of them."""
    known = {"12.8.1", "12.9.0", "12.9.1", "13.0.0", "13.0.1", "13.0.2", "13.1.0"}
    assert set(library_paths(matrix)) == known


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (
            'could not select device driver "" with capabilities: [[gpu]]',
            "nvidia-ctk runtime configure --runtime=docker",
        ),
        ("unknown or invalid runtime name: nvidia", "nvidia-ctk runtime configure --runtime=docker"),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        ),
    ],
)
def test_29_the_engines_words_for_no_gpu_runtime(words: str, step: str) -> None:
    """NVIDIA/nvidia-docker#1034: the three ways in which an engine has no GPU each have their command."""
    assert step in next_step(words)


def test_30_two_gpus_with_64_mb_of_shared_memory() -> None:
    """NVIDIA/nccl#342: a failure with the run line, before NCCL is started; with 1 GiB it is none."""
    problem = shm.too_small(64 << 20, 2)
    assert problem
    assert "64 MiB, 2 GPUs want 1024 MiB" in problem.summary
    assert problem.next_step == (
        "docker run --gpus all --shm-size=1g --ulimit memlock=-1 --ulimit stack=67108864 IMAGE"
    )
    assert shm.too_small(1 << 30, 2) is None
