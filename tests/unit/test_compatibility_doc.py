"""docs/compatibility.md is whole and true: every number and id is there, every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from imagebuilder.checks.catalogue import CHECKS
from imagebuilder.lint import RULES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
SECTIONS = {
    title: body
    for title, _, body in (part.partition("\n") for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:])
}
VERSIONS, WORST = "Incompatibilities of versions", "What hurts most"
CASES, OTHERS = "Cases from public threads", "Other ids that messages name"

# The worst 25 by how often they were met and what they cost, worst first.
TOP_25 = [
    "B1", "C1", "G1", "B3", "A1", "E1", "G5", "H1", "E3", "K1", "I3", "A4", "F2",
    "M2", "M1", "A2", "C2", "D4", "F1", "F5", "G2", "G6", "G9", "H3", "I12",
]  # fmt: skip
# Threads about PyTorch, about CI and about other frameworks.
THREADS = [1, 2, 3, 4, 5, 7, 9, 10, 13, 14, 15, 17, 18, 19, 23, 28, 29, 30]
UNPROVEN = "not yet"


def rows(section: str) -> list[list[str]]:
    """Give the cells of a table's rows, without its head."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


@cache
def tree(path: Path) -> ast.Module:
    """Parse a file of tests, without importing it."""
    return ast.parse(path.read_text(encoding="utf-8"))


def names_in(path: Path) -> set[str]:
    """Give the names of a file's tests as pytest writes them: `test_x`, `TestY::test_x`."""
    inside = [(node, f"{node.name}::") for node in tree(path).body if isinstance(node, ast.ClassDef)]
    return {
        start + node.name
        for holder, start in [(tree(path), ""), *inside]
        for node in holder.body
        if isinstance(node, ast.FunctionDef)
    }


def texts_in(path: Path) -> set[object]:
    """Give the literals of a file, among them the ids of its parameters."""
    return {node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)}


_NAME = r"`(tests/[\w/]+\.py)::((?:Test\w+::)?test_\w+)(?:\[([\w-]+)\])?`"
NAMED = sorted(set(re.findall(_NAME, TEXT)))


@pytest.mark.parametrize(("path", "name", "parameter"), NAMED, ids=["::".join(one) for one in NAMED])
def test_every_test_that_is_named_exists(path: str, name: str, parameter: str) -> None:
    """What is said to prove a line can be run under this name."""
    assert name in names_in(ROOT / path)
    assert not parameter or parameter in texts_in(ROOT / path)


def test_every_test_is_named_in_full() -> None:
    """A test is named as `path::name`, so that it can be pasted behind pytest."""
    loose = [cell for section in (VERSIONS, WORST) for row in rows(section) for cell in row[4].split("<br>")]
    assert [cell for cell in loose if cell != "—" and not re.fullmatch(_NAME, cell)] == []


def test_all_47_incompatibilities_are_there_once_and_in_order() -> None:
    """No known incompatibility is left out of the table."""
    assert [row[0] for row in rows(VERSIONS)] == [str(number) for number in range(1, 48)]


def test_the_worst_25_are_there_once_and_in_order() -> None:
    """The table begins with what hurts most."""
    assert [row[0] for row in rows(WORST)] == TOP_25


def test_the_cases_are_there() -> None:
    """Each case has its row; those about PyTorch have a test."""
    assert [int(row[0]) for row in rows(CASES)] == THREADS


@pytest.mark.parametrize("section", [VERSIONS, WORST, CASES])
def test_what_is_caught_is_proven(section: str) -> None:
    """A row either says that it is not reached yet, or names a test; every row has a source."""
    for row in rows(section):
        assert all(row), f"row {row[0]} has an empty cell"
        assert (row[-2] == "—") == row[2].startswith(UNPROVEN), f"row {row[0]}"


@pytest.mark.parametrize("section", [VERSIONS, WORST, CASES])
def test_checks_and_rules_that_are_named_exist(section: str) -> None:
    """A smoke check is one of the catalogue, a rule one of the lint."""
    known = {check.id for check in CHECKS} | {check.id.split(".")[0] for check in CHECKS} | set(RULES)
    caught = [word for row in rows(section) for word in re.findall(r"`([^`]+)`", row[2])]
    assert caught
    others = {"io.imgbuild.driver.min", "build", "test"}
    assert set(caught) - known - others == set()


def test_every_number_that_a_message_names_is_explained() -> None:
    """A person who reads `failure mode B3` or `gotcha 17` in a message finds it in this document."""
    known = {row[0] for section in (VERSIONS, WORST, OTHERS) for row in rows(section)}
    named: set[str] = set()
    for path in ROOT.glob("imagebuilder/**/*.py"):
        text = path.read_text(encoding="utf-8")
        for words in re.findall(r"(?:failure modes?|gotchas?) ((?:(?:, | and )?[A-Z]?\d+)+)", text):
            named.update(re.findall(r"[A-Z]?\d+", words))
    assert len(named) > 20
    assert named - known == set()


def test_sources_are_public() -> None:
    """A source is a public address or the artefact itself, never a file of somebody's machine."""
    assert "../" not in TEXT
    assert re.findall(r"\]\((?!https://|[\w-]+\.md\))[^)]*\)", TEXT) == []
