"""NVIDIA's container toolkit on this host: its version, its configuration, its CDI specifications."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from imagebuilder.host import LIVE, glob, text
from imagebuilder.host.machine import find_program
from imagebuilder.matrix.words import Driver

CDI_FOLDERS = ("etc/cdi", "var/run/cdi", "run/cdi")
_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiSpec:
    """One CDI specification; `drivers` are the driver versions that the files it mounts belong to."""

    path: Path
    version: str | None = None
    kind: str | None = None
    devices: tuple[str, ...] = ()
    drivers: tuple[Driver, ...] = ()
    error: str | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether it gives GPUs of NVIDIA's."""
        return self.kind == "nvidia.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """The container toolkit; `program` is None when nvidia-ctk is not installed.

    `mode` is the runtime's as its configuration has it (`auto`, `legacy`, `cdi`, `csv`), `no_cgroups`
    whether the legacy hook keeps its hands off device cgroups, `repository` whether apt or dnf knows
    NVIDIA's package source.
    """

    program: Path | None = None
    version: Version | None = None
    mode: str | None = None
    no_cgroups: bool = False
    specs: tuple[CdiSpec, ...] = ()
    repository: bool = False

    @property
    def gpu_specs(self) -> tuple[CdiSpec, ...]:
        """The readable specifications of GPUs."""
        return tuple(spec for spec in self.specs if spec.is_gpu and spec.error is None)


def read_toolkit(root: Path = LIVE) -> Toolkit:
    """Read the toolkit of the host whose files lie under `root`; waits at most 3 seconds; never raises."""
    program = find_program(root, "nvidia-ctk")
    config = _config(root / "etc/nvidia-container-runtime/config.toml")
    sources = ("etc/apt/sources.list.d/*nvidia-container*", "etc/yum.repos.d/*nvidia-container*")
    return Toolkit(
        program=program,
        version=_version(program) if program else None,
        mode=config.get("nvidia-container-runtime", {}).get("mode"),
        no_cgroups=config.get("nvidia-container-cli", {}).get("no-cgroups") is True,
        specs=_specs(root),
        repository=any(True for pattern in sources for _ in glob(root, pattern)),
    )


def _version(program: Path) -> Version | None:
    import subprocess

    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"version (\d+\.\d+\.\d+)", done.stdout)
    return Version(found[1]) if found else None


def _config(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text(path))
    except tomllib.TOMLDecodeError:
        return {}


def _specs(root: Path) -> tuple[CdiSpec, ...]:
    # /var/run is /run on most hosts: the same file is read once
    found: dict[Path, CdiSpec] = {}
    for folder in CDI_FOLDERS:
        for path in glob(root, f"{folder}/*"):
            if path.suffix in {".yaml", ".yml", ".json"}:
                found.setdefault(path.resolve(), _spec(path, Path("/") / path.relative_to(root)))
    return tuple(found.values())


def _spec(file: Path, path: Path) -> CdiSpec:
    """Read one specification; JSON is YAML as well."""
    import yaml

    content = text(file)
    try:
        document = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError as error:
        return CdiSpec(path=path, error=str(error).splitlines()[0])
    if not isinstance(document, dict) or not isinstance(document.get("devices"), list):
        return CdiSpec(path=path, error="it is not a CDI specification" if content else "it cannot be read")
    versions = set(re.findall(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3}(?:\.\d{1,3}){1,2})\b", content))
    return CdiSpec(
        path=path,
        version=str(document.get("cdiVersion")),
        kind=str(document.get("kind")),
        devices=tuple(str(one.get("name")) for one in document["devices"] if isinstance(one, dict)),
        drivers=tuple(sorted(Driver.parse(version) for version in versions)),
    )
