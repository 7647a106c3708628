"""What logs and messages say: NCCL's own log, known symptoms, version answers."""

from __future__ import annotations

import pytest

from imagebuilder.checks import cuda_versions, nccl_log, symptoms

LOG = """
h:1:1 [0] NCCL INFO Bootstrap : Using eth0:172.17.0.2<0>
NCCL version 2.20.5+cuda12.4
h:1:9 [0] NCCL INFO Using network Socket
h:1:9 [0] NCCL INFO Channel 00/24 :    0   1
h:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
h:1:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
h:1:9 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct
h:1:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0
h:1:9 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE
"""


def test_transports_are_read_from_nccl_itself() -> None:
    """Version, network, every transport with its channels, and which pairs use it."""
    found = nccl_log.read(LOG)
    assert (found["version"], found["network"]) == ("2.20.5", "Socket")
    assert found["transports"] == {"P2P/CUMEM/read": 2, "SHM/direct/direct": 1, "NET/Socket/0": 1}
    assert found["pairs"] == {"P2P": ["0->1"], "SHM": ["1->0"], "NET": ["1->0"]}
    assert nccl_log.slow_path(found["pairs"]) == "NET"
    assert nccl_log.slow_path({"P2P": ["0->1"]}) is None


def test_the_older_form_of_the_log_is_read_too() -> None:
    """NCCL up to 2.14 writes bus ids and no channel of channels."""
    line = "h:1:9 [0] NCCL INFO Channel 00 : 0[1000] -> 1[2000] via P2P/IPC"
    assert nccl_log.read(line)["transports"] == {"P2P/IPC": 1}
    assert nccl_log.read("")["transports"] == {}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "h [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-AbC to 9637892 bytes",
            "shm too small",
        ),
        (
            "h [0] NCCL WARN Error while creating shared memory segment nccl-shm-recv (size 9637888)",
            "shm too small",
        ),
        (
            "h [0] NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'",
            "peer-to-peer",
        ),
        ("h [0] NCCL WARN Call to ibv_reg_mr failed", "InfiniBand"),
        ("h [0] NCCL WARN Bootstrap : no socket interface found", "network interface"),
        (
            "h [0] NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000",
            "share one GPU",
        ),
        ("h [0] NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152", "NVLS"),
        (
            "h [0] NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'",
            "driver",
        ),
        ("h [0] NCCL INFO Using network Socket", None),
    ],
)
def test_known_lines_of_nccl_have_a_cause(line: str, words: str | None) -> None:
    """`unhandled system error` says nothing; the warning before it does."""
    found = nccl_log.cause(line + "\ntorch.distributed.DistBackendError: NCCL error: unhandled system error")
    assert (found is None) == (words is None)
    if found and words:
        assert words in found.diagnosis


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CUDA error: forward compatibility was attempted on non supported HW", "cuda-compat"),
        (
            "system has unsupported display driver / cuda driver combination",
            "another version than the kernel",
        ),
        ("CUDA error: system not yet initialized", "fabric manager"),
        ("the provided PTX was compiled with an unsupported toolchain.", "JIT"),
        ("CUDA driver version is insufficient for CUDA runtime version", "too old"),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "no code for this GPU",
        ),
        ("libtorch_cuda.so: undefined symbol: ncclCommRegister", "`ncclCommRegister`"),
        (
            "libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
            "mixed",
        ),
        ("flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE", "another torch"),
        (
            "Could not load library libcudnn_cnn_infer.so.8. Error: libcudnn_cnn_infer.so.8: cannot open",
            "cuDNN",
        ),
        ("Unable to load any of {libcudnn_graph.so.9.1.0, libcudnn_graph.so.9}", "cuDNN"),
        ("ImportError: libcupti.so.12: cannot open shared object file: No such file", "`libcupti.so.12`"),
        ("A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0.0", "NumPy 1"),
        ("RuntimeError: Numpy is not available", "NumPy 1"),
        ("libc.so.6: version `GLIBC_2.34' not found (required by x)", "`GLIBC_2.34`"),
        (
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
            "C compiler",
        ),
        ("fatal error: Python.h: No such file or directory", "headers of Python"),
        ("ModuleNotFoundError: No module named 'setuptools'", "`setuptools`"),
        ("KeyError: 'getpwuid(): uid not found: 1042'", "no name"),
        ("Failed to initialize NVML: Driver/library version mismatch", "kernel module was not"),
        ("all is well", None),
    ],
)
def test_known_words_have_a_diagnosis(text: str, words: str | None) -> None:
    """Each message that costs people hours is named by its cause."""
    found = symptoms.find(text)
    assert (found is None) == (words is None)
    if found and words:
        assert words in found.diagnosis


@pytest.mark.parametrize(
    ("answer", "version", "agrees"),
    [
        ((9, 1, 0), "9.1.0.70", True),
        ((12, 1), "12.1.105", True),
        ((2, 18, 1), "2.20.5", False),
        ((12, 1), "12.10.1", False),
    ],
)
def test_answers_are_compared_number_by_number(answer: tuple[int, ...], version: str, agrees: bool) -> None:
    """12.1 is the beginning of 12.1.105 and not of 12.10.1."""
    assert cuda_versions.agrees(answer, version) == agrees
