"""The driver's management library (NVML) through ctypes: what the driver itself says of its GPUs.

The numbers below are those of NVIDIA's `nvml.h`. Every call may fail on its own; a fact that could not
be read is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes
    from pathlib import Path

SONAME = "libnvidia-ml.so.1"
_TEXT = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlGpu:
    """One GPU; `capability` is text such as 8.0, `fabric` the state of its NVLink fabric where it has one."""

    name: str
    uuid: str
    capability: str | None
    memory_bytes: int | None
    mig: bool
    fabric: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvml:
    """What NVML answered: the driver's version and its GPUs, or why it would not start."""

    driver: str | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    error: str | None = None


def read_nvml(library: Path | str = SONAME) -> Nvml | None:
    """Ask NVML; None where the library does not exist or cannot be loaded.

    The first call on a host without persistence mode wakes the driver up and can take seconds: callers
    bound the wait.
    """
    import ctypes

    try:
        nvml = ctypes.CDLL(str(library))
    except OSError:
        return None
    if code := nvml.nvmlInit_v2():
        return Nvml(error=_error_text(nvml, code))
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            count.value = 0
        gpus = (_gpu(nvml, index) for index in range(count.value))
        return Nvml(driver=_driver(nvml), gpus=tuple(gpu for gpu in gpus if gpu is not None))
    finally:
        nvml.nvmlShutdown()


def _error_text(nvml: ctypes.CDLL, code: int) -> str:
    import ctypes

    nvml.nvmlErrorString.restype = ctypes.c_char_p
    text = nvml.nvmlErrorString(code)
    return text.decode(errors="replace") if text else f"NVML error {code}"


def _driver(nvml: ctypes.CDLL) -> str | None:
    import ctypes

    text = ctypes.create_string_buffer(_TEXT)
    return text.value.decode() if not nvml.nvmlSystemGetDriverVersion(text, _TEXT) else None


def _gpu(nvml: ctypes.CDLL, index: int) -> NvmlGpu | None:
    import ctypes

    class Memory(ctypes.Structure):
        _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

    handle = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
        return None
    name, uuid = ctypes.create_string_buffer(_TEXT), ctypes.create_string_buffer(_TEXT)
    memory, major, minor = Memory(), ctypes.c_int(), ctypes.c_int()
    mig, pending = ctypes.c_uint(), ctypes.c_uint()
    nvml.nvmlDeviceGetName(handle, name, _TEXT)
    nvml.nvmlDeviceGetUUID(handle, uuid, _TEXT)
    sized = not nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    capable = not nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    divided = _optional(nvml, "nvmlDeviceGetMigMode", handle, ctypes.byref(mig), ctypes.byref(pending))
    return NvmlGpu(
        name=name.value.decode(errors="replace"),
        uuid=uuid.value.decode(errors="replace"),
        capability=f"{major.value}.{minor.value}" if capable else None,
        memory_bytes=memory.total if sized else None,
        mig=divided and mig.value == 1,
        fabric=_fabric(nvml, handle),
    )


def _fabric(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> str | None:
    """Give the state of fabric registration; None on a GPU that has no fabric, or an older driver."""
    import ctypes

    class Fabric(ctypes.Structure):
        _fields_ = [
            ("cluster", ctypes.c_ubyte * 16),
            ("status", ctypes.c_int),
            ("clique", ctypes.c_uint),
            ("state", ctypes.c_ubyte),
        ]

    fabric = Fabric()
    if not _optional(nvml, "nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(fabric)):
        return None
    return {1: "not started", 2: "in progress", 3: "completed"}.get(fabric.state)


def _optional(nvml: ctypes.CDLL, function: str, *arguments: object) -> bool:
    """Call a function that older drivers do not have; True when it was there and answered."""
    try:
        return not getattr(nvml, function)(*arguments)
    except AttributeError:
        return False
