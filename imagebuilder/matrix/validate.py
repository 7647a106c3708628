"""A matrix file checked for good: everything that `load` checks, and its canonical form."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from imagebuilder.errors import MatrixError
from imagebuilder.matrix.dump import dump, header_of
from imagebuilder.matrix.files import read_bytes
from imagebuilder.matrix.loading import checked, typed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from imagebuilder.matrix.facts import Matrix


def validate(path: Path, over: Sequence[Path] = ()) -> dict[str, int]:
    """Check a complete matrix file with others laid over it; gives how many of what it holds.

    The complete file must be canonical too: the text that `dump` writes. Raises MatrixError with every
    problem, UsageError for a file that cannot be read. Never asks the cache.
    """
    contents = [read_bytes(one) for one in (path, *over)]
    alone = checked((path,), contents[:1])
    _canonical(path, contents[0].decode(), typed(alone))
    plain = checked((path, *over), contents) if over else alone
    return _counts(plain, typed(plain))


def _canonical(path: Path, text: str, matrix: Matrix) -> None:
    wanted = dump(matrix, header_of(text))
    if wanted == text:
        return
    pairs = zip_longest(text.split("\n"), wanted.split("\n"))
    line, (found, right) = next(
        ((number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1]), (1, ("", ""))
    )
    shown = "nothing more" if right is None else f"`{right}`"
    instead = repr(found)[1:-1] if found else "nothing"
    problem = f"{path}:{line}: is not in canonical form: wants {shown}, not `{instead}`"
    raise MatrixError(f"`{path}` is not in canonical form", (problem,), hint="the form is in docs/matrix.md")


def _counts(plain: Mapping[str, Any], matrix: Matrix) -> dict[str, int]:
    releases = [
        release for framework in matrix.frameworks.values() for release in framework.releases.values()
    ]
    return {
        "facts": sum(_facts(value) for name, value in plain.items() if name not in ("schema", "sources")),
        "releases": len(releases),
        "builds": sum(len(release.builds) for release in releases),
        "toolkits": len(matrix.toolkits),
        "GPUs": len(matrix.gpus),
        "sources": len(matrix.sources),
    }


def _facts(value: Any) -> int:
    """Count the single facts of a document: a list is one; where a fact comes from and notes are none."""
    if isinstance(value, dict):
        return sum(_facts(one) for name, one in value.items() if name not in ("src", "note"))
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return sum(map(_facts, value))
    return 1
