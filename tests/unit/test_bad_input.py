"""Bad input: every malformed request and file is refused in a sentence, and leaves nothing behind."""

from __future__ import annotations

import re
from pathlib import Path

import bad_locks as hostile
import bad_templates
import pytest
from bad_matrices import MATRICES, WHOLE
from bad_requests import REQUESTS, Bad
from bad_requirements import FILES, LINES
from bad_run import assert_clear, content, imgbuild
from bad_templates import TEMPLATES
from small_matrix import SMALL

from imagebuilder import resources
from imagebuilder.lock.files import write_lock


@pytest.mark.parametrize("bad", REQUESTS.values(), ids=REQUESTS)
def test_a_malformed_request_is_refused(bad: Bad, place: Path) -> None:
    """The message names what is wrong, the exit code its kind; no file is made or changed."""
    before = content(place)
    outcome = imgbuild(*bad.words, within=place)
    assert_clear(outcome, (bad.code,), bad.says)
    assert content(place) == before


@pytest.mark.parametrize(("held", "says"), MATRICES.values(), ids=MATRICES)
def test_a_broken_matrix_is_refused(
    held: bytes, says: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named with a line, gets no further than loading, and is not remembered in the cache."""
    (place / "packaged.yaml").write_text(SMALL)
    monkeypatch.setattr(resources, "matrix_path", lambda: place / "packaged.yaml")
    Path("ours.yaml").write_bytes(held)
    before = content(place)
    outcome = imgbuild("resolve", "-f", "pytorch", "--matrix", "ours.yaml", "--format", "json", within=place)
    assert_clear(outcome, (2,), ("ours.yaml:", *says))
    assert content(place) == before


@pytest.mark.parametrize(("held", "says"), WHOLE.values(), ids=WHOLE)
def test_a_broken_whole_matrix_is_refused(held: bytes, says: tuple[str, ...], place: Path) -> None:
    """`matrix validate` names what is wrong with its file and line."""
    Path("ours.yaml").write_bytes(held)
    before = content(place)
    assert_clear(imgbuild("matrix", "validate", "ours.yaml", within=place), (2,), ("ours.yaml:", *says))
    assert content(place) == before


@pytest.mark.parametrize("line", LINES, ids=lambda line: ascii(line)[1:40])
def test_a_hostile_line_of_requirements_is_refused(line: str, place: Path) -> None:
    """It is named with its file and line."""
    Path("req.txt").write_bytes(f"numpy\n{line}\n".encode("utf-8", "surrogatepass"))
    before = content(place)
    outcome = imgbuild("lock", "-f", "pytorch", "-r", "req.txt", within=place)
    assert_clear(outcome, (2,), LINES[line])
    assert re.search(r"req\.txt(:2:|`)|no requirements file|cannot read `missing", outcome.sentence)
    assert "secret" not in outcome.stderr
    assert content(place) == before


@pytest.mark.parametrize(("held", "says"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_requirements_is_refused(held: bytes, says: tuple[str, ...], place: Path) -> None:
    """Whatever bytes it holds."""
    Path("req.txt").write_bytes(held)
    before = content(place)
    assert_clear(imgbuild("build", "-f", "pytorch", "-r", "req.txt", within=place), (2,), says)
    assert content(place) == before


@pytest.mark.parametrize(("held", "says"), TEMPLATES.values(), ids=TEMPLATES)
def test_a_broken_template_is_refused(held: str | bytes, says: tuple[str, ...], place: Path) -> None:
    """Before anything is written, in bounded time and memory."""
    write_lock(hostile.on_a_registry(), hostile.GLIBC, Path("x.lock"))
    Path("mine").mkdir()
    Path("mine", bad_templates.NAME).write_bytes(held if isinstance(held, bytes) else held.encode())
    before = content(place)
    words = ("render", "--lock", "x.lock", "--templates", "mine", "-o", "context")
    assert_clear(imgbuild(*words, within=place), (2,), says)
    assert content(place) == before
