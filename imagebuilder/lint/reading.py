"""What the rules read from a Dockerfile: its commands, its outside images, the environment of the image."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from imagebuilder.lint.shell import Command, commands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.lint.dockerfile import Dockerfile, Instruction, Stage
    from imagebuilder.lint.problem import LintFacts


def script(instruction: Instruction) -> str:
    """Give what a RUN runs, its heredocs too."""
    words = instruction.words
    return "\n".join((shlex.join(words) if words else instruction.text, *instruction.bodies))


def runs(dockerfile: Dockerfile) -> Iterator[tuple[Instruction, Command]]:
    """Give every command of every RUN."""
    for instruction in dockerfile.instructions:
        if instruction.keyword == "RUN":
            for command in commands(script(instruction)):
                yield instruction, command


def final_runs(dockerfile: Dockerfile) -> Iterator[tuple[Instruction, Command]]:
    """Give the commands whose result stays in the image, not those of build stages."""
    for stage in dockerfile.final:
        for instruction in stage.instructions:
            if instruction.keyword == "RUN":
                for command in commands(script(instruction)):
                    yield instruction, command


def settings(dockerfile: Dockerfile, *keywords: str) -> Iterator[tuple[Instruction, str, str]]:
    """Give every NAME=VALUE of ENV, ARG or both."""
    for instruction in dockerfile.instructions:
        if instruction.keyword in keywords:
            for name, value in instruction.pairs:
                yield instruction, name, value


def last_setting(dockerfile: Dockerfile, name: str) -> tuple[Instruction, str] | None:
    """Give the ENV that decides a variable of the image, None where no ENV sets it."""
    found = None
    for stage in dockerfile.final:
        for instruction in stage.instructions:
            if instruction.keyword == "ENV" and name in dict(instruction.pairs):
                found = instruction, dict(instruction.pairs)[name]
    return found


def root_stage(dockerfile: Dockerfile) -> Stage | None:
    """Give the stage whose FROM names the outside image that the final image stands on."""
    return dockerfile.final[0] if dockerfile.final else None


def cuda_release(image: str) -> str | None:
    """Give 12.8.1 for any reference to nvidia/cuda:12.8.1-..., from whatever registry; None for others."""
    match = re.search(r"(?:^|/)nvidia/cuda:(\d+\.\d+(?:\.\d+)?)", image)
    return match[1] if match else None


def is_cuda_image(image: str) -> bool:
    """Whether a reference names nvidia/cuda, from whatever registry."""
    return bool(re.search(r"(?:^|/)nvidia/cuda(?=[:@]|$)", image))


def base_setting(dockerfile: Dockerfile, facts: LintFacts, name: str) -> str | None:
    """Give what the outside image sets a variable to, as far as the facts tell."""
    root = root_stage(dockerfile)
    if root is None:
        return None
    if facts.base_digest and root.image.endswith(facts.base_digest) and name in facts.base_environment:
        return facts.base_environment[name]
    release = cuda_release(root.image)
    return facts.library_paths.get(release) if release and name == "LD_LIBRARY_PATH" else None


def installed(command: Command) -> tuple[str, ...] | None:
    """Give the packages that a command of a system's package manager installs; None for other commands."""
    if command.runs("apt", "apt-get", "aptitude", "dnf", "microdnf", "tdnf", "yum", "zypper"):
        words = [word for word in command.arguments if not word.startswith("-")]
        if "install" in words:
            return tuple(words[words.index("install") + 1 :])
    if command.runs("dpkg") and ({"-i", "--install"} & set(command.arguments)):
        return tuple(word for word in command.arguments if not word.startswith("-"))
    return None


def pip_install(command: Command) -> tuple[str, ...] | None:
    """Give the arguments of a `pip install`, `uv pip install` or `uv pip sync`; None for other commands."""
    words = list(command.arguments)
    if command.runs("uv"):
        if "pip" not in words:
            return None
        words = words[words.index("pip") + 1 :]
    elif not command.runs("pip", "pipx"):
        return None
    for verb in ("install", "sync"):
        if verb in words:
            return tuple(words[words.index(verb) + 1 :])
    return None
