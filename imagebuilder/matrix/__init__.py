"""The compatibility facts: `load` reads and checks matrix.yaml, `cite` names where a fact comes from.

The names are imported when they are used, so that the small words of `words` stay cheap to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imagebuilder.matrix.facts import Grade
    from imagebuilder.matrix.facts import Matrix as Matrix

__all__ = ["Matrix", "cite", "load"]


def load(paths: Sequence[Path] = ()) -> Matrix:
    """Load the packaged matrix with these files laid over it, each adding or replacing whole rows by key.

    Raises MatrixError with every problem of every file, UsageError for a file that cannot be read.
    """
    from imagebuilder.matrix.loading import load_over
    from imagebuilder.resources import matrix_path

    return load_over(matrix_path(), paths)


def cite(matrix: Matrix, src: str) -> tuple[str, Grade]:
    """Give a sentence part that names the sources of a `src` value, and the weakest grade among them."""
    from imagebuilder.matrix import sources

    return sources.cite(matrix, src)


def __getattr__(name: str) -> Any:
    if name == "Matrix":
        from imagebuilder.matrix.facts import Matrix

        return Matrix
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
