"""What `docker info` says: one question that covers the engine, its store, its runtimes and buildx."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS = 6.0
# where a containerd that is not dockerd's child keeps images
_CONTAINERD = Path("/var/lib/containerd")
_CONTAINERD_STORE = ["driver-type", "io.containerd.snapshotter.v1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The Docker engine that the `docker` command reaches.

    `client` is the version of the command (None: not installed), `version` the engine's (None: it does
    not answer, `error` says why). `cdi_folders` are those the engine reads, `cdi_devices` what it found
    there (None: this engine does not say), `bridge` whether containers get a network by default.
    `content` are the folders that images fill, where the engine runs on this host.
    """

    client: str | None = None
    buildx: str | None = None
    error: str | None = None
    version: str | None = None
    containerd_store: bool = False
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    cgroup_driver: str | None = None
    rootless: bool = False
    cdi_folders: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] | None = None
    memory_bytes: int | None = None
    cores: int | None = None
    content: tuple[Path, ...] = ()
    proxy: str | None = None
    bridge: bool | None = None


def read_daemon(docker: Path | None) -> Daemon:
    """Ask the engine through the `docker` command, which knows contexts; waits at most 6 seconds."""
    if docker is None:
        return Daemon(error="there is no `docker` command on PATH")
    answer, error = _run(docker, "info", "--format", "{{json .}}")
    try:
        info = json.loads(answer)
    except ValueError:
        return Daemon(client="unknown", error=error or "`docker info` did not answer in JSON")
    client = info.get("ClientInfo") or {}
    plugins = {plugin.get("Name"): plugin.get("Version") for plugin in client.get("Plugins") or ()}
    known: dict[str, Any] = {
        "client": client.get("Version") or "unknown",
        "buildx": plugins.get("buildx"),
    }
    if not info.get("ServerVersion"):
        problems = info.get("ServerErrors") or [error or "no answer"]
        return Daemon(**known, error=problems[0])
    networks, _ = _run(docker, "network", "ls", "--filter", "driver=bridge", "--format", "{{.Name}}")
    return Daemon(**known, bridge="bridge" in networks.split(), **_engine(info))


def _engine(info: Mapping[str, Any]) -> dict[str, Any]:
    security = info.get("SecurityOptions") or ()
    discovered = info.get("DiscoveredDevices")
    return {
        "version": info["ServerVersion"],
        "containerd_store": _CONTAINERD_STORE in (info.get("DriverStatus") or ()),
        "runtimes": tuple(sorted(info.get("Runtimes") or ())),
        "default_runtime": info.get("DefaultRuntime"),
        "cgroup_driver": info.get("CgroupDriver"),
        "rootless": any("name=rootless" in option for option in security),
        "cdi_folders": tuple(info.get("CDISpecDirs") or ()),
        "cdi_devices": None if discovered is None else tuple(one.get("ID", "") for one in discovered),
        "memory_bytes": info.get("MemTotal"),
        "cores": info.get("NCPU"),
        "content": _content(info),
        "proxy": info.get("HttpsProxy") or info.get("HttpProxy") or None,
    }


def _content(info: Mapping[str, Any]) -> tuple[Path, ...]:
    """Give the folders that a build fills; none where the engine runs in a machine of its own."""
    folders = [Path(info["DockerRootDir"])] if info.get("DockerRootDir") else []
    if _CONTAINERD_STORE in (info.get("DriverStatus") or ()):
        folders.append(_CONTAINERD)
    return tuple(folder for folder in folders if folder.exists())


def _run(docker: Path, *arguments: str) -> tuple[str, str]:
    """Give stdout and the last line of stderr of a docker command, whatever its exit code."""
    import subprocess

    try:
        done = subprocess.run([docker, *arguments], capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return "", f"`docker {arguments[0]}` did not answer within {_SECONDS:.0f} s"
    except OSError as error:
        return "", str(error)
    return done.stdout, next(iter(reversed(done.stderr.strip().splitlines())), "")
