"""Known words of failures, and what causes them: one table for exceptions, crashes and NCCL's log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Optional, Tuple


@dataclass(frozen=True)
class Symptom:
    r"""A pattern of output, its cause, and the next step; `\1` in the texts is the pattern's first group."""

    pattern: str
    diagnosis: str
    next_step: Optional[str] = None


_SHM = "run with `--shm-size=1g` or `--ipc=host`"
_NEWER_DRIVER = (
    "update the host's driver, or use an image of an older CUDA (`imgbuild resolve --driver VERSION`)"
)

# cudaError / CUresult numbers that containers meet, by what the number means for the person.
CUDA_ERRORS: Dict[int, Tuple[str, str, Optional[str]]] = {
    2: (
        "CUDA_ERROR_OUT_OF_MEMORY",
        "another process holds the GPU's memory",
        "look at `nvidia-smi` on the host",
    ),
    3: (
        "CUDA_ERROR_NOT_INITIALIZED",
        "the driver is not initialised",
        "restart the container",
    ),
    34: (
        "CUDA_ERROR_STUB_LIBRARY",
        "the stub libcuda of a toolkit was loaded instead of the driver's",
        "take the `stubs` folder off the library path",
    ),
    35: (
        "cudaErrorInsufficientDriver",
        "the host's driver is too old for the CUDA of this image",
        "update the host's driver, or use an image of an older CUDA (`imgbuild resolve --driver VERSION`)",
    ),
    46: (
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "another process has the GPU for itself (exclusive mode)",
        "look at `nvidia-smi` on the host",
    ),
    100: (
        "CUDA_ERROR_NO_DEVICE",
        "the driver shows no GPU: CUDA_VISIBLE_DEVICES hides it, or no device was given",
        "unset CUDA_VISIBLE_DEVICES; run with `--gpus all`",
    ),
    101: (
        "CUDA_ERROR_INVALID_DEVICE",
        "CUDA_VISIBLE_DEVICES names a GPU that is not there",
        "correct CUDA_VISIBLE_DEVICES",
    ),
    209: (
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "the framework holds no code for this GPU",
        "use a build that lists this GPU's target (`imgbuild resolve --gpu NAME`)",
    ),
    222: (
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the driver is older than the CUDA that compiled this PTX: minor-version compatibility does not "
        "cover JIT",
        "update the host's driver, or use an image of an older CUDA (`imgbuild resolve --driver VERSION`)",
    ),
    500: (
        "CUDA_ERROR_NOT_FOUND",
        "named symbol not found: on WSL2 the container toolkit is older than the Windows driver",
        "on WSL2 use container toolkit 1.14.4 or Docker Desktop 4.31 and later",
    ),
    802: (
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "NVSwitch machine whose fabric manager is not running or of another version than the driver; no "
        "image can mend it",
        "on the host: `systemctl start nvidia-fabricmanager`",
    ),
    803: (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda in the container is of another version than the kernel module: a baked or compat copy, "
        "or a driver update without reboot",
        "see `libs.driver`; reboot the host after a driver update",
    ),
    804: (
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "cuda-compat (forward compatibility) was found first, and this GPU is no data-centre GPU",
        "take /usr/local/cuda*/compat off the library path; the driver alone may be new enough",
    ),
    999: (
        "CUDA_ERROR_UNKNOWN",
        "the driver lost the device: nvidia-uvm not loaded, a suspended host, or device permissions that "
        "a daemon-reload took away",
        "on the host: `nvidia-modprobe -u`; restart the container, with CDI if it happens again",
    ),
}

SYMPTOMS: Tuple[Symptom, ...] = (
    Symptom(
        r"NVML: Driver/library version mismatch|driver/library version mismatch",
        "the host's driver libraries were updated, the kernel module was not",
        "reboot the host",
    ),
    Symptom(
        r"forward compatibility was attempted on non supported HW",
        *CUDA_ERRORS[804][1:],
    ),
    Symptom(
        r"unsupported display driver / cuda driver combination",
        *CUDA_ERRORS[803][1:],
    ),
    Symptom(
        r"system not yet initialized",
        *CUDA_ERRORS[802][1:],
    ),
    Symptom(
        r"provided PTX was compiled with an unsupported toolchain|UNSUPPORTED_PTX_VERSION",
        *CUDA_ERRORS[222][1:],
    ),
    Symptom(
        r"driver version is insufficient|NVIDIA driver on your system is too old",
        *CUDA_ERRORS[35][1:],
    ),
    Symptom(
        r"no kernel image is available|not compatible with the current PyTorch installation"
        r"|no longer supports? this GPU|which has less than .* compute capability",
        *CUDA_ERRORS[209][1:],
    ),
    Symptom(
        r"named symbol not found",
        *CUDA_ERRORS[500][1:],
    ),
    Symptom(
        r"No CUDA GPUs are available",
        *CUDA_ERRORS[100][1:],
    ),
    Symptom(
        r"CUDA unknown error|Failed to initialize NVML: Unknown Error",
        *CUDA_ERRORS[999][1:],
    ),
    Symptom(
        r"undefined symbol: (nccl\w+)",
        "an NCCL older than the pinned one is loaded: it lacks `\\1`",
        "keep one NCCL: the pinned nvidia-nccl wheel, no libnccl2",
    ),
    Symptom(
        r"undefined symbol: (\w*(?:nvJitLink|cusparse|cublas|cupti|cudnn|cusolver|cufft|nvrtc)\w*)",
        "two versions of CUDA's libraries are mixed: `\\1` is missing in the copy that was found first",
        "take toolkit folders off LD_LIBRARY_PATH",
    ),
    Symptom(
        r"undefined symbol: (_ZN?K?\w*(?:c10|torch|at)\w*)",
        "an extension was compiled for another torch: it wants `\\1`",
        "install the extension's build for this torch",
    ),
    Symptom(
        r"Loaded runtime CuDNN library: (\S+) but source was compiled with:? (\S+)"
        r"|cuDNN version incompatibility",
        "another cuDNN than the wheels' is found first",
        "take the folder of the other cuDNN off the library path",
    ),
    Symptom(
        r"(?:Could not load library|Unable to load any of \{) ?(libcudnn\w*[\w.]*)"
        r"|Unable to find an engine to execute"
        r"|CUDNN_STATUS_SUBLIBRARY",
        "a part of cuDNN is missing or of another version",
        "reinstall the pinned nvidia-cudnn wheel; see `libs.files`",
    ),
    Symptom(
        r"(lib[\w+.-]+\.so[\d.]*): cannot open shared object file",
        "`\\1` is not found by the loader",
        "see `libs.files` and `libs.resolve` for the package that brings it",
    ),
    Symptom(
        r"version `(GLIBC_[\d.]+)' not found",
        "the base is too old for this wheel: it needs `\\1`",
        "build on a newer base",
    ),
    Symptom(
        r"version `((?:GLIBCXX|CXXABI)_[\d.]+)' not found",
        "the C++ runtime is too old for this wheel: it needs `\\1`",
        "build on a newer base",
    ),
    Symptom(
        r"compiled using NumPy 1\.x cannot be run in|Numpy is not available|_ARRAY_API not found",
        "this torch was built for NumPy 1 and NumPy 2 is installed",
        "pip install 'numpy<2'",
    ),
    Symptom(
        r"Failed to find C compiler|No such file or directory: '?(?:cc|gcc|clang|g\+\+)'?"
        r"|No working C\+\+ compiler found"
        r"|InvalidCxxCompiler",
        "no C compiler in the image: torch.compile and Triton compile at run time",
        "add gcc and the C library's headers to the image",
    ),
    Symptom(
        r"Python\.h: No such file",
        "the headers of Python are missing: Triton compiles against them",
        "add the python3-dev package of this Python",
    ),
    Symptom(
        r"Cannot find a working triton installation|TritonMissing|No module named 'triton'",
        "Triton is not installed",
        "install the triton version that torch names",
    ),
    Symptom(
        r"No module named '(setuptools|distutils)'",
        "torch.compile imports `\\1`, which this image lacks: torch and Triton do not always require it",
        "pip install setuptools",
    ),
    Symptom(
        r"getpwuid\(\): uid not found",
        "the user id has no name here",
        "set USER and LOGNAME in the container",
    ),
    Symptom(
        r"No space left on device",
        "the disk or /dev/shm is full",
        "run with `--shm-size=1g` or `--ipc=host`",
    ),
    Symptom(
        r"Bus error|bus error|insufficient shared memory|shared memory \(shm\)",
        "shared memory (/dev/shm) is too small",
        "run with `--shm-size=1g` or `--ipc=host`",
    ),
    Symptom(
        r"[Oo]ut of memory|OutOfMemoryError",
        "the GPU's memory does not suffice, or others hold it",
        "look at `nvidia-smi` on the host",
    ),
    Symptom(
        r"Authorization required.*unsupported|Permission denied: '?(/\S*)",
        "`\\1` cannot be written by this user",
        "run with a writable HOME",
    ),
)


def find(text: str) -> Optional[Symptom]:
    """Give the first known symptom in the text, its texts completed; None when there is none."""
    for symptom in SYMPTOMS:
        found = re.search(symptom.pattern, text)
        if found:
            name = (found.group(1) if found.groups() else None) or "a file"
            return Symptom(
                symptom.pattern,
                symptom.diagnosis.replace("\\1", name),
                symptom.next_step and symptom.next_step.replace("\\1", name),
            )
    return None


def cuda_error(code: int) -> Tuple[str, str, Optional[str]]:
    """Give name, cause and next step of a CUDA error number."""
    return CUDA_ERRORS.get(
        code, ("CUDA error {}".format(code), "the driver answers with error {}".format(code), None)
    )
