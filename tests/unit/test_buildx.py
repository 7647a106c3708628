"""buildx's event stream becomes typed events, and its failures become errors a person can act on."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagebuilder.buildx import Amount, Bake, Invocation, Step, bake, build
from imagebuilder.buildx.events import Log, documents, events
from imagebuilder.buildx.faults import failure
from imagebuilder.errors import BuildError, OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable


def vertex(name: str = "[torch 1/1] RUN x", **fields: object) -> dict[str, object]:
    """Give a document with one vertex."""
    return {"vertexes": [{"digest": "sha256:1", "name": name, **fields}]}


def logged(text: str) -> dict[str, object]:
    """Give a document with the output of that vertex."""
    return {"logs": [{"vertex": "sha256:1", "data": base64.b64encode(text.encode()).decode()}]}


def failed(error: str, output: str = "") -> Log:
    """Give the log of a build whose only step failed."""
    log = Log()
    for document in (logged(output), vertex(error=error)):
        list(events(document, log))
    return log


@pytest.mark.parametrize("indent", [None, 2])
def test_documents_are_read_over_one_line_or_many(indent: int | None) -> None:
    """Version 0.13 of buildx indents documents, later ones do not; plain lines between them are kept."""
    first, second = vertex(started="t"), vertex(completed="t")
    stream = io.StringIO(
        json.dumps(first, indent=indent) + "\nWARN: odd\n" + json.dumps(second, indent=indent) + "\n"
    )
    log = Log()
    assert list(documents(stream, log)) == [first, second]
    assert log.plain == "WARN: odd\n"


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "waiting"),
        ({"started": "t"}, "running"),
        ({"started": "t", "completed": "t"}, "done"),
        ({"cached": True, "completed": "t"}, "cached"),
        ({"completed": "t", "error": "boom"}, "failed"),
    ],
)
def test_a_step_has_the_state_that_its_fields_say(fields: dict[str, object], state: str) -> None:
    """A vertex is waiting, running, done, cached or failed."""
    (step,) = events(vertex(**fields), Log())
    assert isinstance(step, Step)
    assert step.state == state


def test_progress_in_bytes_is_an_amount() -> None:
    """A status tells how many bytes of a part are there."""
    (amount,) = events({"statuses": [{"vertex": "v", "id": "layer", "current": 3, "total": 9}]}, Log())
    assert amount == Amount(step="v", part="layer", current=3, total=9)


def test_a_failed_build_names_the_step_and_the_end_of_its_output() -> None:
    """The error holds the step that failed and the last lines that it printed."""
    error = failure(1, failed("exit code: 1", "first\nlast words\n"))
    assert isinstance(error, BuildError)
    assert "[torch 1/1]" in error.what
    assert "last words" in str(error.why)


def test_a_cancelled_sibling_is_not_the_culprit() -> None:
    """Steps that were cancelled because another failed are not blamed."""
    log = Log()
    for digest, error in (("a", "context canceled"), ("b", "exit code: 7")):
        document = {"vertexes": [{"digest": digest, "name": f"[{digest}]", "error": error}]}
        list(events(document, log))
    assert "[b]" in failure(1, log).what


@pytest.mark.parametrize(
    ("words", "kind", "hint"),
    [
        ("write /x: no space left on device", BuildError, "prune"),
        ("SSL: CERTIFICATE_VERIFY_FAILED certificate verify failed", BuildError, "SSL_CERT_FILE"),
        ("Hash mismatch for `torch==2.4.1`", BuildError, "not the one locked"),
        ("sha256sum: WARNING: 1 computed checksum did NOT match", BuildError, "not the one locked"),
        ("exit code: 137", BuildError, "memory"),
        ("toomanyrequests: rate limit", OutsideError, "docker login"),
        ("manifest unknown", OutsideError, "imgbuild lock"),
        ("error reading from server: EOF", OutsideError, "doctor"),
    ],
)
def test_known_causes_have_a_next_step(words: str, kind: type, hint: str) -> None:
    """A full disk, a certificate, memory, a registry's limit and a dead engine are told by name."""
    error = failure(1, failed(words))
    assert isinstance(error, kind)
    assert hint in str(error.hint)


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("unknown flag: --progress", "buildx is missing"),
        ("docker: 'buildx' is not a docker command.", "buildx is missing"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock", "no Docker engine answers"),
    ],
)
def test_a_missing_part_of_docker_is_outside(line: str, meaning: str) -> None:
    """Without buildx or an engine nothing was built, and the exit code says so (4, not 5)."""
    log = Log()
    log.plain = line
    error = failure(1, log)
    assert isinstance(error, OutsideError)
    assert error.what == meaning


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Put a `docker` on PATH that writes down its words and ends well."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$PWD" "$@" >{tmp_path}/words\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return lambda: (tmp_path / "words").read_text().splitlines()


COMMON = {"--provenance=false", "--sbom=false", "--builder=far", "--no-cache"}


def test_attestations_are_never_part_of_the_image(said: Callable[[], list[str]]) -> None:
    """They carry times: provenance and SBOM are off, so that the manifest is a function of the lock."""
    build(
        Invocation(
            context=Path("/context"),
            output="type=image,name=x:1",
            arguments={"SOURCE_DATE_EPOCH": "1"},
            secrets={"ca": Path("/ca.pem")},
            contexts={"a@sha256:0": "docker-image://mirror/a@sha256:0"},
            platform="linux/amd64",
            builder="far",
            no_cache=True,
        ),
        lambda event: None,
    )
    words = said()
    assert (words[1:3], words[-1]) == (["buildx", "build"], "/context")
    assert set(words) >= COMMON
    assert {
        "--secret=id=ca,src=/ca.pem",
        "--build-arg=SOURCE_DATE_EPOCH=1",
        "--build-context=a@sha256:0=docker-image://mirror/a@sha256:0",
    } <= set(words)


def test_many_targets_are_one_run(said: Callable[[], list[str]], tmp_path: Path) -> None:
    """Of files in their order, from the folder that their paths are relative to."""
    files = (Path("docker-bake.json"), Path("/x/override.json"))
    bake(Bake(folder=tmp_path, files=files, targets=("a", "b"), builder="far", no_cache=True), lambda e: None)
    words = said()
    assert (words[0], words[1:3], words[-2:]) == (str(tmp_path), ["buildx", "bake"], ["a", "b"])
    assert [word for word in words if word.startswith("--file=")] == [f"--file={path}" for path in files]
    assert set(words) >= COMMON
