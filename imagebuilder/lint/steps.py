"""Rules about what the build does: secrets, verification, GPUs, compilers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagebuilder.lint.problem import Found, LintFacts, Rule
from imagebuilder.lint.reading import pip_install, runs, script, settings
from imagebuilder.lint.shell import commands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.lint.dockerfile import Dockerfile
    from imagebuilder.lint.shell import Command

_SECRET_NAME = re.compile(
    r"(?:^|_)(TOKEN|SECRET|SECRETS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|API_KEY|ACCESS_KEY|SECRET_KEY"
    r"|PRIVATE_KEY|AUTH)(?:_ID)?$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bpypi-[\w-]{40,}|\bsk-[A-Za-z0-9_-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_CREDENTIALS = re.compile(r"[a-z][a-z0-9+.-]*://([^\s/@'\"]+)@[^\s/]")
_UNVERIFIED = (
    (re.compile(r"--trusted-host\b|--allow-insecure-host\b"), "an index is trusted without a certificate"),
    (re.compile(r"--no-check-certificate\b"), "`wget` checks no certificate"),
    (re.compile(r"http\.sslverify[= ]+(false|0)\b", re.IGNORECASE), "`git` checks no certificate"),
    (re.compile(r"ssl_verify[:= ]+(false|no)\b", re.IGNORECASE), "`conda` checks no certificate"),
    (re.compile(r"Verify-(Peer|Host)[=\s\"]+(false|0|no)\b", re.IGNORECASE), "apt checks no certificate"),
    (
        re.compile(
            r"--allow-unauthenticated|--force-yes|--allow-insecure-repositories|trusted=yes|AllowUnauthenticated"
            r"|--nogpgcheck|gpgcheck=0"
        ),
        "packages are installed without a signature",
    ),
    (re.compile(r"strict-ssl[= ]+false"), "`npm` checks no certificate"),
)
_CURL_INSECURE = re.compile(r"--insecure|-[a-zA-Z]*k[a-zA-Z]*")
_UNVERIFIED_ENV = {
    "PIP_TRUSTED_HOST": None,
    "UV_INSECURE_HOST": None,
    "PYTHONHTTPSVERIFY": ("0",),
    "GIT_SSL_NO_VERIFY": None,
    "NODE_TLS_REJECT_UNAUTHORIZED": ("0",),
    "CONDA_SSL_VERIFY": ("false", "no", "0"),
    "HF_HUB_DISABLE_SSL_VERIFICATION": None,
}
_GPU = re.compile(
    r"\bnvidia-smi\b|\bis_available\(|\btorch\.cuda\b|list_physical_devices|\bjax\.(local_)?devices\(|\bdevice_count\("
)
_FROM_SOURCE = re.compile(
    r"git\+\S+|--no-binary(=.*)?|--no-build-isolation|--no-use-pep517|flash[-_]attn\b.*|apex"
)


def _secrets(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction, name, value in settings(dockerfile, "ENV", "ARG"):
        if _SECRET_NAME.search(name) and not value.startswith("/"):
            yield Found(line=instruction.line, what=f"`{instruction.keyword} {name}` holds a secret")
    for instruction in dockerfile.instructions:
        if instruction.keyword == "ARG":
            for name in (word for word in instruction.text.split() if "=" not in word):
                if _SECRET_NAME.search(name):
                    yield Found(line=instruction.line, what=f"`ARG {name}` takes a secret")
        text = f"{script(instruction)} {' '.join(value for _, value in instruction.pairs)}"
        if _SECRET_VALUE.search(text):
            yield Found(line=instruction.line, what=f"`{instruction.keyword}` holds what looks like a token")
        elif (match := _CREDENTIALS.search(text)) and match[1] != "git":
            yield Found(
                line=instruction.line, what=f"`{instruction.keyword}` holds an address with credentials"
            )


def _unverified(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction in dockerfile.instructions:
        text = script(instruction) if instruction.keyword == "RUN" else ""
        for pattern, what in _UNVERIFIED:
            if pattern.search(text):
                yield Found(line=instruction.line, what=what)
    for instruction, command in runs(dockerfile):
        if command.program == "curl" and any(map(_CURL_INSECURE.fullmatch, command.arguments)):
            yield Found(line=instruction.line, what="`curl` checks no certificate")
        for pair in command.assignments:
            if _turned_off(*pair.split("=", 1)):
                yield Found(line=instruction.line, what=f"`{pair.split('=')[0]}` turns verification off")
    for instruction, name, value in settings(dockerfile, "ENV", "ARG"):
        if _turned_off(name, value):
            yield Found(line=instruction.line, what=f"`{name}` turns verification off")


def _turned_off(name: str, value: str) -> bool:
    if name not in _UNVERIFIED_ENV:
        return False
    values = _UNVERIFIED_ENV[name]
    return value.lower() in values if values else value.lower() not in ("", "0", "false")


def _unchecked_download(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction in dockerfile.instructions:
        remote = re.search(r"(^|[\s\"])(https?|ftp)://", instruction.text)
        if (
            instruction.keyword == "ADD"
            and remote
            and not any("--checksum=" in flag for flag in instruction.flags)
        ):
            yield Found(line=instruction.line, what="`ADD` from an address without --checksum")


def _gpu(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for instruction in dockerfile.instructions:
        if instruction.keyword != "RUN":
            continue
        match = _GPU.search(script(instruction))
        if match:
            yield Found(line=instruction.line, what=f"`{match[0].rstrip('(')}` asks for a GPU in the build")
        if any(flag.startswith("--device") for flag in instruction.flags):
            yield Found(line=instruction.line, what="`RUN --device` needs a builder with a GPU")


def _arch_list(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    names = ("TORCH_CUDA_ARCH_LIST", "FLASH_ATTN_CUDA_ARCHS", "CUDAARCHS")
    for stage in dockerfile.stages:
        for instruction in stage.instructions:
            if instruction.keyword != "RUN" or any(name in script(instruction) for name in names):
                continue
            if any(stage.variables.get(name) for name in names):
                continue
            for command in commands(script(instruction)):
                built = _built_from_source(command)
                if built:
                    yield Found(
                        line=instruction.line, what=f"`{built}` is compiled without TORCH_CUDA_ARCH_LIST"
                    )


def _built_from_source(command: Command) -> str | None:
    if command.runs("python") and any(word.endswith("setup.py") for word in command.arguments):
        return "setup.py"
    if command.runs("nvcc") and not re.search(
        r"-arch|-gencode|--gpu-architecture", " ".join(command.arguments)
    ):
        return "nvcc"
    wheel = command.runs("pip") and command.arguments[:1] == ("wheel",)
    arguments = command.arguments[1:] if wheel else pip_install(command) or ()
    return next((word for word in arguments if _FROM_SOURCE.fullmatch(word)), None)


RULES = (
    Rule(
        name="secret",
        why="build arguments and variables can be read from the image by everyone who has it"
        " (failure mode I10)",
        fix="RUN --mount=type=secret,id=NAME",
        find=_secrets,
    ),
    Rule(
        name="unverified",
        why="what is installed could come from anyone (failure mode J3)",
        fix="give a private CA with the build secret `ca` (IMGBUILD_CA) and keep verification on",
        find=_unverified,
    ),
    Rule(
        name="unchecked-download",
        why="the file may be another one next month (failure modes G9, H3)",
        fix="ADD --checksum=sha256:...",
        find=_unchecked_download,
    ),
    Rule(
        name="gpu-in-build",
        why="a build has no GPU, not even on a host with one (failure mode I9) [moby/buildkit#1436]",
        fix="leave it to `imgbuild test`, which runs it in the finished image",
        find=_gpu,
    ),
    Rule(
        name="arch-list",
        why="without a GPU the compiler guesses what to compile for: the result does not run, or takes hours"
        " (failure mode C6)",
        fix='set TORCH_CUDA_ARCH_LIST, e.g. ARG TORCH_CUDA_ARCH_LIST="8.0 8.6 9.0"',
        find=_arch_list,
    ),
)
