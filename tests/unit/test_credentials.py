"""Logins are read from where `docker login` put them, and from nowhere else."""

import json
import os
from pathlib import Path

import pytest

from imagebuilder.registry.credentials import Credentials, credentials

HELPER = """#!/bin/sh
read -r host
[ "$1" = get ] || exit 1
case $host in
    slow) exec sleep 60 ;;
    token) echo '{"Username": "<token>", "Secret": "x"}' ;;
    none) echo 'credentials not found'; exit 1 ;;
    *) echo "{\\"Username\\": \\"u\\", \\"Secret\\": \\"of $host\\"}" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a docker configuration folder, with a credential helper `docker-credential-test` on PATH."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    helper = tmp_path / "bin" / "docker-credential-test"
    helper.parent.mkdir()
    helper.write_text(HELPER)
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{helper.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def write(folder: Path, document: object) -> None:
    """Write the configuration."""
    (folder / "config.json").write_text(json.dumps(document))


def test_a_password_in_the_file_is_read(folder: Path) -> None:
    """`auth` is user and password; a colon in the password belongs to it. Docker Hub has a key of its own."""
    write(folder, {"auths": {"r:5": {"auth": "dTpwOnE="}, "https://index.docker.io/v1/": {"auth": "aDpw"}}})
    assert credentials("r:5") == Credentials(user="u", secret="p:q")
    assert credentials("docker.io") == Credentials(user="h", secret="p")
    assert credentials("other") is None
    assert "p:q" not in repr(credentials("r:5"))


def test_a_helper_is_asked(folder: Path) -> None:
    """A helper for one registry comes before the general store, and the file is not used where one is set."""
    write(folder, {"credHelpers": {"a": "test"}, "auths": {"b": {"auth": "dTpw"}}})
    assert credentials("a") == Credentials(user="u", secret="of a")
    assert credentials("b") == Credentials(user="u", secret="p")
    write(folder, {"credsStore": "test"})
    assert credentials("c") == Credentials(user="u", secret="of c")
    assert credentials("none") is None
    assert credentials("token") is None


def test_a_helper_that_hangs_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that waits for a person does not hang the lock."""
    monkeypatch.setattr("imagebuilder.registry.credentials.HELPER_SECONDS", 0.2)
    write(folder, {"credsStore": "test"})
    assert credentials("slow") is None


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"auths": []},
        {"auths": {"r": []}},
        {"auths": {"r": {"auth": "%%%"}}},
        {"auths": {"r": {"auth": "/////w=="}}},
        {"auths": {"r": {"auth": "bm9jb2xvbg=="}}},
        {"credsStore": "missing"},
        {"credsStore": "../bin/docker-credential-test"},
        {"credHelpers": 7},
    ],
)
def test_a_broken_configuration_is_no_login(folder: Path, document: object) -> None:
    """What cannot be read is as good as not being logged in."""
    write(folder, document)
    assert credentials("r") is None


def test_no_configuration_is_no_login(folder: Path) -> None:
    """Most people are not logged in anywhere."""
    assert credentials("r") is None
    (folder / "config.json").write_text("{")
    assert credentials("r") is None
