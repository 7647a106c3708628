"""Commands that mend a host, worded for the host at hand so that they work when pasted."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagebuilder.host.machine import Machine
    from imagebuilder.host.toolkit import Toolkit

TOOLKIT_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
DRIVER_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
WSL_GUIDE = "https://docs.nvidia.com/cuda/wsl-user-guide/"
ENGINE_GUIDE = "https://docs.docker.com/engine/install/"
LOCAL_ENGINE = "unix:///var/run/docker.sock"
# NVIDIA's package source as its installation guide sets it up
_TOOLKIT_SOURCE = "https://nvidia.github.io/libnvidia-container"
_KEYRING = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
_LIST = "/etc/apt/sources.list.d/nvidia-container-toolkit.list"


def as_root(machine: Machine, *commands: str) -> str:
    """Give the commands, one a line, with sudo where the user is not root."""
    sudo = "" if machine.superuser else "sudo "
    return "\n".join(sudo + command for command in commands)


def restart_docker(machine: Machine) -> str:
    """Give the command that restarts the engine."""
    return "systemctl restart docker" if machine.systemd else "service docker restart"


def start_docker(machine: Machine) -> str:
    """Give the command that starts the engine, now and at boot."""
    return "systemctl enable --now docker" if machine.systemd else "service docker start"


def install(machine: Machine, package: str, guide: str) -> str:
    """Give the command that installs a package of the distribution, or where to read how."""
    if machine.system in {"debian", "ubuntu"}:
        return as_root(machine, f"apt-get install -y {package}")
    return f"# see {guide}"


def install_engine(machine: Machine) -> str:
    """Give the command that installs Docker's own engine with buildx; distributions often have older ones."""
    shell = "sh" if machine.superuser else "sudo sh"
    return f"curl -fsSL https://get.docker.com | {shell}\n# other ways: {ENGINE_GUIDE}"


def install_buildx(machine: Machine, engine: str | None) -> str:
    """Give the command that installs buildx beside an engine of this version."""
    # the distributions mark their builds, and call the plugin otherwise than Docker does
    distributions = engine is not None and ("dfsg" in engine or "ubuntu" in engine)
    package = "docker-buildx" if distributions else "docker-buildx-plugin"
    return install(machine, package, "https://docs.docker.com/go/buildx/")


def install_driver(machine: Machine) -> str:
    """Give the command that installs the distribution's newest driver; a reboot follows."""
    if machine.system == "ubuntu":
        return as_root(machine, "ubuntu-drivers install --gpgpu", "reboot")
    if machine.system == "debian":
        return (
            as_root(machine, "apt-get install -y nvidia-driver nvidia-kernel-dkms", "reboot")
            + "\n# needs the components contrib and non-free in apt's sources; other ways: "
            + DRIVER_GUIDE
        )
    return f"# see {DRIVER_GUIDE}"


def install_toolkit(machine: Machine, toolkit: Toolkit) -> str:
    """Give the commands that install the container toolkit and tell Docker of it."""
    if machine.system not in {"debian", "ubuntu"}:
        return f"# see {TOOLKIT_GUIDE}\n# then:\n{configure_docker(machine)}"
    sudo = "" if machine.superuser else "sudo "
    source = (
        f"curl -fsSL {_TOOLKIT_SOURCE}/gpgkey | {sudo}gpg --dearmor --yes -o {_KEYRING}\n"
        f"curl -fsSL {_TOOLKIT_SOURCE}/stable/deb/nvidia-container-toolkit.list"
        f" | sed 's#deb https://#deb [signed-by={_KEYRING}] https://#g' | {sudo}tee {_LIST}\n"
    )
    packages = as_root(machine, "apt-get update", "apt-get install -y nvidia-container-toolkit")
    return ("" if toolkit.repository else source) + packages + "\n" + configure_docker(machine)


def configure_docker(machine: Machine) -> str:
    """Give the commands that register NVIDIA's runtime with Docker."""
    return as_root(machine, "nvidia-ctk runtime configure --runtime=docker", restart_docker(machine))


def generate_cdi(machine: Machine) -> str:
    """Give the command that writes the CDI specification anew."""
    return as_root(
        machine,
        "mkdir -p /etc/cdi",
        "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        "nvidia-ctk cdi list",
    )


def daemon_setting(machine: Machine, setting: Mapping[str, Any]) -> str:
    """Give the commands that add a setting to daemon.json, everything else in it kept."""
    if machine.daemon_config_error is not None:
        return "python3 -m json.tool /etc/docker/daemon.json"
    config = dict(machine.daemon_config)
    for key, value in setting.items():
        old = config.get(key)
        config[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    tee = as_root(machine, "tee /etc/docker/daemon.json")
    return f"echo {shlex.quote(json.dumps(config))} | {tee}\n{as_root(machine, restart_docker(machine))}"
