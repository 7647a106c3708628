"""What hurts people most with GPU images, by the ids of docs/compatibility.md: caught early, clearly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from locks import make_base, make_lock, rendered

from imagebuilder.build import _differences
from imagebuilder.buildx.events import Log
from imagebuilder.buildx.faults import failure
from imagebuilder.checks import gate, gpu, host, pytorch_nccl, ranks, shm, symptoms
from imagebuilder.checks.result import Context
from imagebuilder.errors import BuildError, UnmetError
from imagebuilder.lint import LintFacts, lint, lint_facts
from imagebuilder.lock.clash import applying, known_of, refuse_known_clashes
from imagebuilder.lock.requirements import read_requirements
from imagebuilder.matrix import Matrix, load
from imagebuilder.matrix.words import Cuda
from imagebuilder.request import parse_request
from imagebuilder.resolve import Stack, resolve
from imagebuilder.smoke import KERNELS, CheckResult, _verdict

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "sha256:" + "a" * 64
FACTS = LintFacts(cuda=Cuda.parse("12.4"), floor=Cuda.parse("12.0"), gone={}, library_paths={})
END = "USER 1000\nENTRYPOINT []\n"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Give the packaged facts."""
    return load()


def ask(matrix: Matrix, framework: str, **options: Any) -> Stack:
    """Resolve a request."""
    return resolve(parse_request(framework=framework, **options), matrix)


def manifest_of(stack: Stack) -> dict[str, Any]:
    """Give stack.json as an image of this stack carries it."""
    document: dict[str, Any] = json.loads(rendered(make_lock(stack=stack)).files["metadata/stack.json"])
    return document


def diagnosed(text: str) -> symptoms.Symptom:
    """Give what is known of words that a failing program printed."""
    found = symptoms.find(text)
    assert found is not None
    return found


def lint_words(body: str) -> str:
    """Give what the lint says of a step or a base."""
    start = "" if body.startswith("FROM") else f"FROM debian:12@{DIGEST}\n"
    return "\n".join(map(str, lint(f"{start}{body}\n{END}", FACTS)))


def test_b1_an_old_driver_is_refused_with_the_newest_build_that_runs(matrix: Matrix) -> None:
    """Found and needed version, and a command that gives an image for that host: nothing was built."""
    with pytest.raises(UnmetError) as caught:
        ask(matrix, "pytorch==2.3.1", cuda="12.1", driver="470.57.02")
    said = str(caught.value.conflicts)
    assert "CUDA 12.x needs driver 525.60.13 or newer, 470.57.02 was named" in said
    assert caught.value.alternatives[0]["command"] == (
        "imgbuild resolve --framework pytorch==2.3.1 --cuda 11.8 --driver 470.57.02"
    )


def test_b1_c1_a_pulled_image_says_at_start_what_would_fit(matrix: Matrix) -> None:
    """The manifest in the image knows stacks for older drivers and other GPUs; the gate names one."""
    manifest = manifest_of(ask(matrix, "pytorch", cuda="12.1"))
    old = gate.compare(manifest, "470.57.02", [("T4", "7.5")])
    assert "driver 470.57.02 is older than 525.60.13; `pytorch-2." in old
    assert "` would fit" in old
    new = gate.compare(manifest, "570.133.20", [("RTX 5090", "12.0")])
    assert "RTX 5090 (12.0) is not among its compute capabilities; `pytorch-2." in new
    assert "-cuda12.8-" in new, "the driver of this host is too old for CUDA 13"
    assert gate.compare(manifest, "535.104.05", [("T4", "7.5")]) == ""


def test_b1_the_label_answers_before_a_pull() -> None:
    """Driver floor and compute capabilities are labels, which a registry shows without a layer."""
    labels = rendered().labels
    assert labels["io.imgbuild.driver.min"] == "525.60.13"
    assert labels["io.imgbuild.compute-capabilities"] == "5.0 8.0 9.0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CUDA error: CUDA driver version is insufficient for CUDA runtime version", "driver is too old"),
        ("The NVIDIA driver on your system is too old (found version 11040).", "driver is too old"),
        ("NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch"
         " installation.", "holds no code for this GPU"),
        ("CUDA error: no kernel image is available for execution", "holds no code for this GPU"),
    ],
)  # fmt: skip
def test_b1_c1_c2_known_words_lead_to_a_request(text: str, words: str) -> None:
    """Whoever meets the message in a check is given the request that avoids it."""
    found = diagnosed(text)
    assert words in found.diagnosis
    assert "imgbuild resolve --" in str(found.next_step)


def test_g1_a_requirement_cannot_replace_torch(matrix: Matrix, tmp_path: Path) -> None:
    """The line is refused with both versions, the edit that fits, and the release that it wants."""
    path = tmp_path / "requirements.txt"
    path.write_text("einops\ntorch==2.5.1\n")
    known = known_of(ask(matrix, "pytorch==2.4.1"), matrix)
    with pytest.raises(UnmetError) as caught:
        refuse_known_clashes(known, applying(read_requirements([path]), known, "x86_64"))
    assert f"`torch==2.5.1` ({path}:2) asks for another torch than the stack's" in caught.value.what
    commands = [one["command"] for one in caught.value.alternatives]
    assert f"sed -i '2c torch==2.4.1' {path}" in commands
    assert any("--framework pytorch==2.5.1" in command for command in commands)


def test_g1_an_image_on_top_keeps_torch_too() -> None:
    """Constraints for pip and uv stay in the image, and hold the framework and its CUDA wheels."""
    context = rendered()
    constraints = context.files["metadata/constraints.txt"].decode().splitlines()
    assert {"torch==2.4.1", "nvidia-cudnn-cu12==9.1.0.70"} <= set(constraints)
    assert "PIP_CONSTRAINT=/opt/imgbuild/constraints.txt" in context.dockerfile
    assert "UV_CONSTRAINT=/opt/imgbuild/constraints.txt" in context.dockerfile


def test_g1_the_built_image_is_held_against_the_lock() -> None:
    """A torch that the build exchanged all the same is a failed build that names both versions."""
    context = rendered()
    packages = {wheel.name: str(wheel.version) for wheel in context.lock.wheels}
    assert _differences(context, {"python": "3.11", "packages": packages}) == []
    moved = {**packages, "torch": "2.5.1"}
    assert _differences(context, {"python": "3.11", "packages": moved}) == [
        "torch: locked 2.4.1, in the image 2.5.1"
    ]


def test_b3_e3_a_cuda_base_under_cuda_wheels_is_named() -> None:
    """The base brings cuda-compat and a second CUDA: said with error 804 and the way out."""
    said = lint_words(f"FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04@{DIGEST}")
    assert "its wheels bring CUDA 12.4" in said
    assert "error 804 on GeForce" in said
    assert "start from a plain base" in said


def test_b3_error_804_is_told_with_the_file_that_was_loaded() -> None:
    """The diagnosis says cuda-compat, the path of the library, and that the driver may do."""
    facts = {
        "driver": "550.54.15",
        "device_files": ["nvidia0"],
        "nvidia_uvm": True,
        "cuda": {"library": "/usr/local/cuda/compat/libcuda.so.1", "init": 804},
    }
    (problem,) = gpu.problems(facts, None)
    assert "COMPAT_NOT_SUPPORTED_ON_DEVICE" in problem.summary
    assert "the file loaded is /usr/local/cuda/compat/libcuda.so.1" in str(problem.diagnosis)
    assert "the driver alone may be new enough" in str(problem.next_step)


def test_a1_k1_without_a_gpu_nothing_is_passed() -> None:
    """Skipped GPU checks give `passed without GPU evidence`, and a failure where a GPU is required."""

    def result(group: str, status: Any, device: Any) -> CheckResult:
        return CheckResult(
            id={"gpu": KERNELS}.get(group, f"{group}.x"),
            group=group,
            status=status,
            seconds=0.0,
            device=device,
            summary="so",
        )

    blind = (result("env", "pass", "host"), result("gpu", "skip", None))
    assert _verdict(blind, False) == "passed without GPU evidence"
    assert _verdict(blind, True) == "failed"
    assert _verdict((result("env", "pass", "host"), result("gpu", "pass", "cuda")), True) == "passed"


def test_e1_another_cudnn_is_named_by_its_message() -> None:
    """The words of framework and library lead to the folder that has to go."""
    found = diagnosed("Loaded runtime CuDNN library: 8.9.2 but source was compiled with: 9.1.0.")
    assert found.diagnosis == "another cuDNN than the wheels' is found first"
    assert "off the library path" in str(found.next_step)


def test_e1_a_second_cudnn_does_not_get_into_the_image() -> None:
    """The system's package beside the wheels' own is an error of the Dockerfile."""
    said = lint_words("RUN apt-get install -y libcudnn8")
    assert "`libcudnn8` is in the wheels already" in said


def test_g5_an_extension_for_another_torch_is_named() -> None:
    """The mangled symbol is translated: the extension was compiled for another torch."""
    found = diagnosed(
        "ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE"
    )
    assert "an extension was compiled for another torch" in found.diagnosis
    assert found.next_step == "install the extension's build for this torch"


def test_h1_a_deleted_tag_is_refused_without_asking_a_registry(matrix: Matrix) -> None:
    """`latest` and CUDA 10 are answered from facts, with what to take."""
    for tag in ("latest", "10.2-cudnn8-devel-ubuntu18.04"):
        with pytest.raises(UnmetError) as caught:
            ask(matrix, "pytorch", os=f"nvidia/cuda:{tag}")
        assert f"the base `nvidia/cuda:{tag}` is gone" in caught.value.what
        assert "use a plain base such as debian-12" in str(caught.value.conflicts)


def test_i3_a_full_disk_is_recognised_in_a_build() -> None:
    """The builder's words become the commands that show and free the space."""
    log = Log()
    log.plain = "ERROR: failed to solve: write /x: no space left on device"
    error = failure(1, log)
    assert isinstance(error, BuildError)
    assert "prune" in str(error.hint)


def test_a4_a_gpu_lost_after_hours_is_named() -> None:
    """`NVML: Unknown Error` in a running container is told as lost device permissions."""
    found = diagnosed("Failed to initialize NVML: Unknown Error")
    assert "daemon-reload took away" in found.diagnosis
    assert "with CDI" in str(found.next_step)


def test_m1_little_shared_memory_is_said_before_nccl_starts() -> None:
    """64 MB for two GPUs is the failure, with the run line; NCCL's own words stay unseen."""
    problem = shm.too_small(64 << 20, 2)
    assert problem
    assert problem.summary == "shared memory (/dev/shm) is 64 MiB, 2 GPUs want 1024 MiB"
    assert "`unhandled system error`" in str(problem.diagnosis)
    assert str(problem.next_step).startswith("docker run --gpus all --shm-size=1g --ulimit memlock=-1")


@pytest.mark.parametrize(
    ("second_try", "words", "step"),
    [
        (True, "P2P is broken on this host: PCIe ACS or IOMMU redirects it", "never in the image"),
        (False, "NCCL cannot connect the ranks", "NCCL_SOCKET_IFNAME"),
    ],
)
def test_m2_a_hang_is_tried_again_without_peer_to_peer(
    monkeypatch: pytest.MonkeyPatch, second_try: bool, words: str, step: str
) -> None:
    """The second try tells ACS from everything else (two GPUs that hang are not here: their end is)."""
    asked: list[dict[str, str] | None] = []

    def again(*arguments: Any) -> ranks.Team:
        asked.append(arguments[5])
        answers: list[dict[str, Any] | None] = [{"ok": 1}, {"ok": 1}] if second_try else [None, None]
        return ranks.Team(answers, [0, 0], timed_out=not second_try, log="", output="")

    monkeypatch.setattr(ranks, "start", again)
    hung = ranks.Team([None, None], [None, None], timed_out=True, log="", output="")
    problem = pytorch_nccl._failure(
        Context(device="cuda"), "collectives", hung, {"ranks": 2, "backend": "nccl"}
    )
    assert asked == [{"NCCL_P2P_DISABLE": "1"}]
    assert words in str(problem.diagnosis)
    assert step in str(problem.next_step)
    assert "NCCL_P2P_DISABLE" not in rendered().dockerfile


def test_m2_the_switch_is_never_baked_in() -> None:
    """A template that sets it for every host is refused."""
    assert "`NCCL_P2P_DISABLE` is set for every host" in lint_words("ENV NCCL_P2P_DISABLE=1")


def test_a2_a_missing_flag_is_told_from_a_missing_driver() -> None:
    """Gate and check both say which of the two it is, and give the run line."""
    diagnosis, step = host.why_no_gpu({"driver": "550.54.15"})
    assert "started without a GPU request" in diagnosis
    assert "docker run --gpus all" in step
    diagnosis, _ = host.why_no_gpu({"driver": None})
    assert "no NVIDIA driver is loaded" in diagnosis


def test_d4_the_companion_is_the_one_that_belongs_to_this_torch(matrix: Matrix, tmp_path: Path) -> None:
    """A torchvision of another torch is refused with the right one and the torch that it is made for."""
    path = tmp_path / "requirements.txt"
    path.write_text("torchvision==0.18.1\n")
    known = known_of(ask(matrix, "pytorch==2.4.1"), matrix)
    with pytest.raises(UnmetError) as caught:
        refuse_known_clashes(known, applying(read_requirements([path]), known, "x86_64"))
    assert "does not fit `torchvision==0.19.1`" in caught.value.what
    assert "--framework pytorch==2.3.1" in caught.value.alternatives[1]["command"]


def test_g9_everything_in_the_image_is_named_by_hash() -> None:
    """Each wheel is installed from a line with its hash, each system package by version and hash."""
    context = rendered()
    for name, content in context.files.items():
        if name.startswith("wheels/"):
            assert all(" --hash=sha256:" in line for line in content.decode().splitlines())
    assert "--require-hashes" in context.files["scripts/install-wheels"].decode()
    assert all(len(line.split()) == 6 for line in context.files["debs.txt"].decode().splitlines())
    assert "takes what the index has today" in lint_words("RUN pip install torch")


def test_h3_a_base_is_its_digest() -> None:
    """The tag stands in the Dockerfile for people, the digest decides."""
    image = "docker.io/library/debian:bookworm-slim"
    lock = make_lock(base=make_base(origin="registry", image=image, digest=DIGEST))
    text = rendered(lock).dockerfile
    assert f"FROM {image}@{DIGEST} AS base" in text
    facts = lint_facts(lock, root=False, gone={}, library_paths={})
    unpinned = text.replace(f"@{DIGEST} AS base", " AS base")
    assert any(problem.rule == "unpinned-image" for problem in lint(unpinned, facts))


def test_i12_arm64_gets_a_gpu_build_or_a_refusal(matrix: Matrix) -> None:
    """The CPU-only wheel is never chosen, and the image's check would notice it."""
    stack = ask(matrix, "pytorch==2.10.0", arch="arm64", gpus=["GH200"])
    assert stack.source == "pytorch"
    assert stack.packages["torch"].startswith("2.10.0+cu")
    with pytest.raises(UnmetError) as caught:
        ask(matrix, "pytorch==2.10.0", arch="arm64", sources=["pypi"])
    assert "the wheels for arm64 are CPU-only" in str(caught.value.conflicts)


def test_c2_an_update_that_would_lose_a_gpu_keeps_to_another_build(matrix: Matrix) -> None:
    """The same release has a build with the old GPU's code: it is chosen, and the end of support is said."""
    stack = ask(matrix, "pytorch==2.11.0", gpus=["V100"])
    assert str(stack.cuda) == "12.6"
    assert any("R580 is the last driver branch" in note for note in stack.notes)


def test_g2_numpy_2_under_an_old_torch_is_refused(matrix: Matrix, tmp_path: Path) -> None:
    """Plain resolution accepts it: the rule, its source and the first torch for NumPy 2 are told."""
    path = tmp_path / "requirements.txt"
    path.write_text("numpy>=2\n")
    known = known_of(ask(matrix, "pytorch==2.2.2"), matrix)
    with pytest.raises(UnmetError) as caught:
        refuse_known_clashes(known, applying(read_requirements([path]), known, "x86_64"))
    assert "numpy<2" in caught.value.what
    assert "pytorch>=2.3.0" in caught.value.alternatives[1]["command"]
