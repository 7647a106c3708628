"""The host's facts are read from its files: copies of many hosts lie in tests/hosts."""

import shutil
import subprocess
from pathlib import Path

import pytest

from imagebuilder.host import HostGpu, this_host
from imagebuilder.host.daemon import read_daemon
from imagebuilder.host.machine import find_program, read_disk, read_machine
from imagebuilder.host.nvml import read_nvml
from imagebuilder.host.toolkit import read_toolkit
from imagebuilder.matrix.words import Capability, Driver

HOSTS = Path(__file__).parents[1] / "hosts"


def test_driver_and_gpus_are_read_from_the_kernel_modules_files() -> None:
    """A V100 host gives its driver, its kind of module, and each GPU by name and UUID."""
    host = this_host(HOSTS / "v100")
    assert host.driver == Driver.parse("470.256.02")
    assert host.open_module is False
    assert host.library == host.driver
    assert host.gpus[0] == HostGpu(
        name="Tesla V100-SXM2-16GB", uuid="GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c160"
    )
    assert (len(host.gpus), host.pci_gpus) == (2, 2)
    assert host.devices == {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"}
    assert host.usable


def test_open_kernel_module_is_told_apart() -> None:
    """The open module writes its version line differently; it is read all the same."""
    host = this_host(HOSTS / "no-uvm")
    assert (host.driver, host.open_module) == (Driver.parse("570.133.20"), True)


def test_libraries_of_another_driver_are_seen() -> None:
    """Between an upgrade and the reboot the libraries on disk are newer than the module."""
    host = this_host(HOSTS / "mismatch")
    assert (str(host.driver), str(host.library)) == ("535.104.05", "535.230.02")


def test_mig_instances_are_counted() -> None:
    """A divided GPU is marked, and its instances are counted."""
    host = this_host(HOSTS / "mig")
    assert host.gpus[0].mig
    assert host.mig_instances == 2


def test_nvswitches_are_counted() -> None:
    """An HGX board shows its NVSwitches and that no fabric manager runs."""
    host = this_host(HOSTS / "hgx")
    assert (len(host.gpus), host.nvswitches, host.fabric_manager) == (8, 4, False)


def test_fabric_manager_is_found_among_the_processes(tmp_path: Path) -> None:
    """The kernel cuts a process's name after 15 characters; it is found nevertheless."""
    (tmp_path / "proc/77").mkdir(parents=True)
    (tmp_path / "proc/77/comm").write_text("nv-fabricmanage\n")
    assert this_host(tmp_path).fabric_manager


def test_wsl2_is_recognised_by_its_device() -> None:
    """WSL2 has /dev/dxg and a kernel of Microsoft's, but no kernel module of NVIDIA's."""
    host, machine = this_host(HOSTS / "wsl2"), read_machine(HOSTS / "wsl2")
    assert host.has_gpu
    assert host.driver is None
    assert machine.wsl


def test_a_host_without_gpu_has_none(tmp_path: Path) -> None:
    """An empty root gives a host without a GPU, and nothing raises."""
    host = this_host(tmp_path)
    assert not host.has_gpu
    assert not host.usable
    assert read_machine(tmp_path).memory_bytes is None
    assert read_toolkit(tmp_path).program is None


def test_unreadable_and_broken_files_are_unknown_facts(tmp_path: Path) -> None:
    """Garbage in the driver's files, daemon.json, config.toml and CDI folder raises nothing."""
    for name, content in {
        "proc/driver/nvidia/version": "\0\xff garbage",
        "proc/driver/nvidia/gpus/0/information": "no colon here",
        "etc/docker/daemon.json": "{",
        "etc/nvidia-container-runtime/config.toml": "= broken",
        "etc/cdi/nvidia.yaml": "a: [",
        "etc/cdi/list.json": "[1, 2]",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert this_host(tmp_path).driver is None
    assert read_machine(tmp_path).daemon_config_error
    assert all(spec.error for spec in read_toolkit(tmp_path).specs)


def test_toolkit_is_asked_for_its_version_and_its_configuration_is_read() -> None:
    """nvidia-ctk gives the version, config.toml the mode and the handling of cgroups."""
    toolkit = read_toolkit(HOSTS / "rootless")
    assert (str(toolkit.version), toolkit.mode, toolkit.no_cgroups) == ("1.17.8", "auto", False)


def test_cdi_specifications_give_version_devices_and_driver() -> None:
    """A CDI specification says which driver's files it mounts, so a stale one can be told."""
    (spec,) = read_toolkit(HOSTS / "stale-cdi").gpu_specs
    assert spec.path == Path("/var/run/cdi/nvidia.yaml")
    assert (spec.version, spec.devices) == ("0.5.0", ("0", "all"))
    assert spec.drivers == (Driver.parse("570.133.20"),)


def test_engine_is_read_from_docker_info() -> None:
    """One question to `docker info` gives runtimes, store, rootless mode and buildx."""
    daemon = read_daemon(find_program(HOSTS / "rootless", "docker"))
    assert (daemon.version, daemon.buildx, daemon.rootless) == ("27.5.1", "v0.23.0", True)
    assert daemon.containerd_store
    assert daemon.bridge
    assert "nvidia" in daemon.runtimes


def test_no_docker_command_is_said() -> None:
    """Without the command the engine is unknown and the reason is kept."""
    daemon = read_daemon(find_program(HOSTS / "plain", "docker"))
    assert daemon.version is None
    assert daemon.client is None
    assert "PATH" in (daemon.error or "")


def test_machine_facts_are_read() -> None:
    """Memory, cores, default interface, adapters and the engine's limit of locked memory."""
    machine = read_machine(HOSTS / "hgx")
    assert machine.memory_bytes == 65843132 * 1024
    assert machine.cores == 2
    assert machine.interface == "ens5"
    assert machine.infiniband == ("mlx5_0",)
    assert machine.memlock_bytes == 8388608


def test_disk_of_a_folder_that_does_not_exist_yet_is_its_parents(tmp_path: Path) -> None:
    """A cache that was never made is judged by the disk on which it will lie."""
    disk = read_disk("downloads", tmp_path / "not" / "yet")
    assert disk is not None
    assert disk.device == tmp_path.stat().st_dev
    assert disk.free_bytes > 0


NVML = r"""
#include <string.h>
#define S 96
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "?"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "570.133.20", size); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetName(void *d, char *text, unsigned size) { strncpy(text, "NVIDIA H200", size); return 0; }
int nvmlDeviceGetUUID(void *d, char *text, unsigned size) { strncpy(text, "GPU-1", size); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { m[0] = 150754820096ULL; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b) { *a = 9; *b = 0; return 0; }
int nvmlDeviceGetGpuFabricInfo(void *d, unsigned char *f) { f[24] = 3; return 0; }
"""


def _library(folder: Path, init: int) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to make a library with")
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", f"-DINIT={init}", "-o", library, source], check=True)
    return library


def test_nvml_gives_capability_memory_and_fabric(tmp_path: Path) -> None:
    """NVML's answers are read through ctypes; functions that an old driver lacks are unknown facts."""
    nvml = read_nvml(_library(tmp_path, init=0))
    assert nvml is not None
    (gpu,) = nvml.gpus
    assert (nvml.driver, gpu.name, gpu.uuid) == ("570.133.20", "NVIDIA H200", "GPU-1")
    assert (gpu.capability, gpu.memory_bytes) == ("9.0", 150754820096)
    assert (gpu.mig, gpu.fabric) == (False, "completed")
    assert Capability.parse(gpu.capability or "") == Capability.parse("9.0")


def test_nvml_that_does_not_start_says_why(tmp_path: Path) -> None:
    """A mismatch of driver and library is NVML's error text, not an exception."""
    nvml = read_nvml(_library(tmp_path, init=18))
    assert nvml is not None
    assert nvml.error == "Driver/library version mismatch"


def test_no_nvml_is_none(tmp_path: Path) -> None:
    """A host without the library, or with a file that is none, has no NVML."""
    assert read_nvml(tmp_path / "libnvidia-ml.so.1") is None
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert read_nvml(tmp_path / "libnvidia-ml.so.1") is None
