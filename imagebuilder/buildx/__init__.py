"""The buildx command line: one build of a context folder, or one bake of many, with typed progress events.

docker's Python SDK cannot build with BuildKit, so this runs `docker buildx` and reads the events that it
prints.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from imagebuilder.buildx.events import Amount as Amount
from imagebuilder.buildx.events import Event as Event
from imagebuilder.buildx.events import Listener as Listener
from imagebuilder.buildx.events import Log, documents, events
from imagebuilder.buildx.events import Step as Step
from imagebuilder.buildx.faults import failure
from imagebuilder.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Seconds that a build gets to end by itself after an interrupt before it is killed.
GRACE = 10


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bake:
    """One run of `targets` of the bake `files`, of which later ones override earlier ones, in `folder`."""

    folder: Path
    files: Sequence[Path]
    targets: Sequence[str]
    builder: str | None = None
    no_cache: bool = False


def build(invocation: Invocation, listener: Listener) -> dict[str, Any]:
    """Run the build and give buildx's metadata document.

    Raises OutsideError where docker, buildx or the engine is missing or dies, BuildError with the failed
    step and the end of its output. An interrupt stops the build before it is passed on.
    """
    words = [f"--platform={invocation.platform}", f"--output={invocation.output}"]
    words += [f"--build-arg={name}={value}" for name, value in invocation.arguments.items()]
    words += [f"--secret=id={name},src={path}" for name, path in invocation.secrets.items()]
    words += [f"--build-context={name}={place}" for name, place in invocation.contexts.items()]
    words += _common(invocation)
    return _run(["build", *words, str(invocation.context)], listener, None)


def bake(run: Bake, listener: Listener) -> dict[str, Any]:
    """Run the targets side by side and give buildx's metadata document, by target; raises as `build` does.

    One that fails ends them all; what was built until then is in the builder's cache.
    """
    files = [f"--file={path}" for path in run.files]
    return _run(["bake", *files, *_common(run), *run.targets], listener, run.folder)


def _common(run: Invocation | Bake) -> list[str]:
    # Attestations carry times: they are kept beside the image, not in it.
    words = ["--provenance=false", "--sbom=false"]
    if run.builder:
        words.append(f"--builder={run.builder}")
    if run.no_cache:
        words.append("--no-cache")
    return words


def _run(words: Sequence[str], listener: Listener, folder: Path | None) -> dict[str, Any]:
    """Run `docker buildx` in a folder, report its events, give its metadata document."""
    with tempfile.TemporaryDirectory(prefix="imgbuild-") as place:
        metadata = Path(place, "metadata.json")
        subcommand, *rest = words
        command = ["docker", "buildx", subcommand, "--progress=rawjson", f"--metadata-file={metadata}", *rest]
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
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
        log = Log()
        try:
            with cast("IO[str]", process.stderr) as stream:
                for document in documents(stream, log):
                    for event in events(document, log):
                        listener(event)
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
        if code:
            raise failure(code, log)
        return json.loads(metadata.read_text()) if metadata.exists() else {}


def _stop(process: subprocess.Popen[str]) -> None:
    """End the whole process group: buildx first asks the engine to cancel, then is killed."""
    for number, seconds in ((signal.SIGINT, GRACE), (signal.SIGKILL, GRACE)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
            return
