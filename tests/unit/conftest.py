"""Unit tests are fast and alone: a guard turns real work into a failure."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest
from guard import guarded

from imagebuilder.matrix import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Variables of the host that runs the tests, which decide what a command does.
FOREIGN = ("IMGBUILD_", "DOCKER_", "UV_", "PIP_", "SSL_CERT", "REQUESTS_CA", "CURL_CA", "XDG_")


@pytest.fixture(autouse=True)
def no_real_work() -> Iterator[None]:
    """Fail a test that starts an engine, an installer or another program, or leaves this host."""
    with guarded() as tried:
        yield
    assert not tried, f"a unit test {'; '.join(tried)}"


@pytest.fixture(scope="session")
def matrix_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a cache folder with the packaged matrix in it: reading the YAML for each test takes seconds."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        load(())
    return folder


@pytest.fixture
def place(tmp_path: Path, matrix_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a working folder with a `file` and a `folder`, on a host without engine, index and programs.

    It lies in folders that a run of the command line may write to, for what is left there to be found:
    `home`, `tmp`, and `cache` with the packaged matrix.
    """
    for name in ("home", "tmp", "cache", "work/folder"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copytree(matrix_cache, tmp_path / "cache", dirs_exist_ok=True)
    (tmp_path / "work" / "file").write_text("not: [what\n")
    for variable in [one for one in os.environ if one.startswith(FOREIGN)]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    monkeypatch.setenv("IMGBUILD_INDEX_PYPI", "no address: whoever asks the index gets no further")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "work")
    yield tmp_path
    assert not list((tmp_path / "tmp").iterdir())
