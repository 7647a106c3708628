"""A matrix file as a document to be changed: read without the checks across rows, checked when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imagebuilder.errors import MatrixError
from imagebuilder.matrix.check import check
from imagebuilder.matrix.dump import dump, header_of
from imagebuilder.matrix.files import read_bytes
from imagebuilder.matrix.loading import typed
from imagebuilder.matrix.read import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imagebuilder.matrix.findings import Finding


def read_document(path: Path) -> tuple[str, dict[str, Any]]:
    """Give the text and the document of a complete file whose rows fit the schema.

    Rows may name others that are not there. Raises MatrixError, UsageError for a file that cannot be read.
    """
    content = read_bytes(path)
    reader = Reader(path, content, partial=False)
    if reader.problems:
        raise MatrixError(
            f"the matrix `{path}` cannot be read",
            tuple(reader.problems),
            hint="mend the file; imgbuild matrix validate names its problems",
        )
    return content.decode(), reader.plain


def findings(plain: Mapping[str, Any]) -> list[Finding]:
    """Find everything that is wrong with a document whose rows fit the schema."""
    return list(check(typed(plain), plain))


def canonical(plain: Mapping[str, Any], text: str) -> str:
    """Write a document in canonical form, below the comments that head `text`."""
    return dump(typed(plain), header_of(text))
