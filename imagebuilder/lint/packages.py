"""Rules about the packages of the system."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagebuilder.lint.problem import Found, LintFacts, Rule
from imagebuilder.lint.reading import (
    final_runs,
    installed,
    is_cuda_image,
    pip_install,
    root_stage,
    runs,
    script,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.lint.dockerfile import Dockerfile

_DRIVER = re.compile(
    r"nvidia-(driver|utils|compute|kernel|dkms|opencl|smi|settings|headless|fabricmanager|modprobe|persistenced)\b.*"
    r"|libnvidia-(?!container).*|libcuda1.*|libnvcuvid1.*|cuda-(compat|drivers)\b.*"
    r"|cuda(-runtime|-demo-suite)?(-\d+-\d+)?|xserver-xorg-video-nvidia.*"
)
_CUDA_LIBRARY = re.compile(
    r"libnccl.*|libcudnn.*|cudnn\d*(-.*)?|libcu(blas|fft|rand|solver|sparse)\b.*|cuda-libraries.*|libnvjitlink.*"
)
_OPEN_MODE = re.compile(r"0?777|(a|ugo|o|go|uo)?[+=]rwx|(a|ugo|o|go|uo)[+=]rwX?")
_UPGRADES = frozenset({"upgrade", "dist-upgrade", "full-upgrade", "distro-sync"})
_NVIDIA_SOURCE = re.compile(r"nvidia\.com/compute/(?:cuda/repos|machine-learning)[^\s'\"]*")


def _plain(package: str) -> str:
    """Give the name alone: without version, architecture and the folder of a file."""
    return re.split(r"[=:]", package.rpartition("/")[2])[0]


def _drivers(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, command in runs(dockerfile):
        for package in filter(lambda name: _DRIVER.fullmatch(_plain(name)), installed(command) or ()):
            yield Found(line=instruction.line, what=f"`{_plain(package)}` brings parts of the driver")
        if "NVIDIA-Linux-" in " ".join((command.program, *command.arguments)):
            yield Found(line=instruction.line, what="a driver installer runs in the build")


def _upgrade(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, command in runs(dockerfile):
        words = [word for word in command.arguments if not word.startswith("-")]
        verb = words[0] if words else ""
        apt = command.runs("apt", "apt-get", "aptitude") and verb in _UPGRADES
        rpm = command.runs("dnf", "yum", "microdnf") and verb in _UPGRADES | {"update"} and len(words) == 1
        if apt or rpm:
            yield Found(line=instruction.line, what=f"`{command.program} {verb}` moves every package")


def _second_provider(dockerfile: Dockerfile, facts: LintFacts) -> Iterator[Found]:
    if facts.cuda is None:
        return
    for instruction, command in final_runs(dockerfile):
        for package in filter(lambda name: _CUDA_LIBRARY.fullmatch(_plain(name)), installed(command) or ()):
            yield Found(line=instruction.line, what=f"`{_plain(package)}` is in the wheels already")


def _apt_key(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, command in runs(dockerfile):
        if command.program == "apt-key":
            yield Found(line=instruction.line, what="`apt-key` puts a key into one ring for every source")


def _sources_twice(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    root = root_stage(dockerfile)
    known = 1 if root and is_cuda_image(root.image) else 0
    for stage in dockerfile.final:
        for instruction in stage.instructions:
            if instruction.keyword not in ("RUN", "ADD", "COPY"):
                continue
            text = script(instruction)
            added = len(re.findall(r"\bdeb(?:-src)? [^\n]*?" + _NVIDIA_SOURCE.pattern, text))
            added += len(re.findall(r"URIs:\s*\S*" + _NVIDIA_SOURCE.pattern, text))
            added += "cuda-keyring" in text
            known += added
            if added and known > 1:
                yield Found(line=instruction.line, what="the apt repository of NVIDIA is configured twice")


def _hidden_failure(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    before: tuple[int, str] | None = None
    for instruction, command in runs(dockerfile):
        if before and before[0] == instruction.line and command.program in ("true", ":", "echo"):
            yield Found(line=instruction.line, what=f"a failure of `{before[1]}` is hidden")
        fetches = installed(command) is not None or pip_install(command) is not None
        fetches = fetches or command.runs(
            "curl", "wget", "git", "conda", "mamba", "micromamba", "apt-get", "apt"
        )
        before = (instruction.line, command.program) if fetches and command.then == "||" else None


def _open_modes(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, command in runs(dockerfile):
        modes = [word for word in command.arguments if not word.startswith("-")][:1]
        if command.program == "chmod" and modes and _OPEN_MODE.fullmatch(modes[0]):
            yield Found(line=instruction.line, what=f"`chmod {modes[0]}` lets everyone change these files")


RULES = (
    Rule(
        name="driver-packages",
        why="the driver is mounted from the host: parts of it in the image stop the start with `file exists`"
        " or give error 804 on GeForce, and may not be redistributed (failure modes A8, B3, H13, gotcha 17)"
        " [NVIDIA/nvidia-container-toolkit#371]",
        fix="leave the package out; ocl-icd-opencl-dev is the harmless one for OpenCL",
        find=_drivers,
    ),
    Rule(
        name="apt-upgrade",
        why="it follows the CUDA repository across versions and gives another image every day"
        " (failure mode H8)",
        fix="take a newer digest of the base, or install single packages with --only-upgrade",
        find=_upgrade,
    ),
    Rule(
        name="second-provider",
        why="two copies of a CUDA library in one image: whichever is found first need not be the tested one"
        " (failure modes M6, H7) [pytorch/pytorch#119932]",
        fix="leave the package out",
        find=_second_provider,
    ),
    Rule(
        name="apt-key",
        why="keys of that ring are not bound to a source, and its program is gone from newer releases"
        " (failure mode H5)",
        fix="save the key as a file and name it with [signed-by=...]",
        find=_apt_key,
    ),
    Rule(
        name="nvidia-source-twice",
        why="apt stops with `Conflicting values set for option Signed-By` (failure mode H6)",
        fix="keep one of them: the cuda-keyring package, a source of your own, or that of the base",
        find=_sources_twice,
    ),
    Rule(
        name="hidden-failure",
        why="the image is then published without what the step was for (failure mode J2)",
        fix="let the build fail, or test beforehand whether the step is needed",
        find=_hidden_failure,
    ),
    Rule(
        name="open-modes",
        why="any user may then replace code that another one runs; only data must be writable"
        " (failure mode L1)",
        fix="chmod 1777 for a shared folder, or g=u with group 0",
        find=_open_modes,
    ),
)
