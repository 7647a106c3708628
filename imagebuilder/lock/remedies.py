"""Ways out of a clash, as commands that work: rewrite the line, or take the release that the line fits."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from imagebuilder.errors import UnmetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagebuilder.lock.requirements import UserRequirement
    from imagebuilder.matrix.facts import Matrix
    from imagebuilder.resolve.stack import Stack

Remedy = dict[str, str]


def mended(stack: Stack, requirements: Sequence[UserRequirement], one: UserRequirement, spec: str) -> Remedy:
    """Give the command that ends a clash: the line with another specifier, or all without the extra."""
    return _rewritten(one, spec) if one.extra is None else _without_extra(stack, requirements, one.extra)


def _without_extra(stack: Stack, requirements: Sequence[UserRequirement], extra: str) -> Remedy:
    """Give the command that locks the same stack without an extra, which no file of the user's holds."""
    others = [name for name in stack.extras if name != extra]
    words = _lock(stack, f"=={stack.version}", str(stack.cuda), others, requirements)
    return {"change": f"without `--with {extra}`", "command": shlex.join(words)}


def _rewritten(one: UserRequirement, specifier: str) -> Remedy:
    """Give the command that replaces the lines of a requirement by its package with another specifier."""
    requirement = one.requirement
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f"; {requirement.marker}" if requirement.marker else ""
    text = f"{requirement.name}{extras}{specifier}{marker}"
    lines = str(one.first) if one.first == one.last else f"{one.first},{one.last}"
    command = ["sed", "-i", f"{lines}c {text}", str(one.path)]
    return {"change": f"`{text}` in {one.place}", "command": shlex.join(command)}


def other_release(
    stack: Stack, matrix: Matrix, requirements: Sequence[UserRequirement], spec: str, cuda: str | None = None
) -> Remedy | None:
    """Give the command that locks another release of the framework, None where the matrix has none such."""
    from imagebuilder.request import parse_request
    from imagebuilder.resolve import resolve

    try:
        request = parse_request(framework=f"{stack.framework}{spec}", cuda=cuda, arch=stack.arch)
        found = resolve(request, matrix)
    except (UnmetError, UsageError):
        return None
    words = _lock(stack, spec, cuda, stack.extras, requirements)
    return {
        "change": f"{found.framework} {found.version} for CUDA {found.cuda}",
        "command": shlex.join(words),
    }


def _lock(
    stack: Stack,
    spec: str,
    cuda: str | None,
    extras: Sequence[str],
    requirements: Sequence[UserRequirement],
) -> list[str]:
    words = ["imgbuild", "lock", "--framework", f"{stack.framework}{spec}"]
    words += ["--cuda", cuda] if cuda else []
    words += ["--arch", stack.arch] if stack.arch != "amd64" else []
    for extra in extras:
        words += ["--with", extra]
    for path in dict.fromkeys(one.root for one in requirements if one.extra is None):
        words += ["-r", str(path)]
    return words
