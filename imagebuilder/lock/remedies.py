"""Ways out of a clash, as commands that work: rewrite the line, or take the release that the line fits."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from imagebuilder.errors import UnmetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imagebuilder.lock.requirements import UserRequirement
    from imagebuilder.matrix.facts import Matrix
    from imagebuilder.resolve.stack import Stack

Remedy = dict[str, str]


def rewritten(one: UserRequirement, specifier: str) -> Remedy:
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
    words = ["imgbuild", "lock", "--framework", f"{stack.framework}{spec}"]
    words += ["--cuda", cuda] if cuda else []
    words += ["--arch", stack.arch] if stack.arch != "amd64" else []
    for path in _files(requirements):
        words += ["-r", str(path)]
    return {
        "change": f"{found.framework} {found.version} for CUDA {found.cuda}",
        "command": shlex.join(words),
    }


def _files(requirements: Sequence[UserRequirement]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(one.root for one in requirements))
