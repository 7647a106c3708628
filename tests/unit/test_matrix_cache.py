"""Checked matrices are remembered; a cache that is broken, foreign or forbidden changes nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from small_matrix import SMALL

from imagebuilder.matrix import cache
from imagebuilder.matrix.loading import load_over

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "imgbuild" / "matrix"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Give the small matrix as a file."""
    file = tmp_path / "small.yaml"
    file.write_text(SMALL, encoding="utf-8")
    return file


def test_a_second_load_reads_no_yaml(home: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked once is read from the cache and is the same matrix."""
    first = load_over(small, ())
    assert len(list(home.glob("*.json"))) == 1
    monkeypatch.setitem(sys.modules, "yaml", None)
    second = load_over(small, ())
    assert second == first
    assert second.digest == first.digest


def test_changed_bytes_are_read_again(home: Path, small: Path) -> None:
    """The cache is keyed by the bytes of the file, not by its name."""
    load_over(small, ())
    small.write_text(SMALL.replace("memory", "memory").replace("kind: LTSB", "kind: PB"), encoding="utf-8")
    assert load_over(small, ()).driver_branches["535"].kind == "PB"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"schema": 1}', b"[" * 100_000])
def test_a_damaged_cache_is_passed_over(home: Path, small: Path, content: bytes) -> None:
    """A damaged file in the cache is ignored and written anew."""
    first = load_over(small, ())
    (file,) = home.glob("*.json")
    file.write_bytes(content)
    assert load_over(small, ()) == first
    assert file.read_bytes() != content


def test_a_cache_that_cannot_be_written_is_passed_over(
    tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the cache folder cannot be made, loading works all the same."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert load_over(small, ()).schema == 1


def test_a_broken_matrix_is_not_remembered(home: Path, small: Path) -> None:
    """Only what passed every check is remembered."""
    small.write_text(SMALL.replace("arch: Volta", "arch: 7"), encoding="utf-8")
    with pytest.raises(Exception, match="the matrix has a problem"):
        load_over(small, ())
    assert not home.exists()


def test_the_cache_stays_small_and_clean(home: Path, small: Path) -> None:
    """Old documents go, and nothing half-written is left."""
    for number in range(12):
        small.write_text(SMALL + "\n" * number, encoding="utf-8")
        load_over(small, ())
    assert len(list(home.iterdir())) == cache._KEPT
