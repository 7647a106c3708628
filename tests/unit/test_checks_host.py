"""Facts of the host, and what the GPU checks conclude from them, without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imagebuilder.checks import gpu, host, pytorch_gpu, shm
from imagebuilder.checks.manifest import Manifest

if TYPE_CHECKING:
    from pathlib import Path

LINE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\n"
STACK = Manifest(
    identifier="pytorch-2.4.1-cuda12.1",
    framework="pytorch",
    framework_version="2.4.1",
    driver_min="525.60.13",
    fallbacks=({"stack": "pytorch-2.4.1-cuda11.8", "driver_min": "450.80.02"},),
)


@pytest.mark.parametrize(
    ("line", "version"), [(LINE, "550.54.15"), (OPEN, "570.133.20"), ("NVRM\n", None), ("", None)]
)
def test_the_kernel_driver_is_read(tmp_path: Path, line: str, version: str | None) -> None:
    """The line of the closed and of the open module, and what is neither."""
    path = tmp_path / "version"
    path.write_text(line)
    assert host.kernel_driver(str(path)) == version
    assert host.kernel_driver(str(tmp_path / "absent")) is None


def test_device_files_are_facts(tmp_path: Path) -> None:
    """GPUs are counted by their device files; control devices are no GPUs."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        (tmp_path / name).touch()
    facts = host.files(str(tmp_path), str(tmp_path / "absent"))
    assert facts["device_files"] == ["nvidia0", "nvidia1"]
    assert (facts["nvidiactl"], facts["nvidia_uvm"], facts["wsl"]) == (True, True, False)
    assert host.offers_gpu(facts)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"driver": "550.54.15"}, "started without a GPU request"),
        ({"driver": None}, "no NVIDIA driver is loaded"),
        (
            {"driver": "550.54.15", "environment": {"NVIDIA_VISIBLE_DEVICES": "void"}},
            "NVIDIA_VISIBLE_DEVICES=void",
        ),
        ({"wsl": True}, "WSL2"),
    ],
)
def test_no_flag_is_told_from_no_driver(facts: dict[str, Any], words: str) -> None:
    """Without a GPU the reason names the flag, the variable, or the host; the next step is the run line."""
    assert not host.offers_gpu(facts)
    diagnosis, step = host.why_no_gpu(facts)
    assert words in diagnosis
    assert "docker run --gpus all --shm-size=1g IMAGE" in step


GOOD: dict[str, Any] = {
    "driver": "550.54.15",
    "device_files": ["nvidia0"],
    "nvidia_uvm": True,
    "cuda": {"library": "/usr/lib/libcuda.so.1", "init": 0, "devices": 1},
    "environment": {},
}


def test_a_good_host_has_no_problems() -> None:
    """A driver from the floor on, with its parts, is fine."""
    assert gpu.problems(GOOD, STACK) == []
    assert gpu.problems({**GOOD, "driver": "525.60.13"}, STACK) == []


@pytest.mark.parametrize(
    ("change", "words", "step"),
    [
        (
            {"driver": "525.60.12"},
            "driver too old: pytorch-2.4.1-cuda12.1 needs at least 525.60.13",
            "`pytorch-2.4.1-cuda11.8`",
        ),
        ({"driver": "440.33"}, "driver too old", "update the driver"),
        ({"nvidia_uvm": False}, "nvidia-uvm", "nvidia-modprobe -u"),
        ({"cuda": {"library": None}}, "NVIDIA_DRIVER_CAPABILITIES", "--gpus all"),
        ({"cuda": {"library": "/usr/local/cuda/compat/libcuda.so.1", "init": 804}}, "cuda-compat", "compat"),
        (
            {"cuda": {"library": "/x/libcuda.so.1", "init": 803}},
            "the file loaded is /x/libcuda.so.1",
            "libs.driver",
        ),
        ({"cuda": {"library": "/x", "init": 802}}, "fabric manager", "nvidia-fabricmanager"),
        ({"cuda": {"library": "/x", "init": 999}}, "nvidia-uvm not loaded", "nvidia-modprobe"),
        ({"cuda": {"library": "/x", "init": 222}}, "JIT", "older CUDA"),
        ({"cuda": {"library": "/x", "init": 35}}, "too old for the CUDA of this image", "imgbuild resolve"),
        ({"cuda": {"library": "/x", "init": 777}}, "error 777", ""),
        (
            {"cuda": {"library": "/x", "init": 100}, "environment": {"CUDA_VISIBLE_DEVICES": "all"}},
            "CUDA_VISIBLE_DEVICES=`all` hides every GPU",
            "",
        ),
    ],
)
def test_each_host_fault_is_named_with_its_step(change: dict[str, Any], words: str, step: str) -> None:
    """Every known fault between host and container gives its own diagnosis and next step."""
    (problem, *_) = gpu.problems({**GOOD, **change}, STACK)
    assert words in str(problem.diagnosis)
    assert step in str(problem.next_step or "")


@pytest.mark.parametrize(
    ("variable", "left"),
    [
        (None, 4),
        ("0", 1),
        ("0,1", 2),
        ("", 0),
        ("all", 0),
        ("-1", 0),
        ("2,9,1", 1),
        ("GPU-abc,1", 2),
        ("MIG-x", None),
        ("1,1", 0),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(variable: str | None, left: int | None) -> None:
    """Indexes and UUIDs up to the first unusable entry; a GPU named twice hides all."""
    assert host.visible_of(4, variable) == left


@pytest.mark.parametrize(
    ("seen", "shown", "hiding", "asked", "words"),
    [
        (2, 2, None, None, None),
        (1, 2, "1", None, None),
        (0, 2, "all", None, "hides every GPU"),
        (1, 2, None, None, "NVML shows 2 GPUs, torch sees 1"),
        (1, 1, None, 2, "2 GPUs were asked for, torch sees 1"),
        (3, None, None, None, None),
    ],
)
def test_counts_of_torch_and_nvml_are_compared(
    seen: int, shown: int | None, hiding: str | None, asked: int | None, words: str | None
) -> None:
    """A difference that CUDA_VISIBLE_DEVICES does not explain is a failure that says so."""
    devices = None if shown is None else [{"index": index, "mig": False} for index in range(shown)]
    problem = gpu.count_problem(seen, devices, hiding, asked, "torch")
    assert (None if problem is None else problem.summary) == words or (
        problem and str(words) in problem.summary
    )


@pytest.mark.parametrize(
    ("capability", "wheel", "how"),
    [
        ((8, 9), ["sm_80", "sm_86"], "cubin"),
        ((12, 0), ["sm_80", "sm_90"], None),
        ((7, 0), ["sm_75", "sm_80"], None),
        ((9, 0), ["sm_80", "compute_80"], "ptx"),
        ((10, 0), ["sm_90a"], None),
        ((8, 7), ["sm_80", "sm_86"], None),
        ((8, 7), ["sm_87"], "cubin"),
        ((10, 3), ["sm_100"], "cubin"),
        ((12, 1), ["sm_120"], "cubin"),
        ((8, 0), [], None),
    ],
)
def test_code_for_a_gpu_follows_the_rules_of_cubins(
    capability: tuple[int, int], wheel: list[str], how: str | None
) -> None:
    """Same major and lower minor run, integrated GPUs and suffixed targets are exact, PTX is compiled."""
    assert pytorch_gpu.code_for(capability, wheel) == how


@pytest.mark.parametrize(
    ("size", "gpus", "small"),
    [(64 << 20, 2, True), (1 << 30, 2, False), (64 << 20, 1, False), (None, 2, True)],
)
def test_shared_memory_is_judged_before_nccl_starts(size: int | None, gpus: int, small: bool) -> None:
    """Docker's 64 MB fail for two GPUs with the run line; one GPU needs none."""
    problem = shm.too_small(size, gpus)
    assert (problem is not None) == small
    if problem:
        assert "--shm-size=1g" in str(problem.next_step)
