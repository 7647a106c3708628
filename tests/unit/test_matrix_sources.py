"""Where facts come from: the grammar of `src` and how sources are cited."""

from __future__ import annotations

import pytest

from imagebuilder.matrix import cite, load
from imagebuilder.matrix.sources import Ref, parse

MATRIX = load()


@pytest.mark.parametrize(
    ("text", "refs"),
    [
        ("pypi-meta", [("source", "pypi-meta", None)]),
        ("ptxas, nv-arch-matrix", [("source", "ptxas", None), ("source", "nv-arch-matrix", None)]),
        ("torch-table (2.15.0)", [("source", "torch-table", "2.15.0")]),
        (
            "te-matrix (bf16, fp8), cutlass-tc",
            [("source", "te-matrix", "bf16, fp8"), ("source", "cutlass-tc", None)],
        ),
        ("a (b (c), d)", [("source", "a", "b (c), d")]),
        ("https://example.org/1 (x)", [("url", "https://example.org/1", "x")]),
        ("C", [("grade", "C", None)]),
        ("C, D", [("grade", "C", None), ("grade", "D", None)]),
        ("D: same release on PyPI", [("grade", "D", "same release on PyPI")]),
        (
            "nv-images, D: read, then guessed",
            [("source", "nv-images", None), ("grade", "D", "read, then guessed")],
        ),
    ],
)
def test_what_the_grammar_reads(text: str, refs: list[tuple[str, str, str | None]]) -> None:
    """Source ids, URLs and grades, each with its detail, parted by a comma and a space."""
    assert parse(text) == tuple(Ref(*ref) for ref in refs)


@pytest.mark.parametrize(
    "text", ["", "A B", "a,b", "a;b", "a (b", "a (b) c", "E", "Pypi", "a, ", "ftp://x", "D:", "a b"]
)
def test_what_the_grammar_refuses(text: str) -> None:
    """Anything else is a ValueError that quotes what cannot be read."""
    with pytest.raises(ValueError, match="`"):
        parse(text)


def test_the_weakest_source_gives_the_grade() -> None:
    """B and C together are C; a URL counts as B; an inference is D whatever stands beside it."""
    assert cite(MATRIX, "te-matrix, cutlass-tc")[1] == "C"
    assert cite(MATRIX, "https://github.com/pytorch/pytorch/issues/107302")[1] == "B"
    assert cite(MATRIX, "pypi-index, D: guessed")[1] == "D"
    assert cite(MATRIX, "pypi-meta")[1] == "A"


def test_a_citation_says_what_was_read() -> None:
    """The text names the source, what it is, and the detail."""
    text, _ = cite(MATRIX, "torch-release-md (row 2.9)")
    assert text.startswith("torch-release-md: PyTorch RELEASE.md")
    assert text.endswith("(row 2.9)")
    assert cite(MATRIX, "D: same release on PyPI")[0] == "same release on PyPI"
