"""A framework's CPU wheels in an environment of their own, and its checks run in that Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imagebuilder.checks import catalogue

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE = Path(catalogue.__file__).parents[1]
PERFORM = """
import json, sys
from imagebuilder.checks import child, result
context = result.Context(**json.loads(sys.argv[2]))
print(json.dumps(child.perform(sys.argv[1], context), default=str))
"""


def make(folder: Path, *requirements: str) -> Path:
    """Make an environment with some wheels from the default index, and give its Python."""
    uv = Path(sys.executable).with_name("uv")
    python = folder / "venv" / "bin" / "python"
    # the checks alone, without what else is installed beside them
    (folder / "checks").mkdir()
    (folder / "checks" / PACKAGE.name).symlink_to(PACKAGE)
    subprocess.run([uv, "venv", "--quiet", folder / "venv"], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *requirements], check=True)
    return python


def inside(python: Path, script: str, *words: str, variables: Mapping[str, str] | None = None) -> Any:
    """Run a script and give the JSON document of its last line; `variables` are added to the environment."""
    done = subprocess.run(
        [python, "-c", script, *words],
        env={**os.environ, "PYTHONPATH": str(python.parents[2] / "checks"), **(variables or {})},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def perform(python: Path, function: str, before: str = "", **context: Any) -> dict[str, Any]:
    """Run the function of one check on the CPU, behind a script that may break something."""
    words = (function, json.dumps({"device": "cpu", **context}))
    answer: dict[str, Any] = inside(python, before + PERFORM, *words)
    return answer


ALL = """
import json, sys
from imagebuilder.checks import child, result
context = result.Context(device="cpu")
print(json.dumps({name: child.perform(name, context) for name in sys.argv[1:]}, default=str))
"""


def functions(framework: str) -> list[str]:
    """Give the functions of a framework's own checks."""
    return [check.function for check in catalogue.CHECKS if check.framework == framework]


def perform_all(python: Path, framework: str) -> dict[str, dict[str, Any]]:
    """Run all of a framework's own checks on the CPU, those of the GPU too.

    One process does for most; collectives are what a process has one set of.
    """
    alone = [name for name in functions(framework) if "_nccl:" in name]
    others = [name for name in functions(framework) if name not in alone]
    answers: dict[str, dict[str, Any]] = inside(python, ALL, *others)
    return answers | {name: perform(python, name) for name in alone}
