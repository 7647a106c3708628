"""The lint of a rendered Dockerfile: each rule finds the bad form, leaves the good one, and says why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from locks import make_base, make_lock, make_wheel, rendered

from imagebuilder.errors import UsageError
from imagebuilder.lint import RULES, LintFacts, check, lint, lint_facts
from imagebuilder.matrix.facts import Gone
from imagebuilder.matrix.words import Cuda

DIGEST = "sha256:" + "a" * 64
GONE = {
    "nvidia/cuda:10.*": Gone(why="CUDA 10 tags were deleted", instead="a plain base", src="policy"),
    "nvidia/cuda:latest": Gone(why="the latest tag was removed", instead="a plain base", src="policy"),
}
FACTS = LintFacts(
    gone=GONE,
    library_paths={"12.8.1": "/usr/local/cuda/lib64"},
    cuda=Cuda.parse("12.9"),
    floor=Cuda.parse("12.0"),
)
NO_WHEELS = LintFacts(gone=GONE, library_paths=FACTS.library_paths, floor=FACTS.floor)
FROM = f"FROM debian:12@{DIGEST} AS base\n"
GATE = 'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.0"\n'
END = "USER 1000\nENTRYPOINT []\n"
CUDA_128 = f"FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04@{DIGEST}\n"
KEYRING = (
    "RUN curl -fsSLO https://x.invalid/cuda-keyring_1.1-1_all.deb && dpkg -i cuda-keyring_1.1-1_all.deb\n"
)
LIST = (
    'RUN echo "deb [signed-by=/k.gpg] https://x.nvidia.com/compute/cuda/repos/debian12/x86_64 /"'
    " > /etc/apt/sources.list.d/cuda.list\n"
)


def _rules(text: str, facts: LintFacts = FACTS) -> set[str]:
    return {problem.rule for problem in lint(text, facts)}


def _step(body: str) -> str:
    return f"{FROM}{body}\n{END}"


BAD = [
    # E3, gotcha 26: what is searched before the wheels' own libraries
    ("library-path", "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64"),
    ("library-path", "ENV LD_LIBRARY_PATH=/usr/local/cuda-12.1/lib64:$LD_LIBRARY_PATH"),
    ("library-path", "ENV LD_LIBRARY_PATH /opt/x:/usr/lib/x86_64-linux-gnu"),
    ("library-path", "ARG CUDA=/usr/local/cuda\nENV LD_LIBRARY_PATH=${CUDA}/lib64"),
    ("library-path", "ENV A=1 \\\n    # why\n    LD_LIBRARY_PATH='/opt/conda/lib'"),
    ("library-path", "ENV LD_LIBRARY_PATH=/opt/venv/lib/python3.11/site-packages/nvidia/cudnn/lib"),
    # B2, gotcha 16: the gate
    ("require-cuda", "ENV NVIDIA_DISABLE_REQUIRE=1"),
    ("require-cuda", "ENV NVIDIA_REQUIRE_CUDA=cuda>=12.1"),
    ("require-cuda", 'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.6 brand=tesla,driver>=470,driver<471"'),
    ("require-cuda", "ENV NVIDIA_REQUIRE_CUDA=cuda>=12.0,driver>=550"),
    # M2, M3, M12; A16, A9
    ("nccl-env", "ENV NCCL_P2P_DISABLE=1"),
    ("nccl-env", "ENV NCCL_SOCKET_IFNAME eth0"),
    ("nccl-env", "ENV NCCL_VERSION=2.20.5"),
    ("nccl-env", "ENV GLOO_SOCKET_IFNAME=eth0"),
    ("devices", "ENV CUDA_VISIBLE_DEVICES=0"),
    ("devices", "ENV NVIDIA_DRIVER_CAPABILITIES=all"),
    # H10, L3, G3, J1, J3
    ("debian-frontend", "ENV DEBIAN_FRONTEND=noninteractive"),
    ("python-path", "ENV PYTHONPATH=/workspace/src"),
    ("network-env", "ENV PIP_INDEX_URL=https://x.invalid/simple"),
    ("network-env", "ARG UV_DEFAULT_INDEX=https://x.invalid/simple"),
    ("network-env", "ENV https_proxy=http://proxy.invalid:3128"),
    # H3
    ("unpinned-image", "COPY --from=ghcr.io/x/uv:0.9 /uv /uv"),
    ("unpinned-image", "RUN --mount=type=bind,from=busybox,target=/b /b/bin/true"),
    # A8, B3, H13, gotcha 17
    ("driver-packages", "RUN apt-get update && apt-get install -y --no-install-recommends cuda-compat-12-4"),
    ("driver-packages", "RUN apt-get install -y nvidia-driver-550 2>&1 | tail -n 1"),
    ("driver-packages", "RUN apt install -y vim \\\n    libnvidia-compute-535=535.1 \\\n    curl"),
    ("driver-packages", "RUN bash -ec 'apt-get install -y nvidia-opencl-dev'"),
    ("driver-packages", "RUN <<EOF\napt-get update\napt-get install -y nvidia-utils-550\nEOF"),
    ("driver-packages", 'RUN ["apt-get", "install", "-y", "cuda-drivers"]'),
    ("driver-packages", "ARG P=libcuda1\nRUN apt-get install -y $P"),
    ("driver-packages", "RUN apt-get install -y cuda-12-1"),
    ("driver-packages", "RUN sh NVIDIA-Linux-x86_64-550.54.run --silent"),
    # H8
    ("apt-upgrade", "RUN apt-get update && apt-get -y upgrade"),
    ("apt-upgrade", "RUN DEBIAN_FRONTEND=noninteractive apt-get dist-upgrade -y"),
    ("apt-upgrade", "RUN dnf -y update"),
    # M6, H7
    ("second-provider", "RUN apt-get install -y libnccl2=2.20.5-1+cuda12.1"),
    ("second-provider", "RUN apt-get install -y libcudnn9-cuda-12"),
    # H5, H6
    ("apt-key", "RUN apt-key adv --fetch-keys https://x.invalid/3bf863cc.pub"),
    ("nvidia-source-twice", KEYRING + LIST),
    # J2
    ("hidden-failure", "RUN apt-get install -y git || true"),
    ("hidden-failure", "RUN git clone https://x.invalid/y || echo skipped"),
    # L1
    ("open-modes", "RUN chmod -R 777 /opt"),
    ("open-modes", "RUN mkdir /d && chmod a+rwx /d"),
    # J1, G3
    ("index-address", "RUN pip install --require-hashes -i https://x.invalid/simple -r r.txt"),
    (
        "index-address",
        "RUN uv pip install --require-hashes --extra-index-url=https://x.invalid/simple -r r.txt",
    ),
    ("index-address", "RUN pip config set global.index-url https://x.invalid/simple"),
    ("index-address", "RUN sed -i s/a/b/ /etc/apt/sources.list"),
    ("index-address", "COPY pip.conf /etc/pip.conf"),
    # G9, G1
    ("unhashed-install", "RUN pip install torch"),
    ("unhashed-install", "RUN python3 -m pip install --no-cache-dir -r requirements.txt"),
    ("unhashed-install", "RUN pip3 install --upgrade pip"),
    ("unhashed-install", "RUN /opt/uv/bin/uv pip install einops"),
    ("unhashed-install", "RUN pip install ."),
    # G11
    ("break-system-packages", "RUN pip install --break-system-packages --require-hashes -r r.txt"),
    ("break-system-packages", "ENV PIP_BREAK_SYSTEM_PACKAGES=1"),
    # E4, G13
    ("conda-and-pip", "RUN conda install -y -c conda-forge --override-channels mkl"),
    ("conda-and-pip", "RUN micromamba install -y -c conda-forge cudatoolkit=11.8"),
    ("conda-channel", "RUN conda install -y -c defaults ffmpeg"),
    ("conda-channel", "RUN conda install -y ffmpeg"),
    ("conda-channel", "RUN mamba create -n x -c pytorch ffmpeg"),
    ("conda-channel", "RUN curl -fsSO https://x.invalid/Miniconda3-py311-Linux-x86_64.sh"),
    # I10
    ("secret", "ARG HF_TOKEN"),
    ("secret", "ENV WANDB_API_KEY=abc"),
    ("secret", "ENV AWS_SECRET_ACCESS_KEY=abc"),
    ("secret", "ARG db_password=x"),
    ("secret", "RUN git clone https://me:pass@example.invalid/x"),
    ("secret", "RUN git clone https://oauth2token@example.invalid/x"),
    ("secret", "RUN hf auth login --token hf_abcdefghijklmnopqrstuvwx"),
    ("secret", "LABEL x=ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
    # J3
    ("unverified", "RUN curl -fsSLk https://x.invalid/y -o /y"),
    ("unverified", "RUN curl --insecure https://x.invalid/y -o /y"),
    ("unverified", "RUN wget --no-check-certificate https://x.invalid/y"),
    ("unverified", "RUN git config --global http.sslVerify false"),
    ("unverified", "RUN git -c http.sslVerify=false clone https://x.invalid/y"),
    ("unverified", "RUN export PYTHONHTTPSVERIFY=0 && ./x"),
    ("unverified", "RUN GIT_SSL_NO_VERIFY=1 git clone https://x.invalid/y"),
    ("unverified", "ENV NODE_TLS_REJECT_UNAUTHORIZED=0"),
    ("unverified", "ENV PIP_TRUSTED_HOST=x.invalid"),
    ("unverified", "RUN pip install --require-hashes --trusted-host x.invalid -r r.txt"),
    ("unverified", "RUN apt-get -o Acquire::https::Verify-Peer=false update"),
    ("unverified", "RUN apt-get install -y --allow-unauthenticated git"),
    ("unverified", 'RUN echo "deb [trusted=yes] https://x.invalid ./" > /etc/apt/sources.list.d/x.list'),
    ("unverified", "RUN conda config --set ssl_verify false"),
    # G9, H3
    ("unchecked-download", "ADD https://x.invalid/model.bin /model.bin"),
    # I9
    ("gpu-in-build", "RUN nvidia-smi"),
    ("gpu-in-build", 'RUN python -c "import torch; assert torch.cuda.is_available()"'),
    (
        "gpu-in-build",
        "RUN <<EOF python3\nimport tensorflow as tf\ntf.config.list_physical_devices('GPU')\nEOF",
    ),
    ("gpu-in-build", "RUN --device=nvidia.com/gpu=all make test"),
    # C6
    ("arch-list", "RUN pip install --require-hashes --no-build-isolation -r r.txt"),
    ("arch-list", "RUN cd /src && python setup.py install"),
    ("arch-list", "RUN pip wheel --no-deps git+https://x.invalid/apex"),
    ("arch-list", "RUN nvcc -O3 x.cu -o x"),
    # form
    ("form", "RUNN echo"),
    ("form", "RUN"),
]
GOOD = [
    "ENV LD_LIBRARY_PATH=",
    "ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/opt/own/lib",
    "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64\nENV LD_LIBRARY_PATH=",
    "RUN LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs make",
    "ENV NVIDIA_REQUIRE_CUDA=cuda>=11.0",
    'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.0 brand=tesla,driver>=470"',
    "ENV NVIDIA_DISABLE_REQUIRE=0",
    "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,video",
    "ARG DEBIAN_FRONTEND=noninteractive",
    "ENV PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false PIP_CONSTRAINT=/opt/imgbuild/constraints.txt",
    "ENV TOKEN_FILE=/run/secrets/token GIT_AUTHOR=me",
    "ARG https_proxy",
    "COPY --from=base /etc/passwd /p",
    "COPY --from=0 /etc/passwd /p",
    "RUN apt-get update && apt-get install -y --no-install-recommends ocl-icd-opencl-dev git || exit 1",
    "RUN apt-get install -y --only-upgrade openssl",
    "RUN apt-get install -y libnvidia-container-tools cuda-nvcc-12-1 cuda-keyring",
    "RUN dnf -y update openssl",
    "RUN grep -q x /etc/hosts || true",
    "RUN chmod 1777 /workspace && chmod u+rwx /x && chmod 755 /y",
    "RUN pip install --require-hashes --no-deps -r r.txt",
    "RUN uv pip sync --require-hashes r.txt",
    "RUN pip install --no-deps ./src",
    "RUN uv sync --locked",
    "RUN micromamba create -n x -c conda-forge ffmpeg",
    "RUN --mount=type=secret,id=HF_TOKEN,env=HF_TOKEN hf download x",
    "RUN git clone git@github.com:x/y && git clone ssh://git@example.invalid/x",
    "RUN curl -fsSL https://x.invalid/key.asc -o /key.asc",
    f"ADD --checksum={DIGEST} https://x.invalid/model.bin /model.bin",
    'ARG TORCH_CUDA_ARCH_LIST="8.0 9.0"\nRUN pip install --require-hashes --no-build-isolation -r r.txt',
    "RUN TORCH_CUDA_ARCH_LIST=9.0 python setup.py install",
    "RUN nvcc -gencode arch=compute_90,code=sm_90 x.cu",
    'RUN python -c "import torch; print(torch.version.cuda)"',
    "# nvidia-smi, apt-get upgrade, chmod 777 in a comment\nRUN true",
    "RUN true \\\n    # && apt-get upgrade\n    && true",
    KEYRING,
    LIST,
    "COPY <<EOF /etc/motd\nRUN apt-get upgrade\nEOF",
]


@pytest.mark.parametrize(("rule", "body"), BAD)
def test_finds_the_bad_form(rule: str, body: str) -> None:
    """Each bad form is found, by its own rule alone."""
    assert _rules(_step(body)) == {rule}


@pytest.mark.parametrize("body", GOOD)
def test_leaves_the_good_form(body: str) -> None:
    """What is right, or only mentions what is wrong, is left alone."""
    assert lint(_step(body), FACTS) == ()


WHOLE = [
    # H3, H1
    ("unpinned-image", f"FROM debian:12\n{END}"),
    ("unpinned-image", f"FROM debian\n{END}"),
    ("unpinned-image", f"ARG V=12\nFROM debian:${{V}}\n{END}"),
    ("unpinned-image", f"ARG IMAGE\nFROM $IMAGE\n{END}"),
    ("gone-tag", f"FROM nvidia/cuda:10.2-cudnn8-devel-ubuntu18.04@{DIGEST} AS x\n{FROM}{END}"),
    ("gone-tag", f"FROM mirror.invalid/nvidia/cuda@{DIGEST} AS x\n{FROM}{END}"),
    # J2, J4
    ("syntax-line", f"# syntax=docker/dockerfile:1\n{FROM}{END}"),
    ("syntax-line", f"# escape=\\\n#Syntax = docker/dockerfile:1\n{FROM}{END}"),
    # H12
    ("entrypoint", f"{FROM}USER 1000\n"),
    ("entrypoint", f'{FROM}USER 1000\nENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh"]\n'),
    # L1
    ("user", f"{FROM}ENTRYPOINT []\n"),
    ("user", f"{FROM}USER root\nENTRYPOINT []\n"),
    ("user", f"{FROM}USER 1000\nRUN true\nUSER 0:0\nENTRYPOINT []\n"),
    ("form", ""),
    ("form", "RUN echo no FROM"),
    ("conda-channel", f"FROM continuumio/miniconda3@{DIGEST}\n{END}"),
]


@pytest.mark.parametrize(("rule", "text"), WHOLE)
def test_finds_what_is_wrong_with_the_whole(rule: str, text: str) -> None:
    """What concerns the base, the start and the user is found in whole files."""
    assert _rules(text) == {rule}


@pytest.mark.parametrize(
    "text",
    [
        FROM + END,
        f"ARG V=12@{DIGEST}\nFROM debian:${{V}}\n{END}",
        f"FROM scratch\nADD base.tar /\n{END}",
        f"{FROM}USER 1000\nENTRYPOINT []\nFROM base\nRUN true\n",
        f"# escape=`\n{FROM}RUN true `\n  && true\n{END}",
        f"FROM nvidia/cuda:12.8.1-devel-ubuntu24.04@{DIGEST} AS c\n{FROM}COPY --from=c /x /x\n{END}",
    ],
)
def test_leaves_a_good_whole(text: str) -> None:
    """Digests behind arguments, scratch, inherited users and build stages on CUDA are right."""
    assert lint(text, FACTS) == ()


def test_the_base_shadows_the_wheels() -> None:
    """A base that puts an older CUDA before the wheels is an error; resetting the variable mends it."""
    found = lint(CUDA_128 + GATE + END, FACTS)
    assert [(p.rule, p.level, p.line) for p in found] == [
        ("cuda-twice", "warning", 1),
        ("library-path", "error", 1),
    ]
    assert found[1].what == "the base puts `/usr/local/cuda/lib64` on LD_LIBRARY_PATH"
    assert _rules(CUDA_128 + GATE + "ENV LD_LIBRARY_PATH=\n" + END) == {"cuda-twice"}
    assert "library-path" in _rules(CUDA_128 + GATE + "ENV LD_LIBRARY_PATH=/x:$LD_LIBRARY_PATH\n" + END)


def test_the_base_of_the_same_cuda_is_a_warning() -> None:
    """With the same CUDA in base and wheels it is only a second copy."""
    facts = LintFacts(library_paths=FACTS.library_paths, cuda=Cuda.parse("12.8"), floor=FACTS.floor)
    assert {p.level for p in lint(CUDA_128 + GATE + END, facts)} == {"warning"}
    check(CUDA_128 + GATE + END, facts)


def test_the_environment_of_the_locked_base_counts() -> None:
    """What a registry said of the locked base is used for that digest, and for no other."""
    facts = LintFacts(
        base_digest=DIGEST,
        base_environment={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64", "NVIDIA_REQUIRE_CUDA": "cuda>=12.8"},
        cuda=FACTS.cuda,
        floor=FACTS.floor,
    )
    assert _rules(FROM + END, facts) == {"library-path", "require-cuda"}
    assert _rules(FROM.replace("a" * 64, "b" * 64) + END, facts) == set()


def test_the_gate_of_a_cuda_base_has_to_be_replaced() -> None:
    """The gate of nvidia/cuda names the packaged CUDA, so an image on it needs its own."""
    text = f"FROM nvidia/cuda:12.6.3-runtime-ubuntu22.04@{DIGEST}\n{END}"
    assert _rules(text, NO_WHEELS) == {"require-cuda"}
    assert _rules(text.replace("USER", GATE + "USER"), NO_WHEELS) == set()


def test_a_cuda_base_has_the_source_of_nvidia_already() -> None:
    """Adding the repository to a CUDA base configures it twice."""
    text = f"FROM nvidia/cuda:12.6.3-runtime-ubuntu22.04@{DIGEST}\n{GATE}{LIST}{END}"
    assert _rules(text, NO_WHEELS) == {"nvidia-source-twice"}


def test_without_cuda_wheels_system_libraries_are_right() -> None:
    """Where no wheel brings CUDA, its libraries may come from the system or conda."""
    assert _rules(_step("RUN apt-get install -y libcudnn9-cuda-12"), NO_WHEELS) == set()
    assert _rules(_step("RUN micromamba install -y -c conda-forge mkl"), NO_WHEELS) == set()


def test_root_that_was_asked_for_is_right() -> None:
    """An image that is meant to run as root does not need a user."""
    assert _rules(f"{FROM}ENTRYPOINT []\n", LintFacts(root=True)) == set()


def test_a_gone_tag_tells_the_fact_and_its_source() -> None:
    """The reason, the replacement and the source come from the matrix."""
    problem = lint(f"FROM nvidia/cuda:10.2-base@{DIGEST} AS x\n{FROM}{END}", FACTS)[0]
    assert str(problem) == (
        "Dockerfile:1: gone-tag: `nvidia/cuda:10.2-base` is gone; CUDA 10 tags were deleted"
        " (failure mode H1, gotcha 44) [policy]; use a plain base"
    )


def test_a_secret_is_not_repeated() -> None:
    """A finding about a secret does not print it."""
    text = _step("RUN git clone https://me:hunter2@example.invalid/x\nENV API_KEY=hunter3")
    assert not any("hunter" in str(problem) for problem in lint(text, FACTS))


def test_lines_are_those_of_the_file() -> None:
    """A finding names the line where its instruction starts, behind comments and heredocs too."""
    lines = [
        "# one", "RUN <<A", "true", "A", "", "RUN true \\", "", "  # c", "  && true",
        "RUN chmod 777 \\", "  /x", "ENV NCCL_DEBUG=INFO",
    ]  # fmt: skip
    text = _step("\n".join(lines))
    assert [(p.line, p.rule) for p in lint(text, FACTS)] == [(11, "open-modes"), (13, "nccl-env")]


def test_an_exception_is_made_with_a_reason() -> None:
    """A comment directly above an instruction takes one rule away there, and only there."""
    ignored = "# imgbuild ignore=nccl-env: all our hosts have the same NIC\nENV NCCL_SOCKET_IFNAME==ib0\n"
    assert lint(_step(ignored), FACTS) == ()
    assert _rules(_step(ignored + "ENV NCCL_DEBUG=INFO")) == {"nccl-env"}
    assert _rules(_step(ignored.replace("ENV", "\nENV"))) == {"nccl-env"}


@pytest.mark.parametrize(
    "comment", ["# imgbuild ignore=nccl-env", "# imgbuild ignore", "# imgbuild ignore=nccl-en: x"]
)
def test_an_exception_without_a_reason_is_a_problem(comment: str) -> None:
    """Neither a missing reason nor a misspelt rule silently hides something."""
    assert _rules(_step(f"{comment}\nENV NCCL_DEBUG=INFO")) == {"ignore", "nccl-env"}


def test_check_lists_every_error_with_its_line() -> None:
    """One usage error tells all errors at once; with warnings alone it gives them."""
    with pytest.raises(UsageError) as caught:
        check(_step("ENV NCCL_DEBUG=INFO\nRUN chmod 777 /x"), FACTS)
    assert caught.value.what == "the rendered Dockerfile has 2 problems"
    lines = str(caught.value.why).splitlines()
    assert [line.split(" ")[:2] for line in lines] == [
        ["Dockerfile:2:", "nccl-env:"],
        ["Dockerfile:3:", "open-modes:"],
    ]
    warned = f"FROM nvidia/cuda:12.6.3-base@{DIGEST}\n{GATE}{END}"
    assert [problem.rule for problem in check(warned, FACTS)] == ["cuda-twice"]


@pytest.mark.parametrize("user", ["trainer", "root"])
@pytest.mark.parametrize("origin", ["bootstrap", "registry"])
def test_the_packaged_templates_have_no_problem(user: str, origin: str) -> None:
    """What is rendered without templates of one's own passes, with every kind of layer."""
    base = make_base(origin=origin, image="docker.io/library/debian:12" if origin == "registry" else None)
    lock = make_lock(base=base, user_wheels=(make_wheel("einops", "0.8.0"),))
    facts = lint_facts(lock, root=user == "root", gone=GONE, library_paths={})
    assert facts.cuda == Cuda.parse("12.1")
    assert facts.floor == Cuda.parse("12.0")
    assert check(rendered(lock, user=user).dockerfile, facts) == ()


def test_a_cpu_lock_brings_no_cuda() -> None:
    """Whether wheels bring CUDA is read from the locked wheels."""
    lock = make_lock(wheels=(make_wheel("torch", "2.4.1"),))
    assert lint_facts(lock, root=False, gone={}, library_paths={}).cuda is None


def test_every_rule_has_a_bad_form_here_and_says_why() -> None:
    """No rule is without a test, a failure that it prevents and a way out."""
    tested = {rule for rule, _ in (*BAD, *WHOLE)} | {"cuda-twice"}
    assert tested == RULES.keys()
    for rule in RULES.values():
        assert rule.name == "form" or re.search(r"failure modes? [A-N]\d|gotcha \d", rule.why), rule.name
        assert rule.fix


def test_the_manual_lists_every_rule() -> None:
    """docs/templates.md has a line for each rule and for no other."""
    manual = Path(__file__).parents[2] / "docs" / "templates.md"
    listed = re.findall(r"(?m)^\| `([a-z-]+)` \|", manual.read_text().partition("## The lint")[2])
    assert listed == list(RULES)


@given(st.text(alphabet=st.sampled_from(list("FROM RUN ENV\n\\\"'$`{}()<>|&;#=:@-xEOF")), max_size=200))
def test_no_text_breaks_the_lint(text: str) -> None:
    """Whatever a template gives, the lint ends with findings, not with an exception."""
    lint(text, FACTS)
    lint(f"{FROM}RUN {text}\n{END}", FACTS)
