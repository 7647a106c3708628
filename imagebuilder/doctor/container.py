"""Findings on how containers get at the GPUs: toolkit, CDI, cgroups, shared memory, locked memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.doctor import fixes
from imagebuilder.doctor.gpu import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.doctor.finding import Facts, Finding
    from imagebuilder.matrix.facts import Matrix

# what a container gets unless told otherwise, as Docker's documentation of `--shm-size` says
_DEFAULT_SHM = "64m"
_RUN = "docker run --rm --gpus all --shm-size=8g --ulimit memlock=-1 IMAGE"


def container_findings(facts: Facts, matrix: Matrix) -> Iterator[Finding]:
    """Give the findings on the container toolkit and on what containers get by default."""
    if not facts.host.has_gpu:
        yield finding("toolkit", "skip", "no container toolkit is needed where there is no GPU")
        return
    yield _toolkit(facts)
    yield from _cdi(facts)
    yield from _cgroups(facts)
    yield from _rootless(facts)
    yield from _wsl(facts, matrix)
    yield _shm(facts)
    yield from _memlock(facts)
    yield from _interface(facts)


def _legacy(facts: Facts) -> bool:
    return "nvidia" in facts.daemon.runtimes


def _cdi_ready(facts: Facts) -> bool:
    """Whether the engine reads a folder in which a GPU specification lies."""
    folders = {folder.replace("/var/run/", "/run/") for folder in facts.daemon.cdi_folders}
    there = {str(spec.path.parent).replace("/var/run/", "/run/") for spec in facts.toolkit.gpu_specs}
    return bool(folders & there)


def _toolkit(facts: Facts) -> Finding:
    """Tell the pieces apart that `could not select device driver "" with capabilities: [[gpu]]` hides."""
    toolkit, daemon, machine = facts.toolkit, facts.daemon, facts.machine
    if toolkit.program is None and not _legacy(facts) and not _cdi_ready(facts):
        return finding(
            "toolkit",
            "fail",
            "NVIDIA's container toolkit is not installed",
            '`docker run --gpus` then says `could not select device driver "" with capabilities: [[gpu]]`',
            fixes.install_toolkit(machine, toolkit),
        )
    what = f"container toolkit {toolkit.version or 'of unknown version'}"
    if daemon.version is None:
        return finding("toolkit", "skip", f"{what}; the engine does not answer, so its runtimes are unknown")
    ways = []
    if _legacy(facts):
        default = ", the default" if daemon.default_runtime == "nvidia" else ""
        ways.append(f"runtime `nvidia` (mode {toolkit.mode or 'auto'}{default})")
    if _cdi_ready(facts):
        ways.append("CDI")
    if ways:
        return finding("toolkit", "ok", f"{what}; Docker gives GPUs by {' and '.join(ways)}")
    known = "nvidia" in machine.daemon_config.get("runtimes", {})
    return finding(
        "toolkit",
        "fail",
        f"{what} is installed, but Docker has no runtime `nvidia` and no CDI device",
        "it is in daemon.json, but the engine was not restarted since"
        if known
        else "Docker was not told of it",
        fixes.as_root(machine, fixes.restart_docker(machine)) if known else fixes.configure_docker(machine),
    )


def _cdi(facts: Facts) -> Iterator[Finding]:
    """Find broken, stale and rejected specifications; say nothing where CDI is not used."""
    driver, machine, daemon = facts.host.driver, facts.machine, facts.daemon
    anew = fixes.generate_cdi(machine)
    for spec in facts.toolkit.specs:
        if spec.error is not None:
            yield finding("cdi", "warn", f"{spec.path} cannot be used", spec.error, anew)
            return
    specs = facts.toolkit.gpu_specs
    stale = [one for one in specs if driver and one.drivers and driver not in one.drivers]
    if stale:
        yield finding(
            "cdi",
            "fail",
            f"{stale[0].path} mounts files of driver {stale[0].drivers[-1]}, but {driver} runs",
            "it was written before the driver was changed (`unresolvable CDI devices`, missing libraries)",
            anew,
        )
    elif specs and daemon.version is not None and not daemon.cdi_folders:
        yield finding(
            "cdi",
            "ok" if _legacy(facts) else "fail",
            f"{specs[0].path} is there, but Docker {daemon.version} does not read CDI specifications",
            "the feature is off in this engine; `--gpus` through the runtime works without it",
            fixes.daemon_setting(machine, {"features": {"cdi": True}}),
        )
    elif specs and daemon.cdi_devices is not None and not _found_by_engine(facts):
        yield finding(
            "cdi",
            "fail",
            f"the engine takes no device from {specs[0].path} (cdiVersion {specs[0].version})",
            "a specification newer than the engine is passed over; `--gpus` through the runtime still works",
            f"{anew}\n# or upgrade Docker {daemon.version}: {fixes.ENGINE_GUIDE}",
        )
    elif specs:
        devices = sum(len(spec.devices) for spec in specs)
        yield finding("cdi", "ok", f"{specs[0].path}: cdiVersion {specs[0].version}, {devices} devices")


def _found_by_engine(facts: Facts) -> bool:
    return any(device.startswith("nvidia.com/gpu") for device in facts.daemon.cdi_devices or ())


def _cgroups(facts: Facts) -> Iterator[Finding]:
    """Warn of the hook that systemd undoes: long jobs lose their GPUs at the next daemon-reload."""
    daemon = facts.daemon
    if daemon.cgroup_driver != "systemd" or not _legacy(facts) or facts.toolkit.mode == "cdi":
        return
    if _cdi_ready(facts):
        return
    yield finding(
        "cgroups",
        "warn",
        "GPUs are given behind systemd's back (cgroup driver `systemd`, no CDI)",
        "the next `systemctl daemon-reload` can take them from running containers"
        " (`Failed to initialize NVML: Unknown Error`)",
        fixes.generate_cdi(facts.machine) + "\n# then: docker run --device nvidia.com/gpu=all IMAGE",
    )


def _rootless(facts: Facts) -> Iterator[Finding]:
    if not facts.daemon.rootless or not _legacy(facts) or facts.toolkit.no_cgroups or _cdi_ready(facts):
        return
    yield finding(
        "rootless",
        "fail",
        "Docker runs rootless, but the toolkit's hook sets device cgroups",
        "an unprivileged engine may not touch them, so containers with GPUs do not start",
        "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place\n"
        "systemctl --user restart docker",
    )


def _wsl(facts: Facts, matrix: Matrix) -> Iterator[Finding]:
    floor = matrix.floors.get("toolkit-wsl")
    version = facts.toolkit.version
    if "dxg" not in facts.host.devices or floor is None or version is None or version >= floor.version:
        return
    yield finding(
        "wsl",
        "fail",
        f"container toolkit {version} on WSL2, {floor.version} or newer is needed",
        f"{floor.why} (error 500, `named symbol not found`)",
        fixes.install_toolkit(facts.machine, facts.toolkit),
    )


def _shm(facts: Facts) -> Finding:
    """Say what containers get: too small for NCCL and data loaders unless asked for."""
    size = facts.machine.daemon_config.get("default-shm-size")
    if size is not None:
        return finding("shm", "ok", f"containers get /dev/shm of {size} (daemon.json)")
    several = len(facts.host.gpus) > 1
    return finding(
        "shm",
        "warn" if several else "ok",
        f"containers get /dev/shm of {_DEFAULT_SHM} unless asked for more; `imgbuild test` asks",
        "NCCL and data loaders need more (`unhandled system error`, `bus error`)",
        _RUN,
    )


def _memlock(facts: Facts) -> Iterator[Finding]:
    """Judge the limit of locked memory where there is InfiniBand, which pins its buffers."""
    machine = facts.machine
    if not machine.infiniband:
        return
    limit, adapters = machine.memlock_bytes, ", ".join(machine.infiniband)
    if limit == -1 or "memlock" in machine.daemon_config.get("default-ulimits", {}):
        yield finding("memlock", "ok", f"InfiniBand ({adapters}), containers may lock memory")
        return
    shown = f"{limit // 1024} KiB" if limit is not None else "the engine's limit"
    yield finding(
        "memlock",
        "warn",
        f"InfiniBand ({adapters}), but containers may lock only {shown} of memory",
        "RDMA pins its buffers (`cannot register memory`)",
        "docker run --rm --gpus all --ulimit memlock=-1 --cap-add IPC_LOCK --device /dev/infiniband IMAGE",
    )


def _interface(facts: Facts) -> Iterator[Finding]:
    """Name the interface that several nodes should use: NCCL may pick a bridge by itself."""
    if facts.machine.interface:
        name = facts.machine.interface
        yield finding(
            "interface",
            "ok",
            f"the default route goes through {name}",
            "for training over several hosts, name it exactly: a plain name is a prefix",
            f"export NCCL_SOCKET_IFNAME=={name}",
        )
