"""What `--with` adds to a stack, by the facts of the matrix."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from imagebuilder.errors import UnmetError, UsageError
from imagebuilder.matrix.check_extras import ANY
from imagebuilder.resolve.explain import joined, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagebuilder.matrix.facts import Matrix


def check_extras(matrix: Matrix, framework: str, names: Iterable[str]) -> None:
    """See that each extra exists and has something for the framework.

    Raises UsageError for a name that the matrix does not know, UnmetError where an extra serves others only.
    """
    for name in names:
        extra = matrix.extras.get(name)
        if extra is None:
            near = get_close_matches(name, matrix.extras, n=1)
            raise UsageError(
                f"no extra named `{name}` is known",
                why=f"known are {joined(sorted(matrix.extras))}" if matrix.extras else None,
                hint=f"--with {near[0]}" if near else "imgbuild resolve --help",
            )
        if not extra.debs and not requirements(matrix, framework, name):
            served = sorted(extra.requires)
            fact = f"it has wheels for {joined(served)} only"
            raise UnmetError(
                f"the extra `{name}` has nothing for {framework}",
                conflicts=(
                    {
                        "constraint": f"--with {name}",
                        "fact": f"{fact}: {extra.note}" if extra.note else fact,
                        "source": source_of(matrix, extra.src, "requires"),
                    },
                ),
                alternatives=(
                    {"change": "leave it out", "command": f"imgbuild resolve --framework {framework}"},
                ),
            )


def requirements(matrix: Matrix, framework: str, name: str) -> tuple[str, ...]:
    """Give the requirements of an extra for a framework, with those that hold for every framework."""
    requires = matrix.extras[name].requires
    return (*requires.get(ANY, ()), *requires.get(framework, ()))


def debs(matrix: Matrix, names: Iterable[str]) -> tuple[str, ...]:
    """Give the packages of the distribution that extras add, sorted."""
    return tuple(sorted({deb for name in names for deb in matrix.extras[name].debs}))
