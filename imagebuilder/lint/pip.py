"""Rules about pip, uv and conda."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagebuilder.lint.problem import Found, LintFacts, Rule
from imagebuilder.lint.reading import final_runs, pip_install, runs, script, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.lint.dockerfile import Dockerfile
    from imagebuilder.lint.shell import Command

_INDEX = re.compile(
    r"(--index-url|--extra-index-url|--find-links|--index|--default-index|--pypi-url)(=.*)?|-i|-f|-i=.*"
)
_CUDA_STACK = re.compile(
    r"(pytorch|torch|tensorflow|jax|cuda|cudatoolkit|cudnn|nccl|cupy|onnxruntime|mkl|intel-openmp|libblas|numpy)\b.*"
)


def _index(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, command in runs(dockerfile):
        for word in pip_install(command) or ():
            if _INDEX.fullmatch(word):
                yield Found(line=instruction.line, what=f"`{word.partition('=')[0]}` names an index")
        configures = command.runs("pip") and command.arguments[:2] in (
            ("config", "set"),
            ("config", "--global"),
        )
        if configures and "index" in " ".join(command.arguments):
            yield Found(line=instruction.line, what="`pip config` leaves an index in the image")
    for instruction in dockerfile.instructions:
        text = script(instruction)
        if instruction.keyword in ("COPY", "ADD") and re.search(r"\b(pip\.conf|uv\.toml|\.condarc)\b", text):
            yield Found(line=instruction.line, what="a configuration of an index is copied into the image")
        if instruction.keyword == "RUN" and re.search(
            r"\bsed\b.*/etc/apt/|://mirrors?[.-]|>>?\s*\S*pip\.conf", text
        ):
            yield Found(line=instruction.line, what="a mirror is written into the image")


def _hashes(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, command in runs(dockerfile):
        arguments = pip_install(command)
        if arguments is not None and "--require-hashes" not in arguments and not _is_local(arguments):
            named = " ".join(word for word in arguments if not word.startswith("-"))[:60]
            yield Found(
                line=instruction.line,
                what=f"`{command.program} install {named}` takes what the index has today",
            )


def _is_local(arguments: tuple[str, ...]) -> bool:
    """Whether only folders of the build context are installed, and nothing that they ask for."""
    targets = [word for word in arguments if not word.startswith("-")]
    return "--no-deps" in arguments and bool(targets) and all(re.match(r"[./]", word) for word in targets)


def _break_system(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, command in runs(dockerfile):
        if "--break-system-packages" in command.arguments:
            yield Found(
                line=instruction.line, what=f"`{command.program}` overwrites the system's Python packages"
            )
    for instruction, name, value in settings(dockerfile, "ENV", "ARG"):
        if name in ("PIP_BREAK_SYSTEM_PACKAGES", "UV_BREAK_SYSTEM_PACKAGES") and value not in ("", "0"):
            yield Found(line=instruction.line, what=f"`{name}` overwrites the system's Python packages")


def _conda_packages(command: Command) -> tuple[str, ...] | None:
    valued = ("-c", "--channel", "-n", "--name", "-p", "--prefix", "-f", "--file")
    before = ("", *command.arguments)
    words = [
        word
        for previous, word in zip(before, command.arguments, strict=False)
        if not word.startswith("-") and previous not in valued
    ]
    if command.runs("conda", "mamba", "micromamba") and words and words[0] in ("install", "create", "update"):
        return tuple(words[1:])
    return None


def _conda_and_pip(dockerfile: Dockerfile, facts: LintFacts) -> Iterator[Found]:
    piped = facts.cuda is not None or any(
        _CUDA_STACK.match(word)
        for _i, command in final_runs(dockerfile)
        for word in pip_install(command) or ()
    )
    for instruction, command in final_runs(dockerfile) if piped else ():
        for package in filter(_CUDA_STACK.match, _conda_packages(command) or ()):
            yield Found(line=instruction.line, what=f"conda brings `{package}` and pip the framework")


def _conda_channels(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for stage in dockerfile.stages:
        if re.search(r"(continuumio|anaconda)/", stage.image):
            yield Found(line=stage.line, what=f"`{stage.image}` uses the channel `defaults`")
    for instruction, command in runs(dockerfile):
        text = " ".join(command.arguments)
        if re.search(r"/(Miniconda|Anaconda)\d*-\S*\.sh", text):
            yield Found(
                line=instruction.line, what="the installer of Anaconda sets up the channel `defaults`"
            )
        if not command.runs("conda", "mamba", "micromamba"):
            continue
        if re.search(r"(-c|--channel|channels)[ =](defaults|anaconda|pytorch(-\w+)?|pkgs/\w+)( |$)", text):
            yield Found(
                line=instruction.line, what=f"`{command.program}` uses a channel that is closed or frozen"
            )
        elif (
            command.runs("conda")
            and _conda_packages(command)
            and not re.search(r"(-c|--channel)[ =]\S+|--override-channels", text)
        ):
            yield Found(line=instruction.line, what="`conda` without a channel uses `defaults`")


RULES = (
    Rule(
        name="index-address",
        why="the address fails elsewhere, and with two indexes the wrong wheel may win (failure modes J1, G3)"
        " [opendatalab/MinerU#697]",
        fix="leave it out: the index is configuration of the build and comes in as the secret `index`",
        find=_index,
    ),
    Rule(
        name="unhashed-install",
        why="the next build gets other versions, and may replace the framework (failure modes G9, G1)",
        fix="add the package with `-r requirements.txt`, so that the lock holds it, or give --require-hashes",
        find=_hashes,
    ),
    Rule(
        name="break-system-packages",
        why="apt and pip then overwrite each other's files (failure mode G11)",
        fix="install into /opt/venv",
        find=_break_system,
    ),
    Rule(
        name="conda-and-pip",
        why="two copies of MKL, OpenMP or CUDA in one process crash it (failure mode E4)",
        fix="take the package from the index with `-r requirements.txt`",
        find=_conda_and_pip,
    ),
    Rule(
        name="conda-channel",
        why="`defaults` stops at its terms of service, the pytorch channel is no longer updated"
        " (failure mode G13)",
        fix="use conda-forge alone, or no conda",
        find=_conda_channels,
    ),
)
