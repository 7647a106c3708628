"""Facts of this host, seen from inside the container: driver, device files, NVML, libcuda, /dev/shm."""

from __future__ import annotations

import ctypes
import glob
import os
import platform
import re
from typing import Any, Dict, List, Optional, Tuple

from .result import RUN_LINE, Context, Outcome

PROC_VERSION = "/proc/driver/nvidia/version"
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "LD_LIBRARY_PATH",
    "NVIDIA_TF32_OVERRIDE",
)


def files(dev: str = "/dev", proc_version: str = PROC_VERSION) -> Dict[str, Any]:
    """Give what device files and /proc say: nothing is loaded, nothing can crash."""
    return {
        "driver": kernel_driver(proc_version),
        "device_files": sorted(
            os.path.basename(path) for path in glob.glob(os.path.join(dev, "nvidia[0-9]*"))
        ),
        "nvidiactl": os.path.exists(os.path.join(dev, "nvidiactl")),
        "nvidia_uvm": os.path.exists(os.path.join(dev, "nvidia-uvm")),
        "wsl": os.path.exists(os.path.join(dev, "dxg")),
        "shm_bytes": shm_bytes(os.path.join(dev, "shm")),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
    }


def kernel_driver(path: str = PROC_VERSION) -> Optional[str]:
    """Give the version of the loaded kernel module, `550.54.15`; None where there is none (WSL2 too)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            first = file.readline()
    except OSError:
        return None
    found = re.search(r"Kernel Module[^\d]*?(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)?)", first)
    return found.group(1) if found else None


def shm_bytes(path: str = "/dev/shm") -> Optional[int]:  # noqa: S108
    """Give the size of the shared-memory file system in bytes."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return stat.f_frsize * stat.f_blocks


def probe(context: Context) -> Outcome:
    """Give all facts; loads libcuda and NVML, so it belongs into a process of its own."""
    facts = files()
    facts["nvml"] = nvml()
    facts["cuda"] = cuda()
    if facts["driver"] is None:
        facts["driver"] = facts["nvml"].get("driver")
    return Outcome("host facts", facts)


def offers_gpu(facts: Dict[str, Any]) -> bool:
    """Say whether a GPU was given to this container, whether or not it works."""
    return bool(
        facts.get("device_files") or (facts.get("wsl") and facts.get("cuda", {}).get("library"))
        or facts.get("cuda", {}).get("devices")
    )  # fmt: skip


def why_no_gpu(facts: Dict[str, Any]) -> Tuple[str, str]:
    """Tell "no --gpus" from "no driver on the host", and give the next step."""
    hidden = facts.get("environment", {}).get("NVIDIA_VISIBLE_DEVICES")
    if hidden in ("void", "none", "") and (facts.get("driver") or facts.get("nvidiactl")):
        return "NVIDIA_VISIBLE_DEVICES={} keeps every GPU out of the container".format(hidden), RUN_LINE
    if facts.get("driver") or facts.get("nvidiactl"):
        return (
            "the host has an NVIDIA driver ({}), but the container was started without a GPU request".format(
                facts.get("driver") or "version unknown"
            ),
            RUN_LINE,
        )
    if facts.get("wsl"):
        return (
            "WSL2 without the driver's libraries: the container was started without a GPU request",
            RUN_LINE,
        )
    return (
        "no NVIDIA driver is loaded on this host, or it is hidden from the container",
        "on a host with a GPU and its driver: {}".format(RUN_LINE),
    )


def cuda() -> Dict[str, Any]:
    """Ask libcuda, without a framework: which file, its version, how initialisation ends, how many GPUs."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"library": None, "error": str(error)}
    facts: Dict[str, Any] = {"library": mapped_file("libcuda.so")}
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    facts["init"] = library.cuInit(0)
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        facts["supports_cuda"] = "{}.{}".format(version.value // 1000, version.value % 1000 // 10)
    if facts["init"] == 0 and library.cuDeviceGetCount(ctypes.byref(count)) == 0:
        facts["devices"] = count.value
    return facts


def mapped_file(name: str) -> Optional[str]:
    """Give the path from which this process has loaded a library whose file name begins with `name`."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").split(" ", 5)[-1].strip()
            if path.startswith("/") and os.path.basename(path).startswith(name):
                return path
    return None


def nvml() -> Dict[str, Any]:
    """Ask NVML for the driver and every GPU of the container: name, capability, memory in bytes, MIG."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return {"error": str(error)}
    code = library.nvmlInit_v2()
    if code != 0:
        return {"error": _nvml_error(library, code), "code": code}
    facts: Dict[str, Any] = {"driver": None, "devices": []}
    text, count = ctypes.create_string_buffer(96), ctypes.c_uint(0)
    if library.nvmlSystemGetDriverVersion(text, 96) == 0:
        facts["driver"] = text.value.decode("ascii", "replace")
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
        facts["devices"] = [_nvml_device(library, index) for index in range(count.value)]
    library.nvmlShutdown()
    return facts


def _nvml_error(library: Any, code: int) -> str:
    library.nvmlErrorString.restype = ctypes.c_char_p
    return (library.nvmlErrorString(code) or b"unknown").decode("ascii", "replace")


class _Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


def _nvml_device(library: Any, index: int) -> Dict[str, Any]:
    handle, memory = ctypes.c_void_p(), _Memory()
    if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
        return {"index": index, "error": "NVML gives no handle"}
    name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
    major, minor, mig, pending = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint(), ctypes.c_uint()
    library.nvmlDeviceGetName(handle, name, 96)
    library.nvmlDeviceGetUUID(handle, uuid, 96)
    library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    if hasattr(library, "nvmlDeviceGetMigMode"):
        library.nvmlDeviceGetMigMode(handle, ctypes.byref(mig), ctypes.byref(pending))
    return {
        "index": index,
        "name": name.value.decode("utf-8", "replace"),
        "uuid": uuid.value.decode("ascii", "replace"),
        "memory_bytes": memory.total,
        "compute_capability": "{}.{}".format(major.value, minor.value),
        "mig": bool(mig.value),
    }


def visible_of(total: int, variable: Optional[str]) -> Optional[int]:
    """Say how many of `total` GPUs CUDA_VISIBLE_DEVICES leaves; None when it names something unusual.

    CUDA takes indexes or UUIDs and stops at the first entry that it cannot use.
    """
    if variable is None:
        return total
    seen: List[str] = []
    for entry in (part.strip() for part in variable.split(",")):
        if entry.startswith("GPU-") and len(entry) > 4:
            seen.append(entry)
        elif entry.startswith("MIG-"):
            return None
        elif re.fullmatch(r"\d+", entry) and int(entry) < total:
            seen.append(str(int(entry)))
        else:
            break
    return len(set(seen)) if len(set(seen)) == len(seen) else 0
