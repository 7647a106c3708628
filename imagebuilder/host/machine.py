"""The rest of a host: its system, memory, cores, limits, network interface and disks.

As in `imagebuilder.host`, every read takes the root folder of the host.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imagebuilder.host import LIVE, glob, processes, text

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROGRAM_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A host apart from its GPUs; bytes where a size is meant, None where a fact could not be read.

    `memlock_bytes` is the limit of locked memory that the engine's process hands to containers (-1:
    none), `interface` the one with the default route, `daemon_config` Docker's daemon.json as it is on
    disk and `daemon_config_error` why it could not be read.
    """

    system: str = ""
    wsl: bool = False
    inside_container: bool = False
    systemd: bool = False
    superuser: bool = False
    memory_bytes: int | None = None
    cores: int | None = None
    shm_bytes: int | None = None
    memlock_bytes: int | None = None
    infiniband: tuple[str, ...] = ()
    interface: str | None = None
    mmdebstrap: Path | None = None
    daemon_config: Mapping[str, Any] = field(default_factory=dict)
    daemon_config_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The free bytes where `folder` lies or will lie, and what it is for."""

    purpose: str
    folder: Path
    free_bytes: int
    device: int


def read_machine(root: Path = LIVE) -> Machine:
    """Read the host whose files lie under `root`; never raises."""
    config, config_error = _daemon_config(root / "etc/docker/daemon.json")
    release = text(root / "proc/sys/kernel/osrelease").lower()
    found = re.search(r'^ID="?(\w+)', text(root / "etc/os-release"), re.MULTILINE)
    return Machine(
        system=found[1] if found else "",
        wsl="microsoft" in release or (root / "dev/dxg").exists(),
        inside_container=(root / ".dockerenv").exists() or (root / "run/.containerenv").exists(),
        systemd=(root / "run/systemd/system").exists(),
        superuser=os.geteuid() == 0,
        memory_bytes=_memory(root),
        cores=text(root / "proc/cpuinfo").count("\nprocessor\t") + 1
        if (root / "proc/cpuinfo").exists()
        else None,
        shm_bytes=_size(root / "dev/shm"),
        memlock_bytes=_memlock(root),
        infiniband=tuple(path.name for path in glob(root, "sys/class/infiniband/*")),
        interface=_default_interface(root),
        mmdebstrap=find_program(root, "mmdebstrap"),
        daemon_config=config,
        daemon_config_error=config_error,
    )


def find_program(root: Path, name: str) -> Path | None:
    """Find a program under `root`, on the live host by PATH as well."""
    if root == LIVE and (found := shutil.which(name)):
        return Path(found)
    places = (root / folder / name for folder in _PROGRAM_FOLDERS)
    return next((place for place in places if place.is_file() and os.access(place, os.X_OK)), None)


def read_disk(purpose: str, folder: Path) -> Disk | None:
    """Read what is free where `folder` lies, or would lie: its nearest parent that can be looked at."""
    for place in (folder, *folder.parents):
        try:
            stat, device = os.statvfs(place), place.stat().st_dev
        except OSError:
            continue
        return Disk(purpose=purpose, folder=folder, free_bytes=stat.f_bavail * stat.f_frsize, device=device)
    return None


def _memory(root: Path) -> int | None:
    found = re.search(r"^MemTotal:\s+(\d+) kB", text(root / "proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _size(folder: Path) -> int | None:
    try:
        stat = os.statvfs(folder)
    except OSError:
        return None
    return stat.f_blocks * stat.f_frsize


def _memlock(root: Path) -> int | None:
    """Read the soft limit of dockerd; containers inherit it unless told otherwise."""
    for process in processes(root, "dockerd"):
        found = re.search(r"^Max locked memory\s+(\w+)", text(process / "limits"), re.MULTILINE)
        if found:
            return -1 if found[1] == "unlimited" else int(found[1])
    return None


def _default_interface(root: Path) -> str | None:
    for line in text(root / "proc/net/route").splitlines():
        interface, destination, *_ = [*line.split(), "", ""]
        if destination == "00000000":
            return interface
    return None


def _daemon_config(path: Path) -> tuple[Mapping[str, Any], str | None]:
    if not path.exists():
        return {}, None
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        return {}, str(error)
    return (config, None) if isinstance(config, dict) else ({}, "it is not a JSON object")
