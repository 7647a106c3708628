"""Rules about what stays in the environment of the image."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagebuilder.lint.problem import Found, LintFacts, Rule
from imagebuilder.lint.reading import base_setting, cuda_release, last_setting, root_stage, settings
from imagebuilder.matrix.words import Cuda

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.lint.dockerfile import Dockerfile

# Folders whose CUDA libraries are found before those that the wheels bring.
_SHADOWING = re.compile(
    r"/usr/local/cuda(-[\d.]+)?(/|$)|/opt/cuda|/usr/lib/(x86_64|aarch64)-linux-gnu|/usr/lib64"
    r"|conda\w*/|/envs/|site-packages/nvidia|/compat(/|$)"
)
_OTHER_VALUE = re.compile(r"\$\{?LD_LIBRARY_PATH\b(:?[-+][^}]*)?\}?")


def _library_path(dockerfile: Dockerfile, facts: LintFacts) -> Iterator[Found]:
    inherited = base_setting(dockerfile, facts, "LD_LIBRARY_PATH") or ""
    found = last_setting(dockerfile, "LD_LIBRARY_PATH")
    root = root_stage(dockerfile)
    line = found[0].line if found else (root.line if root else 0)
    value = _OTHER_VALUE.sub(lambda _: inherited, found[1]) if found else inherited
    for folder in filter(_SHADOWING.search, value.split(":")):
        release = cuda_release(root.image) if root else None
        same = (
            facts.cuda and release and release.startswith(f"{facts.cuda}.") and folder in inherited.split(":")
        )
        if same:
            yield Found(
                line=line,
                what=f"the base puts `{folder}` on LD_LIBRARY_PATH, of the same CUDA as the wheels",
                why="a second copy of CUDA is found before the wheels' own (failure mode E3)",
                level="warning",
            )
        else:
            whose = "the base puts" if folder in inherited.split(":") else "LD_LIBRARY_PATH holds"
            yield Found(
                line=line, what=f"{whose} `{folder}`{' on LD_LIBRARY_PATH' if 'base' in whose else ''}"
            )


def _require(dockerfile: Dockerfile, facts: LintFacts) -> Iterator[Found]:
    for instruction, name, value in settings(dockerfile, "ENV"):
        if name == "NVIDIA_DISABLE_REQUIRE" and value.lower() not in ("", "0", "false"):
            yield Found(line=instruction.line, what="`NVIDIA_DISABLE_REQUIRE` turns the driver gate off")
    found = last_setting(dockerfile, "NVIDIA_REQUIRE_CUDA")
    root = root_stage(dockerfile)
    inherited = base_setting(dockerfile, facts, "NVIDIA_REQUIRE_CUDA")
    if found is None and root and (inherited or cuda_release(root.image)):
        yield Found(line=root.line, what=f"the gate of the base `{root.image}` stays in place")
    if found and facts.floor and not _lets_in(found[1], facts.floor):
        yield Found(
            line=found[0].line,
            what=f"`NVIDIA_REQUIRE_CUDA={found[1]}` is stricter than `cuda>={facts.floor}`",
        )


def _lets_in(gate: str, floor: Cuda) -> bool:
    """Whether one alternative (spaces: or, commas: and) asks for nothing but a CUDA up to the floor."""
    wanted = re.compile(r"cuda>=(\d+\.\d+)")
    return not gate.strip() or any(
        all(
            (match := wanted.fullmatch(part)) and Cuda.parse(match[1]) <= floor
            for part in alternative.split(",")
        )
        for alternative in gate.split()
    )


def _nccl(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, name, _value in settings(dockerfile, "ENV"):
        if name.startswith("NCCL_") or name == "GLOO_SOCKET_IFNAME":
            yield Found(line=instruction.line, what=f"`{name}` is set for every host")


def _devices(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, name, value in settings(dockerfile, "ENV"):
        if name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            yield Found(line=instruction.line, what=f"`{name}` chooses GPUs for every host")
        elif name == "NVIDIA_DRIVER_CAPABILITIES" and "all" in value.split(","):
            yield Found(
                line=instruction.line,
                what="`NVIDIA_DRIVER_CAPABILITIES=all` mounts every driver library",
                why="only the capabilities that the image uses belong there (failure mode A9)",
                fix="name them: compute,utility, and video or graphics where they are used",
            )


def _frontend(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, name, _value in settings(dockerfile, "ENV"):
        if name == "DEBIAN_FRONTEND":
            yield Found(line=instruction.line, what="`ENV DEBIAN_FRONTEND` stays in the image")


def _python_path(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, name, value in settings(dockerfile, "ENV"):
        if name in ("PYTHONPATH", "PYTHONHOME") and value:
            yield Found(line=instruction.line, what=f"`{name}={value}` comes before the locked packages")


def _network(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    names = re.compile(
        r"(PIP|UV)_(INDEX|INDEX_URL|EXTRA_INDEX_URL|DEFAULT_INDEX|FIND_LINKS|CONFIG_FILE)|CONDA_CHANNELS"
        r"|(HTTPS?|ALL|FTP)_PROXY|(https?|all|ftp)_proxy"
    )
    for instruction, name, value in settings(dockerfile, "ENV", "ARG"):
        if names.fullmatch(name) and value:
            yield Found(
                line=instruction.line, what=f"`{instruction.keyword} {name}` fixes an address in the image"
            )


RULES = (
    Rule(
        name="library-path",
        why="libraries there are found before those of the wheels: undefined symbols at import"
        " (failure mode E3, gotcha 26) [pytorch/pytorch#134929, jax-ml/jax#17497]",
        fix="start from a plain base, or set LD_LIBRARY_PATH without that folder",
        find=_library_path,
    ),
    Rule(
        name="require-cuda",
        why="a gate that names the packaged CUDA refuses drivers that minor-version compatibility covers,"
        " and without a gate the image starts on drivers that cannot work (failure mode B2, gotcha 16)",
        fix='set NVIDIA_REQUIRE_CUDA="cuda>=X.0" of the CUDA major',
        find=_require,
    ),
    Rule(
        name="nccl-env",
        why="what helps one host slows down or breaks another (failure modes M2, M3, M12)"
        " [NVIDIA/nccl#631, NVIDIA/nccl#286]",
        fix="give it at run time: docker run -e NAME=VALUE",
        find=_nccl,
    ),
    Rule(
        name="devices",
        why="a wrong value hides every GPU without an error (failure mode A16)",
        fix="give it at run time: docker run -e CUDA_VISIBLE_DEVICES=0",
        find=_devices,
    ),
    Rule(
        name="debian-frontend",
        why="it is for the build alone; in the image it silences every later dialogue (failure mode H10)",
        fix="ARG DEBIAN_FRONTEND=noninteractive",
        find=_frontend,
    ),
    Rule(
        name="python-path",
        why="modules there replace locked ones of the same name (failure modes G1, L3)",
        fix="install the module as a wheel, or set it at run time",
        find=_python_path,
    ),
    Rule(
        name="network-env",
        why="the address fails elsewhere and changes what later installs get (failure modes G3, J1, J3)"
        " [opendatalab/MinerU#697]",
        fix="leave it out: indexes and mirrors are configuration of the build, proxies are predefined ARGs",
        find=_network,
    ),
)
