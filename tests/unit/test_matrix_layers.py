"""Override files add or replace whole rows by key, never field by field."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from small_matrix import SMALL

from imagebuilder.errors import MatrixError
from imagebuilder.matrix.loading import checked, load_over, typed

if TYPE_CHECKING:
    from imagebuilder.matrix.facts import Matrix


def over(*texts: str) -> Matrix:
    """Lay files with these texts over the small matrix."""
    paths = [Path("small.yaml"), *(Path(f"over{number}.yaml") for number in range(1, len(texts) + 1))]
    return typed(checked(paths, [SMALL.encode(), *(text.encode() for text in texts)]))


RELEASE = """
  {version}:
    released: '2024-01-01'
    requires_python: '>=3.8'
    builds:
      cu118:
        source: own
        version: {version}+cu118
        cuda: '11.8'
        wheels: {{x86_64: {{python: [cp311], glibc: '2.17'}}}}
        grade: C
"""


def releases(*versions: str) -> str:
    """Write an override with nothing but releases of pytorch."""
    rows = "".join(RELEASE.format(version=f"{version}") for version in versions)
    return "schema: 1\nframeworks:\n pytorch:\n  releases:" + rows.replace("\n", "\n  ")


def test_a_new_row_is_added() -> None:
    """A row with a new key stands beside the old ones."""
    matrix = over("schema: 1\nnccl:\n  '2.20.5': {cuda_majors: [12]}\n")
    assert list(matrix.nccl) == ["2.18.1", "2.20.5"]


def test_a_row_of_the_same_key_is_replaced_whole() -> None:
    """Facts of the old row do not shine through the new one."""
    matrix = over(
        "schema: 1\ntoolkits:\n  '12.1':\n    driver_branch: 530\n    driver_min: '530.30.02'\n"
        "    capabilities: ['5.0', '7.0', '9.0']\n    releases: {'12.1.1': {}}\n"
    )
    assert matrix.toolkits["12.1"].driver_packaged is None
    assert list(matrix.toolkits["12.1"].releases) == ["12.1.1"]
    assert list(matrix.toolkits) == ["11.8", "12.1"]


def test_releases_are_rows_of_their_framework() -> None:
    """A framework with nothing but `releases` adds to and replaces releases, and keeps the rest."""
    matrix = over(releases("2.1.0", "2.2.0"))
    framework = matrix.frameworks["pytorch"]
    assert framework.package == "torch"
    assert list(framework.releases) == ["2.1.0", "2.2.0"]
    assert list(framework.releases["2.1.0"].builds) == ["cu118"]


def test_package_releases_are_rows() -> None:
    """Rows of `packages` are keyed by package and version."""
    matrix = over("schema: 1\npackages:\n  numpy:\n    '2.0.2': {python: [cp311]}\n")
    assert list(matrix.packages["numpy"]) == ["1.26.4", "2.0.2"]


def test_clashes_are_appended() -> None:
    """Rules have no key; more of them stand behind the old ones."""
    rule = (
        "schema: 1\nclashes:\n  - {framework: pytorch, spec: <2, package: a, needs: <1, why: b, src: notes}\n"
    )
    assert [clash.package for clash in over(rule, rule).clashes] == ["other", "a", "a"]


def test_later_files_win() -> None:
    """Of several files the last one with a key has it."""
    text = "schema: 1\ndriver_branches:\n  '535': {{kind: {}}}\n"
    assert over(text.format("one"), text.format("two")).driver_branches["535"].kind == "two"


def test_problems_name_the_file_that_they_are_in() -> None:
    """A reference that an override breaks is reported in the override, at its line."""
    text = (
        "schema: 1\n\nframeworks:\n  pytorch:\n    package: torch\n    beside: [nothing]\n    releases: {}\n"
    )
    with pytest.raises(MatrixError) as caught:
        over(text)
    assert caught.value.problems == (
        "over1.yaml:6: frameworks.pytorch.beside.0: names an unknown package `nothing`",
    )
    assert "`over1.yaml`" in caught.value.what


def test_an_override_can_break_the_packaged_rows() -> None:
    """A replaced row that others counted on is a problem, where they name it."""
    text = "schema: 1\ntoolkits:\n  '12.1':\n    driver_branch: 530\n    driver_min: '525.60.13'\n"
    text += "    capabilities: ['5.0', '7.0', '9.0']\n    releases: {'12.1.0': {}}\n"
    with pytest.raises(MatrixError) as caught:
        over(text)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["small.yaml"]
    assert "unknown release of CUDA 12.1 `12.1.1`" in caught.value.problems[0]


@pytest.mark.parametrize(
    "text", ["", "schema: 2\n", "gpus: {}\n", "schema: 1\ngpus: {A: {}}\n", "- 1\n", "schema: 1\nx: 1\n"]
)
def test_broken_overrides_are_refused(text: str) -> None:
    """An override is checked like the packaged file, except that sections may be missing."""
    with pytest.raises(MatrixError, match=r"over1\.yaml"):
        over(text)


def test_the_digest_is_of_all_files(tmp_path: Path) -> None:
    """Another override, or another order, gives another digest; the same files give the same."""
    small, one, two = (tmp_path / f"{name}.yaml" for name in ("small", "one", "two"))
    small.write_text(SMALL)
    one.write_text("schema: 1\n")
    two.write_text("schema: 1\n\n")
    digests = [
        load_over(small, paths).digest for paths in ((), (one,), (two,), (one, two), (two, one), (one,))
    ]
    assert len(set(digests)) == 5
    assert digests[1] == digests[5]
    assert all(digest.startswith("sha256:") and len(digest) == 71 for digest in digests)
