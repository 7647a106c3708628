"""Ask CUDA libraries for their own version; none of these calls needs a GPU or a driver."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, Optional, Tuple

Numbers = Tuple[int, ...]


def ask(family: str, path: str) -> Optional[Numbers]:
    """Give the version that a loaded library answers; None where the family has no such call.

    Raises OSError when the file does not load.
    """
    asker = _ASKERS.get(family)
    if asker is None:
        return None
    try:
        return asker(ctypes.CDLL(path))
    except AttributeError:  # an older library without the call
        return None


def agrees(answer: Numbers, version: str) -> bool:
    """Whether an answer is the beginning of a distribution's version: (9, 1, 0) of 9.1.0.70."""
    parts = version.split("+")[0].split(".")
    return [str(number) for number in answer] == parts[: len(answer)]


def _cudnn(library: Any) -> Numbers:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    value = library.cudnnGetVersion()
    # Up to cuDNN 8: major * 1000 + minor * 100 + patch; from 9 on: major * 10000 + minor * 100 + patch.
    step = 10000 if value >= 90000 else 1000
    return (value // step, value % step // 100, value % 100)


def _nccl(library: Any) -> Numbers:
    value = ctypes.c_int(0)
    library.ncclGetVersion(ctypes.byref(value))
    # From NCCL 2.9 on: major * 10000 + minor * 100 + patch.
    step = 10000 if value.value >= 10000 else 1000
    return (value.value // step, value.value % step // 100, value.value % 100)


def _runtime(library: Any) -> Numbers:
    value = ctypes.c_int(0)
    library.cudaRuntimeGetVersion(ctypes.byref(value))
    return (value.value // 1000, value.value % 1000 // 10)


def _nvrtc(library: Any) -> Numbers:
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return (major.value, minor.value)


def _nvjitlink(library: Any) -> Numbers:
    major, minor = ctypes.c_uint(0), ctypes.c_uint(0)
    library.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor))
    return (major.value, minor.value)


def _property(function: str) -> Callable[[Any], Numbers]:
    """Give the asker of a library with a call that answers MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL."""

    def asker(library: Any) -> Numbers:
        found = []
        for kind in (0, 1, 2):
            value = ctypes.c_int(0)
            getattr(library, function)(kind, ctypes.byref(value))
            found.append(value.value)
        return tuple(found)

    return asker


_ASKERS: Dict[str, Callable[[Any], Numbers]] = {
    "libcudnn": _cudnn,
    "libnccl": _nccl,
    "libcudart": _runtime,
    "libnvrtc": _nvrtc,
    "libnvJitLink": _nvjitlink,
    "libcublas": _property("cublasGetProperty"),
    "libcufft": _property("cufftGetProperty"),
    "libcusparse": _property("cusparseGetProperty"),
    "libcusolver": _property("cusolverGetProperty"),
    "libcurand": _property("curandGetProperty"),
}
