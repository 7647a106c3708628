"""Progress is told to a person, to a CI log and to a program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imagebuilder.buildx import Amount, Event, Step
from imagebuilder.cli.progress import Live, Plain, listener

if TYPE_CHECKING:
    import pytest


def step(state: str, name: str = "[torch 1/1] RUN long command", digest: str = "1") -> Step:
    """Give a step in a state."""
    return Step(id=digest, name=name, state=state)


EVENTS: tuple[Event, ...] = (
    step("running", "[internal] load build definition", "0"),
    step("waiting"),
    step("running"),
    Amount(step="1", part="layer", current=2**20, total=2**21),
    step("running"),
    step("done"),
    step("cached", "[image 3/9] COPY --link", "2"),
)


def test_plain_lines_tell_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A CI log has one line when a stage begins and one when it ends, without BuildKit's own steps."""
    tell = Plain()
    for event in EVENTS:
        tell(event)
    lines = [line.split(" s  ")[1].split() for line in capsys.readouterr().err.splitlines()]
    assert lines == [["running", "torch", "1/1"], ["done", "torch", "1/1"]]


def test_json_events_are_one_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A program reads every event as a JSON line."""
    tell = listener("json")
    for event in EVENTS:
        tell(event)
    documents = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(documents) == len(EVENTS)
    assert {"part": "layer", "current": 2**20, "total": 2**21} in documents


def test_auto_is_plain_where_there_is_no_terminal() -> None:
    """A pipe gets plain lines."""
    assert isinstance(listener("auto"), Plain)


def test_live_view_ends_with_finished_steps_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live view shows bytes while a step runs and one line when it is done."""
    monkeypatch.setattr("imagebuilder.cli.progress.REDRAW", 0.0)
    tell = Live()
    for event in EVENTS:
        tell(event)
    shown = capsys.readouterr().err
    assert "1 of 2 MiB" in shown
    assert shown.count("done") == 1
