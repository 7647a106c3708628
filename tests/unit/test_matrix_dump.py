"""Loading a matrix and dumping it again gives the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from small_matrix import SMALL

from imagebuilder.errors import MatrixError
from imagebuilder.matrix.dump import WIDTH, dump, dump_plain, header_of
from imagebuilder.matrix.loading import checked, typed
from imagebuilder.matrix.validate import validate
from imagebuilder.resources import matrix_path


@pytest.mark.parametrize(
    "text", [SMALL, matrix_path().read_text(encoding="utf-8")], ids=["small", "packaged"]
)
def test_load_and_dump_is_the_identity(text: str) -> None:
    """Load, then dump: the same bytes, header comment included."""
    matrix = typed(checked((Path("m.yaml"),), (text.encode(),)))
    assert dump(matrix, header_of(text)) == text


def test_the_header_is_the_comment_block_at_the_top() -> None:
    """The header ends before the first key, with the empty lines behind the comments."""
    assert header_of("# a\n# b\n\nschema: 1\n# c\n") == "# a\n# b\n\n"
    assert header_of("schema: 1\n") == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("grade: A, what", "grade: 'A', what"),
        ("    arch: Volta", "    arch: Volta  # a comment"),
        ("    arch: Volta\n    kind: datacenter\n", "    kind: datacenter\n    arch: Volta\n"),
        ("[fp16, bf16]", "\n      - fp16\n      - bf16"),
        ("\n\ngpus:", "\ngpus:"),
        ("    amp: bf16\n", "    amp: bf16 \n"),
        ("driver_branch: 530\n", "driver_branch: 530\r\n"),
    ],
)
def test_another_form_is_reported_with_its_first_line(tmp_path: Path, old: str, new: str) -> None:
    """A sound file in another form is refused by `validate`, with the first line that differs."""
    text = SMALL.replace(old, new, 1)
    assert text != SMALL
    file = tmp_path / "m.yaml"
    file.write_bytes(text.encode())
    with pytest.raises(MatrixError, match="is not in canonical form") as caught:
        validate(file)
    line = next(
        n for n, (a, b) in enumerate(zip(SMALL.split("\n"), text.split("\n"), strict=False), 1) if a != b
    )
    assert caught.value.problems[0].startswith(f"{file}:{line}: ")


def test_a_canonical_file_is_counted(tmp_path: Path) -> None:
    """`validate` gives how many facts, releases and builds there are."""
    file = tmp_path / "m.yaml"
    file.write_text(SMALL, encoding="utf-8")
    counts = validate(file)
    assert (counts["releases"], counts["builds"], counts["toolkits"]) == (1, 3, 2)
    assert counts["facts"] > 100


def test_lines_stay_readable() -> None:
    """Only texts that cannot be parted make a line longer than the width."""
    for line in matrix_path().read_text(encoding="utf-8").splitlines():
        assert (
            len(line) <= WIDTH or line.startswith("#") or line.rstrip("'").count("'") <= 3 or "{" not in line
        )


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(
    lambda text: text.isprintable() and text == text.strip()
)
DOCUMENTS = st.recursive(
    TEXTS | st.integers(1, 10**6) | st.booleans(),
    lambda inner: st.lists(TEXTS, max_size=30) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(TEXTS, DOCUMENTS, min_size=1, max_size=5))
def test_yaml_reads_back_what_dump_wrote(document: dict[str, object]) -> None:
    """Whatever printable text a fact holds, YAML reads back the same value of the same type."""
    assert yaml.load(dump_plain(document), Loader=yaml.CSafeLoader) == document
