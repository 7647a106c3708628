"""Findings on the GPUs and their driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.doctor import fixes
from imagebuilder.doctor.finding import Facts, Finding, Status
from imagebuilder.errors import UsageError
from imagebuilder.matrix.gpus import find_gpu

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.host import Host, HostGpu
    from imagebuilder.matrix.facts import Gpu, Matrix
    from imagebuilder.matrix.words import Driver

GIB = 1024**3


def gpu_findings(facts: Facts, matrix: Matrix) -> Iterator[Finding]:
    """Give the findings on GPUs and driver; on a host without a GPU one that says so."""
    host = facts.host
    yield _gpus(facts, matrix)
    if not host.has_gpu:
        yield finding("driver", "skip", "no driver is looked for where there is no GPU")
        return
    yield _driver(facts)
    if host.driver is not None:
        yield from _library(facts, host.driver)
        yield from _uvm(facts)
        yield from _cuda(host.driver, matrix)
        yield from _forward(host, matrix)
        yield from _branch(facts, host.driver, matrix)
    yield from _mig(host)
    yield from _fabric(facts)


def finding(name: str, status: Status, what: str, why: str | None = None, fix: str | None = None) -> Finding:
    """Make a finding that concerns running on GPUs."""
    return Finding(id=name, needed_for="gpu", status=status, what=what, why=why, fix=fix)


def fact_of(gpu: HostGpu, matrix: Matrix) -> Gpu | None:
    """Find what the matrix knows of a GPU of this host: by its name, else by its compute capability."""
    for known_as in (gpu.name, str(gpu.capability)):
        try:
            return find_gpu(matrix, known_as)[1]
        except UsageError:
            continue
    return None


def _gpus(facts: Facts, matrix: Matrix) -> Finding:
    host = facts.host
    if not host.has_gpu:
        inside = ", or this container was not given one" if facts.machine.inside_container else ""
        return finding(
            "gpu",
            "skip",
            f"no NVIDIA GPU here{inside}",
            "images are built and tested without one; GPU checks then say skip",
        )
    if not host.gpus:
        seen = f"{host.pci_gpus} on the PCI bus" if host.pci_gpus else "a driver, but no GPU"
        return finding(
            "gpu",
            "fail",
            f"no GPU answers ({seen})",
            "the driver is too old or too new, or the other kernel module (open, proprietary) is needed",
            fixes.as_root(facts.machine, "dmesg | grep -iE 'nvrm|nvidia' | tail"),
        )
    what = ", ".join(_described(gpu, matrix) for gpu in host.gpus)
    if host.pci_gpus > len(host.gpus):
        return finding(
            "gpu",
            "warn",
            f"{len(host.gpus)} of {host.pci_gpus} GPUs answer: {what}",
            "the driver does not drive the others: too old or too new for it, or a fault",
            fixes.as_root(facts.machine, "dmesg | grep -iE 'nvrm|nvidia' | tail"),
        )
    return finding("gpu", "ok", what)


def _described(gpu: HostGpu, matrix: Matrix) -> str:
    fact = fact_of(gpu, matrix)
    capability = gpu.capability or (fact.capability if fact else None)
    facts = [f"compute capability {capability}" if capability else "compute capability unknown"]
    if gpu.memory_bytes:
        facts.append(f"{gpu.memory_bytes / GIB:.0f} GiB")
    if gpu.mig:
        facts.append("MIG")
    return f"{gpu.name} ({', '.join(facts)})"


def _driver(facts: Facts) -> Finding:
    host, machine = facts.host, facts.machine
    if host.driver is not None:
        kind = {True: ", open kernel module", False: ", proprietary kernel module", None: ""}[
            host.open_module
        ]
        return finding("driver", "ok", f"driver {host.driver}{kind}")
    if machine.wsl:
        return finding(
            "driver",
            "fail",
            "WSL2 has a GPU device (/dev/dxg), but no driver library answers",
            "on WSL2 the driver is Windows' own; none is installed inside",
            f"wsl.exe --update\n# and install the newest driver in Windows: {fixes.WSL_GUIDE}",
        )
    if host.nouveau:
        why = "the kernel drives the GPU with nouveau, which has no CUDA"
    elif host.library is not None:
        why = f"the libraries of driver {host.library} are installed, but its kernel module is not loaded"
        return finding(
            "driver", "fail", "NVIDIA's driver does not run", why, fixes.as_root(machine, "modprobe nvidia")
        )
    else:
        why = "no /proc/driver/nvidia/version and no libnvidia-ml on disk"
    return finding("driver", "fail", "NVIDIA's driver is not installed", why, fixes.install_driver(machine))


def _library(facts: Facts, driver: Driver) -> Iterator[Finding]:
    """Recognise an upgrade without a reboot: the kernel module is older than the libraries on disk."""
    host = facts.host
    reload = fixes.as_root(facts.machine, "reboot")
    if host.library is not None and host.library != driver and not facts.machine.wsl:
        yield finding(
            "driver-library",
            "fail",
            f"the running driver is {driver}, the libraries on disk are {host.library}",
            "the driver was upgraded and its old kernel module still runs"
            " (`Driver/library version mismatch`); no image can mend this",
            reload,
        )
    elif host.nvml_error is not None:
        yield finding("driver-library", "fail", f"NVML does not start: {host.nvml_error}", None, reload)


def _uvm(facts: Facts) -> Iterator[Finding]:
    if "nvidia0" in facts.host.devices and "nvidia-uvm" not in facts.host.devices:
        yield finding(
            "uvm",
            "fail",
            "/dev/nvidia-uvm is missing",
            "CUDA cannot start without it although nvidia-smi works: the module was not loaded after boot",
            fixes.as_root(facts.machine, "nvidia-modprobe -u -c=0"),
        )


def _cuda(driver: Driver, matrix: Matrix) -> Iterator[Finding]:
    """Say which images this driver runs: every toolkit of a CUDA major from that major's floor on."""
    if not matrix.cuda_majors:
        return
    by_number = sorted(matrix.cuda_majors.items(), key=lambda one: int(one[0]))
    runs = [f"{major}.x" for major, fact in by_number if driver >= fact.driver_min]
    others = [
        f"{major}.x (from driver {fact.driver_min})" for major, fact in by_number if driver < fact.driver_min
    ]
    not_these = f", not of CUDA {', '.join(others)}" if others else ""
    if not runs:
        yield finding("cuda", "fail", f"driver {driver} runs images of no CUDA that is supported{not_these}")
        return
    newest = [name for name, toolkit in matrix.toolkits.items() if toolkit.driver_branch <= driver.branch]
    own = max(newest, key=lambda name: [int(part) for part in name.split(".")], default=None)
    yield finding(
        "cuda",
        "ok",
        f"driver {driver} runs images of CUDA {', '.join(runs)}{not_these}",
        f"it came with CUDA {own}, the version that nvidia-smi prints; the image brings its own"
        if own
        else None,
    )


def _forward(host: Host, matrix: Matrix) -> Iterator[Finding]:
    """Say on which GPUs the cuda-compat libraries of other people's images are refused."""
    facts = {gpu.name: fact_of(gpu, matrix) for gpu in host.gpus}
    refused = sorted(name for name, fact in facts.items() if fact and fact.forward_compat.startswith("no"))
    if refused:
        yield finding(
            "forward-compat",
            "ok",
            f"no forward compatibility on {', '.join(refused)}",
            "images that load cuda-compat libraries fail with error 804 there; those of imgbuild hold none",
        )


def _branch(facts: Facts, driver: Driver, matrix: Matrix) -> Iterator[Finding]:
    """Warn of a branch at its end, and of upgrades that would lose a GPU of this host."""
    for gpu in facts.host.gpus:
        fact = fact_of(gpu, matrix)
        last = fact.driver_branch_last if fact else None
        if last is None:
            continue
        if driver.branch > last:
            what, status = f"driver {driver} does not support {gpu.name}: R{last} is the last branch", "fail"
        else:
            what, status = f"R{last} is the last driver branch for {gpu.name}", "ok"
        hold = (
            None if driver.branch <= last else f"# install a driver of branch R{last}: {fixes.DRIVER_GUIDE}"
        )
        yield finding("driver-last", status, what, "a newer driver would lose this GPU", hold)  # type: ignore[arg-type]
        break
    branch = matrix.driver_branches.get(str(driver.branch))
    if branch and branch.eol and facts.now.strftime("%Y-%m-%d") > branch.eol.ljust(10, "~"):
        yield finding(
            "driver-branch",
            "warn",
            f"driver branch R{driver.branch} has had no updates since {branch.eol}",
            "security updates come for supported branches alone",
            fixes.install_driver(facts.machine),
        )


def _mig(host: Host) -> Iterator[Finding]:
    divided = [gpu for gpu in host.gpus if gpu.mig]
    if not divided:
        return
    if host.mig_instances:
        yield finding(
            "mig",
            "warn",
            f"{len(divided)} GPU(s) in MIG mode with {host.mig_instances} instance(s)",
            "NCCL does not run across MIG instances of one GPU: its checks say skip, one instance works",
            "nvidia-smi -L\ndocker run --rm --gpus device=MIG-UUID IMAGE",
        )
    else:
        yield finding(
            "mig",
            "fail",
            f"{len(divided)} GPU(s) in MIG mode without any instance",
            "CUDA sees no device before an instance is created",
            "sudo nvidia-smi mig -lgip\nsudo nvidia-smi -mig 0",
        )


def _fabric(facts: Facts) -> Iterator[Finding]:
    """Judge the fabric manager where there are NVSwitches: without it CUDA gives error 802."""
    host = facts.host
    if not host.nvswitches and host.fabric is None:
        return
    if host.fabric == "completed" or (host.fabric is None and host.fabric_manager):
        yield finding("fabric", "ok", f"{host.nvswitches} NVSwitch(es), the fabric is up")
        return
    state = host.fabric or "the fabric manager does not run"
    start = "systemctl enable --now nvidia-fabricmanager"
    yield finding(
        "fabric",
        "fail",
        f"{host.nvswitches} NVSwitch(es), but the fabric is not up ({state})",
        "CUDA then gives error 802, `system not yet initialized`; the manager must be of version"
        f" {host.driver}, the driver's",
        fixes.as_root(facts.machine, start, "journalctl -u nvidia-fabricmanager --no-pager | tail"),
    )
