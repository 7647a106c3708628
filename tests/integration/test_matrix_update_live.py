"""Facts of the packaged matrix, derived again from the configured index: parts of wheels, some 40 MB."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from imagebuilder.index import default_index
from imagebuilder.matrix.edit import read_document
from imagebuilder.remote.client import Client
from imagebuilder.resources import matrix_path
from imagebuilder.solver import uv_default
from imagebuilder.update import Update, Wanted, update
from imagebuilder.update.compare import INDEX_SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# One of each kind: a CUDA runtime inside the wheel, exact pins of CUDA 12.1, and of CUDA 12.8.
RELEASES = ("1.13.1", "2.4.1", "2.9.1")
Row = dict[str, Any]


@pytest.fixture(scope="module")
def packaged() -> Row:
    """Give the releases of the packaged matrix."""
    releases: Row = read_document(matrix_path())[1]["frameworks"]["pytorch"]["releases"]
    return releases


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder for the answers of the index."""
    return tmp_path_factory.mktemp("answers")


def derived(answers: Path) -> tuple[Update, Client]:
    """Derive the releases for a matrix that has none of them."""
    _, plain = read_document(matrix_path())
    for version in RELEASES:
        del plain["frameworks"]["pytorch"]["releases"][version]
    index = default_index()
    client = Client(replace(index, address=index.address or uv_default()), answers)
    wanted = Wanted(framework="pytorch", releases=tuple(map(Version, RELEASES)))
    return update(plain, wanted, client, lambda text: None), client


def facts(row: Row, where: str = "") -> Iterator[tuple[str, Any]]:
    """Give the facts of a row that were read of an index, by their place."""
    for name, source in row.get("src", {}).items():
        fact, _, entry = name.partition(".")
        if source.partition(" ")[0] in INDEX_SOURCES:
            yield f"{where}{name}", row[fact][entry] if entry else row[fact]
    for table in ("builds", "wheels"):
        for name, inner in row.get(table, {}).items():
            yield from facts(inner, f"{where}{table}.{name}.")


def test_the_index_tells_again_what_the_matrix_holds(packaged: Row, answers: Path) -> None:
    """Every fact that was read of an index comes out the same from nothing."""
    found, client = derived(answers)
    assert found.blocked == {}
    assert client.traffic.bytes < 60e6
    for version in RELEASES:
        held = dict(facts(packaged[version]))
        told = dict(facts(found.plain["frameworks"]["pytorch"]["releases"][version]))
        assert len(held) > 15
        assert {place: told.get(place) for place in held} == held


def test_what_was_read_is_not_asked_for_again(answers: Path) -> None:
    """A second run asks for project pages alone."""
    derived(answers)
    _, client = derived(answers)
    assert client.traffic.requests < 10
