"""The GPUs of a host and their driver, read from its files and, on the live host, from NVML.

Every read takes the root folder of the host, so that a copy of another host's files can be looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from imagebuilder.host.nvml import Nvml, NvmlGpu, read_nvml
from imagebuilder.matrix.words import Capability, Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

LIVE = Path("/")
_NVIDIA_PCI_VENDOR = "0x10de"
_PCI_DISPLAY_CLASS = "0x03"
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/lib/wsl/lib",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGpu:
    """One GPU as the driver names it; `mig` says that it is divided into instances."""

    name: str
    capability: Capability | None = None
    memory_bytes: int | None = None
    uuid: str
    mig: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The GPU side of a host.

    `driver` is the running one: the kernel module's version, on WSL2 what NVML says. `library` is the
    newest user-space library on disk: it differs from the driver between an upgrade and the reboot.
    `devices` are the names under /dev that matter, `pci_gpus` and `nvswitches` what the bus holds whether
    or not a driver runs.
    """

    driver: Driver | None = None
    open_module: bool | None = None
    library: Driver | None = None
    nvml_error: str | None = None
    gpus: tuple[HostGpu, ...] = ()
    mig_instances: int = 0
    devices: frozenset[str] = frozenset()
    pci_gpus: int = 0
    nouveau: bool = False
    nvswitches: int = 0
    fabric_manager: bool = False
    fabric: str | None = None

    @property
    def has_gpu(self) -> bool:
        """Whether anything shows a GPU of NVIDIA's: the driver, the PCI bus, or WSL2's device."""
        return bool(self.gpus or self.pci_gpus or self.driver or "dxg" in self.devices)

    @property
    def usable(self) -> bool:
        """Whether containers can be given GPUs as far as the driver is concerned."""
        return self.driver is not None and bool(self.gpus) and self.nvml_error is None


def this_host(root: Path = LIVE) -> Host:
    """Read the GPU side of the host whose files lie under `root`; never raises.

    NVML is asked on the live host alone: it answers for the running kernel, whatever the root.
    """
    nvml = read_nvml() if root == LIVE else None
    driver, open_module = _kernel_module(root)
    if driver is None and nvml is not None and nvml.driver is not None:
        driver = _driver(nvml.driver)
    gpus = _gpus_of_nvml(nvml) or tuple(_gpus_of_files(root))
    fabrics = {gpu.fabric for gpu in nvml.gpus if gpu.fabric} if nvml else set()
    return Host(
        driver=driver,
        open_module=open_module,
        library=_library(root),
        nvml_error=nvml.error if nvml else None,
        gpus=gpus,
        mig_instances=sum(1 for _ in glob(root, "proc/driver/nvidia/capabilities/gpu*/mig/gi*")),
        devices=frozenset(_devices(root)),
        pci_gpus=_pci_gpus(root),
        nouveau=(root / "sys/module/nouveau").exists(),
        nvswitches=sum(1 for _ in glob(root, "proc/driver/nvidia-nvswitch/devices/*")),
        # the kernel cuts the name of a process after 15 characters
        fabric_manager=any(True for _ in processes(root, "nv-fabricmanager"[:15])),
        fabric="completed" if fabrics == {"completed"} else min(fabrics - {"completed"}, default=None),
    )


def text(path: Path) -> str:
    """Give a small file's text; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def glob(root: Path, pattern: str) -> Iterator[Path]:
    """Give the paths under `root` in order; none where a folder cannot be read."""
    try:
        yield from sorted(root.glob(pattern))
    except OSError:
        return


def processes(root: Path, name: str) -> Iterator[Path]:
    """Give the /proc folders of the processes of one name."""
    for comm in glob(root, "proc/[0-9]*/comm"):
        if text(comm).strip() == name:
            yield comm.parent


def _driver(found: str) -> Driver | None:
    try:
        return Driver.parse(found)
    except ValueError:
        return None


def _kernel_module(root: Path) -> tuple[Driver | None, bool | None]:
    """Read `NVRM version: NVIDIA UNIX [Open] Kernel Module [for x86_64]  580.65.06  ...`."""
    line = next(iter(text(root / "proc/driver/nvidia/version").splitlines()), "")
    found = re.search(r"Kernel Module.*?\s(\d{3}(?:\.\d+){1,2})\s", line + " ")
    if found is None:
        return _driver(text(root / "sys/module/nvidia/version").strip()), None
    return _driver(found[1]), "Open Kernel Module" in line


def _library(root: Path) -> Driver | None:
    """Give the version of the newest libnvidia-ml on disk, which its file name carries."""
    versions = (
        _driver(path.name.removeprefix("libnvidia-ml.so."))
        for folder in _LIBRARY_FOLDERS
        for path in glob(root, f"{folder}/libnvidia-ml.so.*")
    )
    return max((version for version in versions if version is not None), default=None)


def _gpus_of_nvml(nvml: Nvml | None) -> tuple[HostGpu, ...]:
    def typed(gpu: NvmlGpu) -> HostGpu:
        capability = Capability.parse(gpu.capability) if gpu.capability else None
        return HostGpu(
            name=gpu.name,
            capability=capability,
            memory_bytes=gpu.memory_bytes,
            uuid=gpu.uuid,
            mig=gpu.mig,
        )

    return tuple(typed(gpu) for gpu in nvml.gpus) if nvml else ()


def _gpus_of_files(root: Path) -> Iterator[HostGpu]:
    """Read `Model:`, `GPU UUID:` and `Device Minor:` of the driver's information files."""
    for path in glob(root, "proc/driver/nvidia/gpus/*/information"):
        facts = dict(re.findall(r"^([^:\n]+):\s*(.*?)\s*$", text(path), re.MULTILINE))
        capabilities = f"proc/driver/nvidia/capabilities/gpu{facts.get('Device Minor', '')}/mig/gi*"
        yield HostGpu(
            name=facts.get("Model", "unknown"),
            uuid=facts.get("GPU UUID", path.parent.name),
            mig=any(True for _ in glob(root, capabilities)),
        )


def _devices(root: Path) -> Iterator[str]:
    for path in glob(root, "dev/nvidia*"):
        yield path.name
    if (root / "dev/dxg").exists():
        yield "dxg"


def _pci_gpus(root: Path) -> int:
    """Count the display devices of NVIDIA's on the PCI bus, driven or not."""
    return sum(
        text(device / "vendor").strip() == _NVIDIA_PCI_VENDOR
        and text(device / "class").startswith(_PCI_DISPLAY_CLASS)
        for device in glob(root, "sys/bus/pci/devices/*")
    )
