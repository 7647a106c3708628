"""The stack manifest, and the checks that compare with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imagebuilder.checks import child, manifest
from imagebuilder.checks.result import Context

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT: dict[str, Any] = {
    "identifier": "pytorch-2.4.1-cuda12.1",
    "framework": {"name": "pytorch", "version": "2.4.1", "package": "torch"},
    "cuda": "12.1",
    "cudnn": None,
    "python": "3.11",
    "packages": {"pytest": "0.0.1", "not-there": "1"},
    "fallbacks": [],
    "unknown": 1,
}


def write(folder: Path, document: object) -> str:
    """Write a manifest and give its path."""
    path = folder / "stack.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_a_manifest_is_read(tmp_path: Path) -> None:
    """The values that checks use are there; keys that they do not use are passed over."""
    found = manifest.read(write(tmp_path, DOCUMENT))
    assert found is not None
    assert (found.identifier, found.framework_version, found.cuda, found.cudnn) == (
        "pytorch-2.4.1-cuda12.1",
        "2.4.1",
        "12.1",
        None,
    )
    assert manifest.read(str(tmp_path / "absent")) is None


@pytest.mark.parametrize(
    "document",
    ["", "{", "[]", "3", "{}", {"framework": 1}, {**DOCUMENT, "packages": ["x"]}, {**DOCUMENT, "cuda": 12.1}],
)
def test_a_broken_manifest_is_a_failed_check_not_a_crash(tmp_path: Path, document: object) -> None:
    """Whatever the file holds, `env.python` fails and says that the manifest is broken."""
    path = write(tmp_path, document)
    with pytest.raises(manifest.ManifestError, match=r"stack\.json"):
        manifest.read(path)
    context = child._context({"device": "cpu", "suite": "quick", "limit": 5, "manifest": path})
    answer = child.perform("environment:python", context)
    assert (answer["status"], answer["summary"]) == ("fail", "the stack manifest is broken")


def test_packages_are_compared_exactly(tmp_path: Path) -> None:
    """A replaced and a removed package are each named with both versions and the way back."""
    context = Context(manifest=manifest.read(write(tmp_path, DOCUMENT)))
    answer = child.perform("environment:packages", context)
    assert answer["status"] == "fail"
    assert "not-there is not installed, the manifest says 1" in answer["evidence"]["problems"]
    assert f"pytest is {pytest.__version__}, the manifest says 0.0.1" in answer["evidence"]["problems"]
    assert answer["next_step"] == "pip install --no-deps not-there==1"


def test_without_a_manifest_comparisons_are_skipped() -> None:
    """Any image can be checked; what cannot be compared is skipped and said so."""
    answer = child.perform("environment:packages", Context())
    assert (answer["status"], answer["summary"]) == (
        "skip",
        "no stack manifest in this image, so nothing is compared",
    )


def test_another_python_is_a_failure(tmp_path: Path) -> None:
    """The Python that runs must be the manifest's."""
    context = Context(manifest=manifest.read(write(tmp_path, {**DOCUMENT, "python": "2.7"})))
    answer = child.perform("environment:python", context)
    assert answer["status"] == "fail"
    assert "the manifest says 2.7" in answer["summary"]


def test_a_check_that_is_not_there_is_a_failure_like_any_other() -> None:
    """Nothing that goes wrong in a check escapes it."""
    answer = child.perform("environment:nothing", Context())
    assert answer["status"] == "fail"
