"""Findings on what a build needs: engine, image store, buildx, network, disk, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.doctor import fixes
from imagebuilder.doctor.finding import Facts, Finding, NeededFor, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1024**3
# uv, the engine's compression and the smoke checks side by side stay under this
_MEMORY_WANTED = 4 * GIB


def build_findings(facts: Facts, need_bytes: int) -> Iterator[Finding]:
    """Give the findings on the engine and the machine; `need_bytes` is what one build fills on a disk."""
    yield _engine(facts)
    if facts.daemon.version is not None:
        yield _store(facts)
        yield _network(facts)
    yield _buildx(facts)
    yield from _disks(facts, need_bytes)
    yield _memory(facts)


def _finding(
    name: str,
    status: Status,
    what: str,
    why: str | None = None,
    fix: str | None = None,
    for_: NeededFor = "build",
) -> Finding:
    return Finding(id=name, needed_for=for_, status=status, what=what, why=why, fix=fix)


def _engine(facts: Facts) -> Finding:
    daemon, machine = facts.daemon, facts.machine
    if daemon.version is not None:
        return _finding("engine", "ok", f"Docker {daemon.version} answers (client {daemon.client})")
    if "daemon" in facts.unanswered:
        what, fix = (
            "the Docker engine did not answer in time",
            fixes.as_root(machine, fixes.restart_docker(machine)),
        )
    elif daemon.client is None:
        what = "Docker is not installed"
        fix = fixes.install_engine(machine)
    elif "permission denied" in (daemon.error or ""):
        what = "this user may not use the Docker engine"
        fix = fixes.as_root(machine, 'usermod -aG docker "$USER"') + "\nnewgrp docker"
    elif " at " in (daemon.error or "") and fixes.LOCAL_ENGINE not in (daemon.error or ""):
        what = "no Docker engine answers where DOCKER_HOST or the context of `docker` points"
        fix = "docker context ls\nunset DOCKER_HOST DOCKER_CONTEXT\ndocker context use default"
    else:
        what, fix = "no Docker engine answers", fixes.as_root(machine, fixes.start_docker(machine))
    return _finding("engine", "fail", what, daemon.error or "images are built and tested by an engine", fix)


def _store(facts: Facts) -> Finding:
    if facts.daemon.containerd_store:
        return _finding("store", "ok", "images lie in the containerd store, which keeps their digests")
    return _finding(
        "store",
        "fail",
        f"Docker {facts.daemon.version} runs without the containerd image store",
        "the older store writes manifests anew, so an image would lose the digest that it was built with",
        fixes.daemon_setting(facts.machine, {"features": {"containerd-snapshotter": True}}),
    )


def _network(facts: Facts) -> Finding:
    if facts.daemon.bridge:
        return _finding("network", "ok", "containers get a network (bridge)")
    return _finding(
        "network",
        "warn",
        "the engine has no default bridge, so containers have no network of their own",
        "it was started with `--bridge=none`, or its bridge could not be created (iptables)",
        "docker network ls\ngrep -s bridge /etc/docker/daemon.json",
    )


def _buildx(facts: Facts) -> Finding:
    if facts.daemon.buildx:
        return _finding("buildx", "ok", f"buildx {facts.daemon.buildx}")
    if "daemon" in facts.unanswered:
        return _finding("buildx", "skip", "not looked at: `docker info` did not answer")
    return _finding(
        "buildx",
        "fail",
        "Docker's buildx plugin is missing",
        "images are built by BuildKit, which `docker` drives through buildx alone",
        fixes.install_buildx(facts.machine, facts.daemon.version),
    )


def _disks(facts: Facts, need_bytes: int) -> Iterator[Finding]:
    """Give a finding for each disk that a build fills; folders on one disk share its free bytes."""
    devices: dict[int, list[str]] = {}
    free: dict[int, int] = {}
    for disk in facts.disks:
        devices.setdefault(disk.device, []).append(f"{disk.purpose} ({disk.folder})")
        free[disk.device] = disk.free_bytes
    for number, (device, purposes) in enumerate(devices.items()):
        name = "disk" if number == 0 else f"disk-{number + 1}"
        what = f"{free[device] / GIB:.1f} GiB free for {', '.join(purposes)}"
        if free[device] >= need_bytes:
            yield _finding(name, "ok", what)
            continue
        yield _finding(
            name,
            "fail",
            f"{what}, but a build fills up to {need_bytes / GIB:.0f} GiB",
            "wheels, layers, their compressed copies and the exported image lie there at the same time",
            "docker buildx prune --all\ndocker image prune",
        )
    if not facts.disks:
        yield _finding("disk", "skip", "not looked at: the engine does not say where it keeps images")


def _memory(facts: Facts) -> Finding:
    """Judge the engine's memory, which is a virtual machine's on a desktop, before the host's."""
    size = facts.daemon.memory_bytes or facts.machine.memory_bytes
    cores = facts.daemon.cores or facts.machine.cores
    if size is None:
        return _finding("memory", "skip", "memory and cores could not be read")
    what = f"{size / GIB:.1f} GiB of memory and {cores or '?'} cores for the engine"
    if size >= _MEMORY_WANTED:
        return _finding("memory", "ok", what)
    return _finding(
        "memory",
        "warn",
        what,
        f"with less than {_MEMORY_WANTED // GIB} GiB a build may be killed while layers are compressed",
        "docker info --format '{{.MemTotal}}'\nfree -h",
    )
