"""The buildx command line: one build of a context folder, with its progress as typed events.

docker's Python SDK cannot build with BuildKit, so this runs `docker buildx build` and reads the events
that it prints.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from imagebuilder.errors import BuildError, OutsideError

# Seconds that a build gets to end by itself after an interrupt before it is killed.
GRACE = 10
# The end of a step's output that is kept for the error message, in characters.
LOG_TAIL = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the build graph as the engine tells it; times are RFC 3339 texts of the engine."""

    id: str
    name: str
    state: str
    started: str | None = None
    completed: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How far a part of a step is, in bytes."""

    step: str
    part: str
    current: int
    total: int


Event = Step | Amount
Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One build: `output` as buildx writes it, `secrets` maps ids to files, `contexts` names to places."""

    context: Path
    output: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)
    contexts: Mapping[str, str] = field(default_factory=dict)
    platform: str
    builder: str | None = None
    no_cache: bool = False


@dataclass(slots=True)
class _Log:
    """What is remembered of the build for its error message."""

    names: dict[str, str] = field(default_factory=dict)
    tails: dict[str, str] = field(default_factory=dict)
    failed: Step | None = None
    plain: str = ""


def build(invocation: Invocation, listener: Listener) -> dict[str, Any]:
    """Run the build and give buildx's metadata document.

    Raises OutsideError where docker, buildx or the engine is missing or dies, BuildError with the failed
    step and the end of its output. An interrupt stops the build before it is passed on.
    """
    with tempfile.TemporaryDirectory(prefix="imgbuild-") as folder:
        metadata = Path(folder, "metadata.json")
        try:
            process = subprocess.Popen(
                _command(invocation, metadata),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise OutsideError(
                "the `docker` command is missing", why=str(error), hint="./scripts/engine"
            ) from error
        log = _Log()
        try:
            for document in _documents(cast("IO[str]", process.stderr), log):
                for event in _events(document, log):
                    listener(event)
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
        if code:
            raise _failure(code, log)
        return json.loads(metadata.read_text()) if metadata.exists() else {}


def _command(invocation: Invocation, metadata: Path) -> list[str]:
    command = ["docker", "buildx", "build", "--progress=rawjson", f"--metadata-file={metadata}"]
    # Attestations carry times: they are kept beside the image, not in it.
    command += [
        "--provenance=false",
        "--sbom=false",
        f"--platform={invocation.platform}",
        f"--output={invocation.output}",
    ]
    command += [f"--build-arg={name}={value}" for name, value in invocation.arguments.items()]
    command += [f"--secret=id={name},src={path}" for name, path in invocation.secrets.items()]
    command += [f"--build-context={name}={place}" for name, place in invocation.contexts.items()]
    if invocation.builder:
        command.append(f"--builder={invocation.builder}")
    if invocation.no_cache:
        command.append("--no-cache")
    return [*command, str(invocation.context)]


def _documents(stream: IO[str], log: _Log) -> Iterator[dict[str, Any]]:
    """Split the stream into JSON documents, printed over one line or many; other lines are kept as text."""
    decoder = json.JSONDecoder()
    pending = ""
    for line in stream:
        if not pending and not line.startswith("{"):
            log.plain = (log.plain + line)[-LOG_TAIL:]
            continue
        pending += line
        if not line.rstrip().endswith("}"):
            continue
        with suppress(ValueError):
            document, _ = decoder.raw_decode(pending)
            pending = ""
            if isinstance(document, dict):
                yield document
    log.plain = (log.plain + pending)[-LOG_TAIL:]


def _events(document: Mapping[str, Any], log: _Log) -> Iterator[Event]:
    for vertex in document.get("vertexes") or ():
        step = _step(vertex)
        log.names[step.id] = step.name
        if step.error and "context canceled" not in step.error:
            log.failed = log.failed or step
        yield step
    for status in document.get("statuses") or ():
        yield Amount(
            step=str(status.get("vertex", "")),
            part=str(status.get("name") or status.get("id", "")),
            current=int(status.get("current", 0)),
            total=int(status.get("total", 0)),
        )
    for entry in document.get("logs") or ():
        _remember(entry, log)


def _remember(entry: Mapping[str, Any], log: _Log) -> None:
    import base64

    step = str(entry.get("vertex", ""))
    text = base64.b64decode(entry.get("data") or "").decode(errors="replace")
    log.tails[step] = (log.tails.get(step, "") + text)[-LOG_TAIL:]


def _step(vertex: Mapping[str, Any]) -> Step:
    error = vertex.get("error") or None
    state = "waiting"
    if vertex.get("cached"):
        state = "cached"
    elif error:
        state = "failed"
    elif vertex.get("completed"):
        state = "done"
    elif vertex.get("started"):
        state = "running"
    return Step(
        id=str(vertex.get("digest", "")),
        name=str(vertex.get("name", "")),
        state=state,
        started=vertex.get("started"),
        completed=vertex.get("completed"),
        error=error,
    )


def _stop(process: subprocess.Popen[str]) -> None:
    """End the whole process group: buildx first asks the engine to cancel, then is killed."""
    for number, seconds in ((signal.SIGINT, GRACE), (signal.SIGKILL, GRACE)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
            return


# What BuildKit and the tools in the build say, and what that means to the person who reads it.
OUTSIDE: Sequence[tuple[str, str, str]] = (
    # the docker command line itself, which takes `buildx` for a plain argument where the plugin is missing
    (
        "unknown flag: --progress",
        "buildx is missing",
        "install docker-buildx (or docker-buildx-plugin)",
    ),
    ("invalid progress mode rawjson", "buildx is older than 0.13", "./scripts/engine"),
    ("is not a docker command", "buildx is missing", "install docker-buildx (or docker-buildx-plugin)"),
    (
        "unknown command: docker buildx",
        "buildx is missing",
        "install docker-buildx (or docker-buildx-plugin)",
    ),
    ("Cannot connect to the Docker daemon", "no Docker engine answers", "./scripts/engine"),
    ("no such host", "a host name cannot be resolved in the build", "imgbuild doctor"),
    ("error reading from server", "the Docker engine died during the build", "imgbuild doctor"),
    ("closing transport due to", "the Docker engine died during the build", "imgbuild doctor"),
    ("failed to receive status", "the Docker engine died during the build", "imgbuild doctor"),
    ("no builder", "the builder does not exist", "docker buildx ls"),
    ("toomanyrequests", "the registry limits pulls", "docker login, or set IMGBUILD_REGISTRY_MIRROR"),
    (
        "manifest unknown",
        "the base image is gone from its registry",
        "imgbuild lock again to pin the present one",
    ),
)
CHANGED = "a file is not the one locked: build again; if it stays so, compare with a new `imgbuild lock`"
UNTRUSTED = "set SSL_CERT_FILE to the CA bundle of your network: it is passed in as a build secret"
BUILD_HINTS: Sequence[tuple[str, str]] = (
    (
        "no space left on device",
        "docker system df; docker builder prune; imgbuild doctor says how much a build needs",
    ),
    # pip, apt and uv, in this order
    ("CERTIFICATE_VERIFY_FAILED", UNTRUSTED),
    ("certificate verification failed", UNTRUSTED),
    ("invalid peer certificate", UNTRUSTED),
    # uv, pip and sha256sum, in this order
    ("Hash mismatch", CHANGED),
    ("DO NOT MATCH THE HASHES", CHANGED),
    ("computed checksum did NOT match", CHANGED),
    ("exit code: 137", "the builder ran out of memory: give it more, or build with fewer parallel steps"),
)


def _failure(code: int, log: _Log) -> BuildError | OutsideError:
    """Say which step failed and why; a dead engine or a missing buildx is not a failed build."""
    failed = log.failed
    tail = log.tails.get(failed.id, "") if failed else ""
    words = f"{failed.error if failed else ''}\n{log.plain}\n{tail}"
    last = [
        line.strip()
        for line in (tail or (failed.error or "" if failed else log.plain)).splitlines()
        if line.strip()
    ][-6:]
    for sign, meaning, hint in OUTSIDE:
        if sign in words and "no space left" not in words:
            return OutsideError(meaning, why="\n".join(last) or None, hint=hint)
    hint = next((hint for sign, hint in BUILD_HINTS if sign in words), "imgbuild build --progress plain ...")
    what = f"buildx failed with exit code {code}"
    if failed:
        what = f"the build failed at `{_readable(failed.name)}`"
    return BuildError(what, why="\n".join(last) or None, hint=hint)


def _readable(name: str) -> str:
    """Leave the mounts out of a step's name, which hide what it runs."""
    return " ".join(word for word in name.split() if not word.startswith("--mount="))
