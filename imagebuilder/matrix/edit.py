"""A matrix file as a document to be changed: read without the checks across rows, checked when it is done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imagebuilder.errors import MatrixError
from imagebuilder.matrix.check import check
from imagebuilder.matrix.dump import dump, dump_plain, header_of
from imagebuilder.matrix.files import read_bytes
from imagebuilder.matrix.loading import typed
from imagebuilder.matrix.read import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagebuilder.matrix.findings import Finding

# What stands for the file of a row that is in none yet.
_MADE = Path("made")


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


def misfits(framework: str, package: str, version: str, release: dict[str, Any]) -> list[str]:
    """Find what a release that was made elsewhere holds and a matrix file cannot: `fact: message`."""
    document = {
        "schema": 1,
        "frameworks": {framework: {"package": package, "releases": {version: release}}},
    }
    reader = Reader(_MADE, dump_plain(document).encode(), partial=True)
    where = f"frameworks.{framework}.releases.{version}."
    problems = [re.sub(rf"^{_MADE}:\d+: ({re.escape(where)})?", "", one) for one in reader.problems]
    if not problems and reader.plain != document:
        problems.append("holds a text that YAML does not keep as it is")
    return problems


def findings(plain: Mapping[str, Any]) -> list[Finding]:
    """Find everything that is wrong with a document whose rows fit the schema."""
    return list(check(typed(plain), plain))


def canonical(plain: Mapping[str, Any], text: str) -> str:
    """Write a document in canonical form, below the comments that head `text`."""
    return dump(typed(plain), header_of(text))
