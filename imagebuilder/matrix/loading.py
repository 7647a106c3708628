"""From files to a Matrix: read, lay over each other, check, remember what passed."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from imagebuilder.errors import MatrixError
from imagebuilder.matrix import cache
from imagebuilder.matrix.facts import Matrix
from imagebuilder.matrix.files import read_bytes
from imagebuilder.matrix.shape import Record, maker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
from shlex import quote

# How many names lead from a section to its rows, where it is not one.
_DEEP = {"packages": 2}


def load_over(packaged: Path, paths: Sequence[Path]) -> Matrix:
    """Load a complete matrix file with others laid over it; `digest` is over the bytes of them all.

    Raises MatrixError with every problem of every file, UsageError for a file that cannot be read.
    """
    contents = [read_bytes(path) for path in (packaged, *paths)]
    digest = _digest(contents)
    plain = cache.get(digest)
    if plain is None:
        plain = checked((packaged, *paths), contents)
        cache.put(digest, plain)
    return typed(plain, f"sha256:{digest}")


def typed(plain: Mapping[str, Any], digest: str = "") -> Matrix:
    """Turn a checked document into a Matrix; rows are made when they are first asked for."""
    matrix: Matrix = maker(Record(Matrix))(plain)
    return replace(matrix, digest=digest)


def _digest(contents: Sequence[bytes]) -> str:
    """Hash the bytes used: of one file its own sha256, of several that over their sha256 in order."""
    parts = [hashlib.sha256(content).hexdigest() for content in contents]
    return parts[0] if len(parts) == 1 else hashlib.sha256("\n".join(parts).encode()).hexdigest()


def checked(paths: Sequence[Path], contents: Sequence[bytes]) -> dict[str, Any]:
    """Read files laid over each other, the first a complete one; raises MatrixError with all problems."""
    from imagebuilder.matrix.check import check
    from imagebuilder.matrix.layers import Layers
    from imagebuilder.matrix.read import Reader

    layers = Layers()
    problems: list[str] = []
    for number, (path, content) in enumerate(zip(paths, contents, strict=True)):
        reader = Reader(path, content, partial=number > 0)
        problems += reader.problems
        layers.lay(reader)
    plain = {**_empty(), **layers.plain}
    for finding in check(typed(plain), plain):
        if finding.missing and (finding.missing in layers.places or finding.missing[0] not in layers.plain):
            continue
        path, line = layers.place(finding.where)
        problems.append(f"{path}:{line}: {'.'.join(map(str, finding.where))}: {finding.message}")
    if problems:
        raise _broken(problems, paths)
    return plain


def _empty() -> dict[str, Any]:
    """Give a document without facts: what a file that lacks a section is checked as."""
    from imagebuilder.matrix.shape import Items, Scalar, facts_of

    shapes = {name: fact.shape for name, fact in facts_of(Matrix).items()}
    return {
        name: 1 if isinstance(shape, Scalar) else [] if isinstance(shape, Items) else {}
        for name, shape in shapes.items()
    }


def _broken(problems: Sequence[str], paths: Sequence[Path]) -> MatrixError:
    broken = [path for path in paths if any(problem.startswith(f"{path}:") for problem in problems)]
    count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
    what = f"the matrix has {count} in " + " and ".join(f"`{path}`" for path in broken)
    named = "".join(f" --matrix {quote(str(path))}" for path in paths[1:])
    again = f"imgbuild matrix validate{named or ' ' + quote(str(paths[0]))}"
    return MatrixError(what, tuple(problems), hint=f"mend the file, then: {again}")
