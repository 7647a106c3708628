"""What buildx prints while it builds (`--progress=rawjson`), as typed events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

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


@dataclass(slots=True)
class Log:
    """What is remembered of the build for its error message."""

    names: dict[str, str] = field(default_factory=dict)
    tails: dict[str, str] = field(default_factory=dict)
    failed: Step | None = None
    plain: str = ""


def documents(stream: IO[str], log: Log) -> Iterator[dict[str, Any]]:
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


def events(document: Mapping[str, Any], log: Log) -> Iterator[Event]:
    """Give the events of one document; what a failure needs later is written into the log."""
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


def _remember(entry: Mapping[str, Any], log: Log) -> None:
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
