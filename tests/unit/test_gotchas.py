"""Known incompatibilities, by the numbers of docs/compatibility.md: the words that a person meets.

What the resolver decides about them is in test_resolve_gotchas.py; here is what it says, and what lint,
lock, gate and smoke checks catch.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from locks import rendered
from packaging.requirements import Requirement
from packaging.version import Version

from imagebuilder.checks import nccl_log, pytorch_amp, pytorch_env, pytorch_gpu, symptoms
from imagebuilder.checks.manifest import Manifest
from imagebuilder.checks.result import Context, Skipped
from imagebuilder.errors import ImgbuildError, UnmetError, UsageError
from imagebuilder.lint import LintFacts, lint
from imagebuilder.lock.clash import applying, known_of, refuse_known_clashes
from imagebuilder.lock.requirements import read_requirements
from imagebuilder.matrix import Matrix, load
from imagebuilder.matrix.fit import code_on, glibc_fits
from imagebuilder.matrix.gpus import find_gpu
from imagebuilder.matrix.words import Capability, Cuda
from imagebuilder.request import parse_request
from imagebuilder.resolve import Stack, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagebuilder.matrix.facts import Build, Release

DIGEST = "sha256:" + "a" * 64
END = 'USER 1000\nENTRYPOINT ["/usr/bin/python3", "/opt/imgbuild/checks/gate.py"]\n'


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Give the packaged facts."""
    return load()


def ask(matrix: Matrix, framework: str, **options: Any) -> Stack:
    """Resolve a request."""
    return resolve(parse_request(framework=framework, **options), matrix)


def words_of(error: ImgbuildError) -> str:
    """Give everything that a person reads of an error: what, why, what to do."""
    found = [error.what, str(error.why or ""), str(error.hint or "")]
    if isinstance(error, UnmetError):
        found += [f"{one['constraint']}: {one['fact']} [{one['source']}]" for one in error.conflicts]
        found += [str(one["command"]) for one in error.alternatives]
    return "\n".join(found)


def refused(matrix: Matrix, framework: str, **options: Any) -> str:
    """Give the words with which a request is refused."""
    with pytest.raises(UnmetError) as caught:
        ask(matrix, framework, **options)
    return words_of(caught.value)


def builds(matrix: Matrix) -> Iterator[tuple[Release, Build]]:
    """Give every build of PyTorch."""
    for release in matrix.frameworks["pytorch"].releases.values():
        for build in release.builds.values():
            yield release, build


def lock_refuses(matrix: Matrix, folder: Path, line: str, framework: str = "pytorch==2.4.1") -> str:
    """Give the words with which a requirement is refused beside a stack."""
    path = folder / "requirements.txt"
    path.write_text(line + "\n")
    stack = ask(matrix, framework)
    known = known_of(stack, matrix)
    with pytest.raises(UnmetError) as caught:
        refuse_known_clashes(known, applying(read_requirements([path]), known, "x86_64"))
    return words_of(caught.value)


def lint_words(dockerfile: str, cuda: str = "12.4") -> str:
    """Give what the lint says of a Dockerfile whose wheels bring a CUDA."""
    facts = LintFacts(
        gone=load().gone,
        library_paths={"12.8.1": "/usr/local/cuda/lib64"},
        cuda=Cuda.parse(cuda),
        floor=Cuda.parse("12.0"),
    )
    return "\n".join(map(str, lint(dockerfile, facts)))


def base(image: str) -> str:
    """Give the first line of a Dockerfile on an image, pinned."""
    return f"FROM {image}@{DIGEST}\n"


# GPU against build


REFUSED = [
    (
        {"framework": "pytorch", "cuda": "12.6", "gpus": ["RTX 5090"]},
        ["its compute capability is 12.0", "sm_90", "the first build that runs there is 2.7.0 for CUDA 12.8",
         "imgbuild resolve --framework pytorch --cuda 12.8 --gpu 'RTX 5090'"],
    ),
    (
        {"framework": "pytorch", "cudnn": "<9.7", "gpus": ["B200"]},
        ["builds bring cuDNN 9.7.1.26", "its compute capability is 10.0"],
    ),
    (
        {"framework": "pytorch", "cuda": "13.0", "gpus": ["V100"]},
        ["its compute capability is 7.0", "sm_75",
         "the newest build that runs there is 2.14.1 for CUDA 12.6"],
    ),
    (
        {"framework": "pytorch==2.7.1", "cuda": "12.8", "gpus": ["V100"]},
        ["builds hold code for sm_75", "the first release after it is 2.8.0",
         "imgbuild resolve --framework pytorch==2.7.1 --cuda 12.6 --gpu V100"],
    ),
    (
        {"framework": "pytorch", "cuda": "12.8", "gpus": ["P100"]},
        ["its compute capability is 6.0", "sm_70",
         "imgbuild resolve --framework pytorch --cuda 12.6 --gpu P100"],
    ),
    (
        {"framework": "pytorch==2.11.0", "sources": ["pypi"], "driver": "570.133.20"},
        ["CUDA 13.x needs driver 580.65.06 or newer, 570.133.20 was named"],
    ),
    (
        {"framework": "pytorch==2.6.0", "gpus": ["B200"]},
        ["its compute capability is 10.0", "the first build that runs there is 2.7.0"],
    ),
    (
        {"framework": "pytorch", "arch": "arm64", "gpus": ["T4G"]},
        ["its compute capability is 7.5", "sm_80, sm_90", "no build known has code for it"],
    ),
    (
        {"framework": "pytorch==2.10.0", "arch": "arm64", "sources": ["pypi"]},
        ["the wheels for arm64 are CPU-only",
         "imgbuild resolve --framework pytorch==2.10.0 --arch arm64 --source pytorch"],
    ),
    (
        {"framework": "pytorch", "arch": "arm64", "gpus": ["Jetson Orin"]},
        ["its compute capability is 8.7", "no build known has code for it"],
    ),
    (
        {"framework": "pytorch", "cuda": "11.8", "driver": "450.51.06"},
        ["CUDA 11.x needs driver 450.80.02 or newer, 450.51.06 was named", "--driver 450.80.02"],
    ),
    (
        {"framework": "pytorch", "gpus": ["K80"], "driver": "525.60.13"},
        ["up to branch R470", "--gpu K80 --driver 470"],
    ),
    (
        {"framework": "pytorch", "gpus": ["V100"], "driver": "590.44"},
        ["up to branch R580", "R590 is not among the drivers that support V100"],
    ),
    (
        {"framework": "pytorch==2.4.1", "cudnn": "8"},
        ["builds bring cuDNN 9.1.0.70", "the last release before it is 2.3.1"],
    ),
    (
        {"framework": "pytorch==2.4.1", "python": "3.13"},
        ["wheels are for Python 3.8, 3.9, 3.10, 3.11 and 3.12", "the first release after it is 2.5.0"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "words"),
    REFUSED,
    ids=["1", "2", "3", "4", "5", "6", "7", "8-gpu", "8-cpu", "9", "14", "18", "19", "23", "36"],
)
def test_a_refusal_says_what_would_have_spared_the_thread(
    matrix: Matrix, request_: dict[str, Any], words: list[str]
) -> None:
    """The fact on both sides, the numbers, and a command that works: by number of the incompatibility."""
    said = refused(matrix, **request_)
    for one in words:
        assert one in said
    assert "grade" in said, "each fact says where it is from"


def test_2_no_blackwell_build_has_a_cudnn_without_its_code(matrix: Matrix) -> None:
    """Every build with machine code for Blackwell brings cuDNN 9.7 or newer, whose code is there too."""
    found = 0
    for _, build in builds(matrix):
        wheels = build.wheels.get("x86_64")
        if wheels and build.cudnn and any(target.text == "sm_100" for target in wheels.cubin):
            found += 1
            assert build.cudnn >= Version("9.7")
            code = matrix.cudnn[str(build.cudnn)].code.get(f"cu{build.cuda.major if build.cuda else 0}")
            assert code is None or code_on(matrix, code.sass, code.ptx, Capability.parse("10.0"))
    assert found


def test_8_a_cpu_only_wheel_is_a_failed_check() -> None:
    """An image that promises CUDA and holds a torch without it fails `env.framework`, with the reason."""
    manifest = Manifest(identifier="x", framework="pytorch", framework_version="2.10.0", cuda="13.0")
    evidence = {"torch": "2.10.0+cpu", "cuda": None}
    (problem,) = pytorch_env._build_problems(Context(manifest=manifest), evidence)
    assert problem.summary == "torch is a CPU-only build, the manifest says CUDA 13.0"
    assert "everything would run on the CPU without an error" in str(problem.diagnosis)


def test_10_a_wheel_without_the_gpus_code_fails_with_the_request_that_helps() -> None:
    """The check looks at what the wheel holds, since torch itself only warns."""
    gpu = {"name": "RTX 5090", "capability": "12.0"}
    problem = pytorch_gpu._no_code(gpu, ["sm_80", "sm_90"])
    assert pytorch_gpu.code_for((12, 0), ["sm_80", "sm_90"]) is None
    assert problem.summary == "no code for RTX 5090 (12.0)"
    assert "`no kernel image is available`" in str(problem.diagnosis)
    assert problem.next_step == "imgbuild resolve --framework pytorch --gpu sm_120"


def test_13_gb10_is_served_by_code_of_its_kin(matrix: Matrix) -> None:
    """sm_121 runs the code for sm_120; which cuDNN releases hold sm_121 of their own is a fact."""
    stack = ask(matrix, "pytorch", arch="arm64", gpus=["GB10"])
    assert "12.1" in map(str, stack.compute_capabilities)
    own = {
        version
        for version, row in matrix.cudnn.items()
        for code in row.code.values()
        if any(target.text == "sm_121" for target in code.sass)
    }
    assert "9.20.0.48" in own
    assert "9.28.0.42" not in own


# Driver against CUDA


def test_14_the_image_says_its_driver_floor() -> None:
    """A label each for the floor and for the packaged driver, which nothing in the image demands."""
    text = rendered().dockerfile
    assert 'io.imgbuild.driver.min="525.60.13"' in text
    assert 'io.imgbuild.driver.packaged="530.30.02"' in text
    assert [line for line in text.splitlines() if "530." in line and "driver.packaged" not in line] == []


def test_15_the_symptom_of_ptx_from_a_newer_toolkit_is_named() -> None:
    """Error 222 is told as what it is: machine code runs, compiled code does not."""
    found = symptoms.find("CUDA error: the provided PTX was compiled with an unsupported toolchain.")
    assert found
    assert "minor-version compatibility does not cover JIT" in found.diagnosis
    assert symptoms.cuda_error(222)[1] == found.diagnosis


def test_16_the_gate_of_the_image_is_the_floor_of_the_major() -> None:
    """Our images ask for CUDA 12.0 of the driver; a packaged gate or one that is stricter is an error."""
    assert 'NVIDIA_REQUIRE_CUDA="cuda>=12.0"' in rendered().dockerfile
    said = lint_words(base("nvidia/cuda:12.6.3-runtime-ubuntu22.04") + "ENV LD_LIBRARY_PATH=\n" + END)
    assert "the gate of the base" in said
    said = lint_words(base("debian:12") + 'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.6"\n' + END)
    assert "is stricter than `cuda>=12.0`" in said


def test_17_cuda_compat_is_kept_out() -> None:
    """The package is an error with error 804 by name, and so is its folder on the library path."""
    said = lint_words(base("debian:12") + "RUN apt-get install -y cuda-compat-12-4\n" + END)
    assert "`cuda-compat-12-4` brings parts of the driver" in said
    assert "error 804 on GeForce" in said
    said = lint_words(base("debian:12") + "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat\n" + END)
    assert "LD_LIBRARY_PATH holds `/usr/local/cuda/compat`" in said
    found = symptoms.find("RuntimeError: forward compatibility was attempted on non supported HW")
    assert found
    assert "cuda-compat (forward compatibility) was found first" in found.diagnosis
    assert "the driver alone may be new enough" in str(found.next_step)


def test_18_19_the_end_of_a_gpus_drivers_is_said_beforehand(matrix: Matrix) -> None:
    """A stack for a K80 or V100 says which driver branch is the last; a B200 has none."""
    assert (
        "K80: R470 is the last driver branch that supports it" in ask(matrix, "pytorch", gpus=["K80"]).notes
    )
    assert (
        "V100: R580 is the last driver branch that supports it" in ask(matrix, "pytorch", gpus=["V100"]).notes
    )
    assert not any("last driver" in note for note in ask(matrix, "pytorch", gpus=["B200"]).notes)


def test_20_nvls_on_an_old_driver_is_told_from_nccls_log() -> None:
    """`invalid argument` says nothing; NCCL's warning about NVLS does, and the switch is named."""
    log = "h [0] NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 1"
    found = nccl_log.cause(log + "\nNCCL error: invalid argument")
    assert found
    assert "NVLS" in found.diagnosis
    assert "NCCL_NVLS_ENABLE=0" in str(found.next_step)


# cuDNN, NCCL, toolkit wheels


@pytest.mark.parametrize(
    ("framework", "line", "words"),
    [
        ("pytorch==2.4.1", "onnxruntime-gpu==1.18.1", ["cuDNN 9", "falls back to the CPU without an error"]),
        ("pytorch==2.3.1", "onnxruntime-gpu==1.19.2", ["cuDNN 8", "falls back to the CPU without an error"]),
        ("pytorch==2.4.1", "nvidia-cudnn-cu12==9.28.0.42", ["nvidia-cudnn-cu12==9.1.0.70"]),
        ("pytorch==2.4.1", "nvidia-nccl-cu12>=2.21", ["nvidia-nccl-cu12==2.20.5"]),
        ("pytorch==2.10.0", "onnxruntime-gpu==1.27.0", ["onnxruntime-gpu!=1.27.0"]),
        ("pytorch==2.2.2", "numpy>=2", ["NumPy 1 ABI", "imgbuild lock --framework 'pytorch>=2.3.0'"]),
        ("pytorch==2.11.0", "setuptools>=82", ["setuptools"]),
        ("pytorch==2.14.1", "torchaudio==2.14.1", ["torchaudio==2.11.1"]),
    ],
    ids=["23", "23-old", "24-cudnn", "24-nccl", "29", "33", "38", "39"],
)
def test_a_requirement_that_would_break_the_stack_is_refused(
    matrix: Matrix, tmp_path: Path, framework: str, line: str, words: list[str]
) -> None:
    """The line with its place, the fact that it meets, and what to write instead: by number."""
    said = lock_refuses(matrix, tmp_path, line, framework)
    assert "requirements.txt:1" in said
    for one in words:
        assert one in said


def test_26_an_older_toolkit_before_the_wheels_is_named() -> None:
    """A toolkit's folder on LD_LIBRARY_PATH is an error, and its symbol clash has a diagnosis."""
    said = lint_words(base("debian:12") + "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64\n" + END)
    assert "LD_LIBRARY_PATH holds `/usr/local/cuda/lib64`" in said
    assert "undefined symbol" in said
    found = symptoms.find(
        "libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink"
    )
    assert found
    assert "`__nvJitLinkComplete_12_4` is missing in the copy that was found first" in found.diagnosis
    assert found.next_step == "take toolkit folders off LD_LIBRARY_PATH"


def test_28_the_metapackage_with_wrong_pins_carries_no_build(matrix: Matrix) -> None:
    """`cuda-toolkit` 12.5.1 pins parts of 12.5.0: it is a known-bad row, and no build stands on it."""
    bad = {
        version: release.wrong_pins
        for toolkit in matrix.toolkits.values()
        for version, release in toolkit.releases.items()
        if release.wrong_pins
    }
    assert "12.5.2.13" in bad["12.5.1"]
    assert not any(build.pins.get("cuda-toolkit", "").startswith(tuple(bad)) for _, build in builds(matrix))


def test_32_cudnn_is_read_from_the_wheel(matrix: Matrix) -> None:
    """The reason for the cuDNN of 2.11 names the metadata of the wheel, grade A, as its source."""
    stack = ask(matrix, "pytorch==2.11.0")
    (reason,) = [reason for reason in stack.reasons if reason.fact == "cudnn"]
    assert reason.value == "9.19.0.56"
    assert reason.because == "pinned exactly by the build"
    assert reason.source
    assert reason.source.startswith("grade A: pypi-meta")


# Python, NumPy, glibc


def test_33_numpy_2_under_an_old_torch_is_named_in_the_image_too() -> None:
    """Both messages that people meet have the same cause."""
    for text in (
        "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0",
        "Numpy is not available",
    ):
        found = symptoms.find(text)
        assert found
        assert found.diagnosis == "this torch was built for NumPy 1 and NumPy 2 is installed"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "torch._inductor.exc.TritonMissing: Cannot find a working triton installation.",
            "Triton is not installed",
        ),
        ("RuntimeError: Failed to find C compiler.", "no C compiler in the image"),
        ("/tmp/x.c:3:10: fatal error: Python.h: No such file or directory", "headers of Python"),
    ],
)
def test_36_what_torch_compile_lacks_is_named(text: str, words: str) -> None:
    """torch.compile needs triton, a compiler and Python's headers at run time."""
    found = symptoms.find(text)
    assert found
    assert words in found.diagnosis


def test_36_a_stack_without_triton_says_so(matrix: Matrix) -> None:
    """The requirement's own marker leaves triton out on a new Python: said before the build."""
    (note,) = [note for note in ask(matrix, "pytorch==2.5.1", python="3.13").notes if "triton" in note]
    assert "torch.compile does not work on the GPU" in note


def test_37_the_measured_glibc_counts(matrix: Matrix) -> None:
    """Wheels tagged manylinux1 need more than their tag says, and newer ones need 2.28: facts decide."""
    old = matrix.frameworks["pytorch"].releases["2.4.1"].builds["cu121"].wheels["x86_64"]
    new = matrix.frameworks["pytorch"].releases["2.8.0"].builds["cu128"].wheels["x86_64"]
    assert (str(old.glibc), str(old.glibc_measured)) == ("2.5", "2.17")
    assert str(new.glibc) == "2.28"
    assert all(glibc_fits(new, row) for row in matrix.bases.values())


@pytest.mark.parametrize("name", ["ubuntu-18.04", "centos-7"])
def test_37_bases_that_are_too_old_are_not_there(matrix: Matrix, name: str) -> None:
    """Distributions below the floor of current wheels are no bases, and the bases there are are named."""
    with pytest.raises(UsageError) as caught:
        ask(matrix, "pytorch", os=name)
    assert f"`--os {name}` is not in the matrix" in words_of(caught.value)
    assert "debian-12" in words_of(caught.value)


# AMP and images


def _torch_on(capability: tuple[int, int], name: str) -> SimpleNamespace:
    """Give as much of torch as the check asks before it runs anything, on a GPU that is not here."""
    cuda = SimpleNamespace(
        device_count=lambda: 1,
        get_device_capability=lambda _index: capability,
        get_device_name=lambda _index: name,
        is_bf16_supported=lambda: True,
    )
    return SimpleNamespace(cuda=cuda, bfloat16="bfloat16", backends=SimpleNamespace())


@pytest.mark.parametrize(("capability", "name"), [((7, 5), "Tesla T4"), ((7, 0), "Tesla V100-SXM2-16GB")])
def test_41_emulated_bf16_is_no_pass(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], name: str
) -> None:
    """Torch says that BF16 is supported on T4 and V100; the check says that it is emulated."""
    monkeypatch.setitem(sys.modules, "torch", _torch_on(capability, name))  # type: ignore[arg-type]
    with pytest.raises(Skipped) as caught:
        pytorch_amp.bf16(Context(device="cuda"))
    assert f"{name} ({capability[0]}.{capability[1]}) only emulates BF16" in str(caught.value.summary)
    assert "`torch.cuda.is_bf16_supported()`" in str(caught.value.diagnosis)
    assert caught.value.next_step == "use FP16 with gradient scaling on this GPU"


def test_42_formats_are_facts_of_a_gpu(matrix: Matrix) -> None:
    """FP8, MXFP8 and NVFP4 come with different GPUs: the matrix says which, nobody derives it."""
    cores = {name: find_gpu(matrix, name)[1].tensor_cores for name in ("A100", "L4", "H100", "B200")}
    assert "fp8" not in cores["A100"]
    for name in ("L4", "H100"):
        assert "fp8" in cores[name]
        assert "mxfp8" not in cores[name]
    assert {"fp8", "mxfp8", "nvfp4"} <= set(cores["B200"])


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("12.2.0-cudnn8-devel-ubuntu22.04", ["CUDA 12.2.0 has no image with cuDNN", "12.2.2-cudnn8-devel"]),
        ("12.4.0-cudnn-devel-ubuntu22.04", ["12.4.1-cudnn-devel-ubuntu22.04 by digest"]),
        ("12.7.0-devel-ubuntu22.04", ["there is no CUDA 12.7", "12.6 or 12.8"]),
        ("11.7.0-runtime-ubuntu22.04", ["removed", "nvidia/cuda:11.7.1"]),
    ],
)
def test_43_44_tags_that_do_not_exist_are_told(matrix: Matrix, tag: str, words: list[str]) -> None:
    """No tag is made by a formula: what was never there or was deleted is refused with what to take."""
    said = refused(matrix, "pytorch", os=f"nvidia/cuda:{tag}")
    in_a_template = lint_words(base(f"nvidia/cuda:{tag}") + END)
    for one in words:
        assert one in said
        assert one in in_a_template


def test_44_an_image_without_a_digest_is_refused() -> None:
    """A tag alone holds something else, or nothing, after the next clean-up."""
    said = lint_words("FROM nvidia/cuda:12.8.1-devel-ubuntu24.04 AS compiler\n" + base("debian:12") + END)
    assert "is not pinned by digest" in said


def test_47_the_compiler_is_held_against_the_toolkit_where_something_compiles(matrix: Matrix) -> None:
    """The newest gcc of nvcc is a fact beside each base's own gcc; images with nvcc are no variant yet."""
    assert matrix.bases["ubuntu-24.04"].gcc == 13
    assert (matrix.toolkits["12.3"].gcc_max, matrix.toolkits["12.4"].gcc_max) == (12, 13)
    with pytest.raises(UsageError) as caught:
        ask(matrix, "pytorch", variant="devel")
    assert "not the CUDA compiler" in words_of(caught.value)
    said = lint_words(base("debian:12") + "RUN nvcc -O3 x.cu -o x\n" + END)
    assert "TORCH_CUDA_ARCH_LIST" in said


# Other frameworks


@pytest.mark.parametrize("gpu", ["B200", "RTX 5090"])
def test_11_tensorflow_is_refused_on_blackwell(matrix: Matrix, gpu: str) -> None:
    """Its PTX would be compiled by a driver elsewhere; there it fails, so no build is offered."""
    words = refused(matrix, "tensorflow", gpus=[gpu])
    assert "no build of tensorflow runs on 1" in words
    assert "tensorflow/issues/97387" in words
    assert refused(matrix, "tensorflow==2.21.0", gpus=["H100", gpu])


def test_12_tensorflow_before_2_16_compiles_on_hopper(matrix: Matrix) -> None:
    """PTX alone is a note that names the GPU; from 2.16 on there is machine code."""
    assert "H100 runs this build's PTX only" in " ".join(
        ask(matrix, "tensorflow==2.15.1", gpus=["H100"]).notes
    )
    assert "PTX" not in " ".join(ask(matrix, "tensorflow==2.16.2", gpus=["H100"]).notes)


def test_24_another_framework_with_other_pins_is_refused(matrix: Matrix) -> None:
    """Two frameworks that pin CUDA apart cannot share an image: both versions of the library are named."""
    request = parse_request(framework="tensorflow==2.18.0")
    with pytest.raises(UnmetError) as caught:
        resolve(request, matrix, [Requirement("torch==2.6.0")])
    assert "tensorflow 2.18.0 asks for 12.5.82, torch 2.6.0 for 12.4.127" in words_of(caught.value)


@pytest.mark.parametrize("framework", ["jax", "tensorflow", "jax==0.6.2", "tensorflow==2.20.0"])
def test_25_no_cudnn_without_volta_code_for_a_v100(matrix: Matrix, framework: str) -> None:
    """The cuDNN is exact and holds sm_70 where a V100 is asked for; the ranges would take newer ones."""
    stack = ask(matrix, framework, gpus=["V100"])
    assert stack.cudnn is not None
    assert stack.packages["nvidia-cudnn-cu12"] == str(stack.cudnn)
    code = matrix.cudnn[str(stack.cudnn)].code["cu12"]
    assert code_on(matrix, code.sass, code.ptx, Capability.parse("7.0")) == "cubin"


@pytest.mark.parametrize("release", ["0.7.0", "0.7.1"])
def test_30_the_first_cuda_13_extras_of_jax_are_never_chosen(matrix: Matrix, release: str) -> None:
    """The extra exists, its plugin does not: refused with the first release that has one."""
    words = refused(matrix, f"jax=={release}", cuda="13.0")
    assert "jax-cuda13-plugin of this version does not" in words
    assert "--framework jax==0.7.2 --cuda 13.0" in words


def test_30_yanked_and_unpublished_releases_of_jax(matrix: Matrix) -> None:
    """0.4.32 only by name; four releases have no aarch64 plugin; old ones are on no index."""
    assert str(ask(matrix, "jax>=0.4.31,<0.4.33").version) == "0.4.31"
    assert any("yanked" in note for note in ask(matrix, "jax==0.4.32").notes)
    for release in ("0.4.25", "0.4.26", "0.4.38"):
        assert "for amd64" in refused(matrix, f"jax=={release}", arch="arm64")
    assert "on no package index" in refused(matrix, "jax==0.4.20")
    assert "never published" in refused(matrix, "jax==0.4.22")


@pytest.mark.parametrize("framework", ["jax==0.4.25", "tensorflow==2.14.0"])
def test_33_other_frameworks_of_the_numpy_1_abi(matrix: Matrix, tmp_path: Path, framework: str) -> None:
    """Their metadata takes NumPy 2, their binaries do not."""
    stack = ask(matrix, framework)
    assert Version(stack.packages["numpy"]) < Version("2")
    words = lock_refuses(matrix, tmp_path, "numpy>=2", framework)
    assert "NumPy 1 ABI" in words
    assert Version(ask(matrix, "jax==0.7.2").packages["numpy"]) >= Version("2")


@pytest.mark.parametrize(
    ("release", "numpy", "protobuf", "line"),
    [
        ("2.15.1", "1.26.4", "<5.0.0dev", "protobuf==5.29.6"),
        ("2.18.1", "2.0.2", "<6.0.0dev", "protobuf==6.33.0"),
        ("2.19.1", "2.1.3", "<6.0.0dev", "protobuf==6.33.0"),
        ("2.20.0", "2.4.6", ">=5.28.0", "protobuf==4.25.9"),
        ("2.21.0", "2.4.6", "<8.0.0", "protobuf==5.29.6"),
    ],
)
def test_34_ceilings_of_tensorflow(
    matrix: Matrix, tmp_path: Path, release: str, numpy: str, protobuf: str, line: str
) -> None:
    """NumPy is the newest below the cap, protobuf a constraint that a requirement is held against."""
    stack = ask(matrix, f"tensorflow=={release}")
    assert stack.packages["numpy"] == numpy
    assert protobuf in stack.constraints["protobuf"]
    assert "protobuf" in lock_refuses(matrix, tmp_path, line, f"tensorflow=={release}")


def test_35_keras_3_is_said(matrix: Matrix) -> None:
    """From 2.16 on a note names tf-keras; before there is none, and Keras 2 is a bound."""
    assert any("tf-keras" in note for note in ask(matrix, "tensorflow==2.16.2").notes)
    before = ask(matrix, "tensorflow==2.15.1")
    assert not any("tf-keras" in note for note in before.notes)
    assert before.constraints["keras"] == "<2.16,>=2.15.0"


def test_36_pythons_of_other_frameworks(matrix: Matrix) -> None:
    """TensorFlow has no wheel for 3.14; jax from 0.11 on needs 3.12; 2.10 needs what no base has."""
    assert "wheels are for Python" in refused(matrix, "tensorflow", python="3.14")
    assert "3.12" in refused(matrix, "jax==0.11.0", python="3.11")
    assert str(ask(matrix, "jax", python="3.11").version) == "0.10.2"
    words = refused(matrix, "tensorflow==2.10.1")
    assert "must come from the base image" in words
    assert "imgbuild resolve --framework tensorflow==2.14.1" in words


def test_45_the_release_that_does_not_find_the_gpu_says_so(matrix: Matrix) -> None:
    """2.16.1 is chosen by name alone, with a note."""
    assert any("63362" in note for note in ask(matrix, "tensorflow==2.16.1").notes)
    assert str(ask(matrix, "tensorflow>=2.16,<2.17").version) == "2.16.2"


def test_46_paddle_comes_from_its_own_index(matrix: Matrix) -> None:
    """What the default index has needs CUDA of the base; 3.x is on the index of the framework."""
    for release, cuda in (("2.4.2", "10.2"), ("2.6.2", "11.8")):
        words = refused(matrix, f"paddlepaddle=={release}")
        assert f"made for CUDA {cuda}" in words
        assert "paddlepaddle==3.0.0" in words
    stack = ask(matrix, "paddlepaddle==3.0.0")
    assert (stack.source, stack.package, str(stack.cuda)) == ("paddle", "paddlepaddle-gpu", "12.6")
