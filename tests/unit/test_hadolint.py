"""hadolint and shellcheck have nothing to say about what we render and ship."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from locks import make_base, make_lock, make_stack, make_wheel, rendered

from imagebuilder.resources import templates_path

SCRIPTS = sorted(path for path in (templates_path() / "scripts").iterdir() if path.is_file())


def _program(name: str) -> str:
    """Give a program of the test requirements: it lies beside the interpreter."""
    return str(Path(sys.executable).parent / name)


@pytest.mark.parametrize("user", ["trainer", "root"])
@pytest.mark.parametrize("origin", ["bootstrap", "registry"])
def test_hadolint_passes(user: str, origin: str, tmp_path: Path) -> None:
    """No finding of any level in the rendered Dockerfile, with every kind of layer."""
    image = "docker.io/library/debian:bookworm-slim" if origin == "registry" else None
    lock = make_lock(
        stack=make_stack(source="own"),
        base=make_base(origin=origin, image=image),
        sources={"own": "https://example.org/whl/cu121"},
        user_wheels=(make_wheel("einops", "0.8.0"),),
    )
    path = tmp_path / "Dockerfile"
    path.write_text(rendered(lock, user=user).dockerfile)
    command = [
        _program("hadolint"),
        "--no-color",
        "--failure-threshold",
        "style",
        "--format",
        "json",
        str(path),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert json.loads(run.stdout) == []
    assert run.returncode == 0


def test_hadolint_works(tmp_path: Path) -> None:
    """The program finds a fault where there is one, so that its silence means something."""
    path = tmp_path / "Dockerfile"
    path.write_text("FROM debian\nRUN cd /tmp\n")
    command = [_program("hadolint"), "--format", "json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert {"DL3006", "DL3003"} <= {found["code"] for found in json.loads(run.stdout)}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_passes(script: Path) -> None:
    """The scripts of the build are POSIX shell without a finding of any level."""
    command = [_program("shellcheck"), "--shell", "sh", "--severity", "style", str(script)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.stdout == ""
    assert run.returncode == 0


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_can_be_run_and_stop_at_the_first_failure(script: Path) -> None:
    """Each script is executable, names its shell and has `set -eu`."""
    assert script.stat().st_mode & 0o111
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/bin/sh"
    assert "set -eu" in lines
