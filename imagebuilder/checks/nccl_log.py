"""Read NCCL's own log (NCCL_DEBUG=INFO): which transport carries the data, and what its warnings mean."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .result import Failed

# `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read`, `... [send] via NET/Socket/0`, `... via SHM/direct/direct`
_CHANNEL = re.compile(
    r"Channel \d+(?:/\d+)? ?: ?(\d+)\[\S+\] -> (\d+)\[\S+\](?: \[(?:send|receive)\])? via (\S+)"
)
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_NETWORK = re.compile(r"Using network (\S.*)")


class Cause(NamedTuple):
    """What a line of the log means, and what to do."""

    pattern: str
    diagnosis: str
    next_step: Optional[str]


CAUSES: Tuple[Cause, ...] = (
    Cause(
        r"/dev/shm|[Ss]hared memory|posix_fallocate|shmOpen"  # noqa: S108 - a pattern
        r"|nccl-\S+.*(?:No space|failed)|Error while creating shared",
        "shm too small: NCCL could not place its buffers in /dev/shm",
        "run with `--shm-size=1g` or `--ipc=host`",
    ),
    Cause(
        r"Cuda failure.*peer access|P2P.*(?:not supported|failed)|peer access is not supported"
        r"|invalid device pointer",
        "peer-to-peer between these GPUs does not work in this container",
        "check PCIe ACS and IOMMU on the host; `NCCL_P2P_DISABLE=1` for this host alone, never in the image",
    ),
    Cause(
        r"ibv_reg_mr|Call to ibv_\w+ failed|memlock",
        "InfiniBand cannot lock memory",
        "run with `--ulimit memlock=-1 --cap-add IPC_LOCK --device /dev/infiniband`",
    ),
    Cause(
        r"(?:get_mempolicy|mbind|set_mempolicy)|cuMem host|CUMEM_HOST",
        "the container's seccomp profile forbids NUMA calls",
        "run with `--cap-add SYS_NICE`, or set NCCL_CUMEM_HOST_ENABLE=0 on this host",
    ),
    Cause(
        r"no socket interface found|[Bb]ootstrap.*(?:no|not) .*interface|Call to (?:connect"
        r"|bind|socketBind)\S* .*failed|Connection refused",
        "NCCL found no network interface that it can use",
        "name it: NCCL_SOCKET_IFNAME==NAME",
    ),
    Cause(
        r"Duplicate GPU detected",
        "two ranks share one GPU, or ranks are on MIG slices of one GPU, which NCCL does not take",
        "one rank for each whole GPU",
    ),
    Cause(
        r"CUDA driver version is insufficient|Cuda failure (?:35|803|804|999)|Cuda failure 'unknown error'",
        "NCCL is newer than the driver can serve, or the driver lost the device",
        "see `gpu.driver`",
    ),
    Cause(
        r"NVLS|nvls|multicast",
        "NVLink SHARP (NVLS) could not be set up with this driver",
        "set NCCL_NVLS_ENABLE=0 on this host, or update the driver",
    ),
    Cause(
        r"system not yet initialized|Cuda failure 802",
        "fabric manager is not running on the host",
        "start nvidia-fabricmanager",
    ),
)


def read(text: str) -> Dict[str, Any]:
    """Give version, network, channels of each transport, the pairs that each carries, and warnings."""
    transports: Dict[str, int] = {}
    pairs: Dict[str, List[str]] = {}
    for sender, receiver, via in _CHANNEL.findall(text):
        kind = via.split("/")[0]
        transports[via] = transports.get(via, 0) + 1
        pair = "{}->{}".format(sender, receiver)
        if pair not in pairs.setdefault(kind, []):
            pairs[kind].append(pair)
    version, network = _VERSION.search(text), _NETWORK.search(text)
    return {
        "version": version.group(1) if version else None,
        "network": network.group(1).strip() if network else None,
        "transports": transports,
        "pairs": pairs,
        "warnings": warnings(text)[-10:],
    }


def warnings(text: str) -> List[str]:
    """Give the lines in which NCCL warns, without time and host."""
    found = [line.split("NCCL WARN", 1)[1].strip() for line in text.splitlines() if "NCCL WARN" in line]
    return list(dict.fromkeys(found))


def cause(text: str) -> Optional[Cause]:
    """Give the meaning of the log's warnings and errors; None when they say nothing known."""
    lines = [line for line in text.splitlines() if re.search(r"NCCL WARN|rror|failed|Cuda failure", line)]
    for known in CAUSES:
        if any(re.search(known.pattern, line) for line in lines):
            return known
    return None


def slow_path(pairs: Dict[str, List[str]]) -> Optional[str]:
    """Name the transport that carries data although a faster one could: anything but P2P within one host."""
    for kind in ("NET", "SHM"):
        if pairs.get(kind):
            return kind
    return None


def text(path: str) -> str:
    """Give what NCCL wrote to a file; empty where it wrote none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def wrong(names: List[str], evidence: Dict[str, Any]) -> Failed:
    """Give the failure for collectives of one process that give wrong numbers."""
    return Failed(
        "{} gives wrong numbers".format(names[0]),
        diagnosis="wrong over these devices: " + ", ".join(names),
        next_step="try NCCL_P2P_DISABLE=1 on this host, never in the image",
        evidence=evidence,
    )


def told(count: int, found: Dict[str, Dict[str, float]], log: Optional[Dict[str, Any]]) -> str:
    """Say in one line how fast the collectives of one process are, and what carries them."""
    speeds = ", ".join("{} {:g} GB/s".format(name, facts["bus_gb_s"]) for name, facts in found.items())
    if count == 1:
        speeds = ", ".join(found) + " right; one device has no bus"
    transports = sorted((log or {}).get("transports") or ())
    via = "; via {}".format(", ".join(transports)) if transports else ""
    return "{} devices: {}{}".format(count, speeds, via)
