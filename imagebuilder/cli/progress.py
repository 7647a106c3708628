"""Progress of a build: a live view on a terminal, plain lines in CI, JSON events on request."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Literal

from imagebuilder.build.bake import target_of
from imagebuilder.buildx import Amount, Event, Step
from imagebuilder.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Callable

Mode = Literal["auto", "plain", "json"]
# The stages that `_interesting` leaves out, after the name of a target where there are many.
DULL = re.compile(r"\[(?:[\w-]+ )?(?:internal\]|image )", re.ASCII)
# Seconds between two redraws of the live view.
REDRAW = 0.2


def listener(mode: Mode, images: tuple[str, ...] = ()) -> Callable[[Event], None]:
    """Give the function that a build reports its events to; `images` are the targets of a bake."""
    if mode == "json":
        return _json
    if mode == "auto" and sys.stderr.isatty():
        return Live(images)
    return Plain()


def _json(event: Event) -> None:
    document: dict[str, object]
    if isinstance(event, Step):
        document = {"step": event.name, "state": event.state, "error": event.error}
    else:
        document = {"part": event.part, "current": event.current, "total": event.total}
    sys.stderr.write(json.dumps(document) + "\n")
    sys.stderr.flush()


def _title(name: str) -> str:
    """Shorten BuildKit's name of a step to its stage: `[torch 1/1] RUN ...` becomes `torch`."""
    if name.startswith("[") and "]" in name:
        return name[1 : name.index("]")]
    return name


def _interesting(step: Step) -> bool:
    """Leave out BuildKit's own steps and the copies that join the layers, which take no time."""
    return DULL.match(step.name) is None


class Plain:
    """One line when a step begins and one when it ends, with the seconds since the build began."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._told: set[tuple[str, str]] = set()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if not isinstance(event, Step) or not _interesting(event) or event.state == "waiting":
            return
        key = (event.id, event.state)
        if key in self._told:
            return
        self._told.add(key)
        say(f"{time.monotonic() - self._begun:7.1f} s  {event.state:<8}{_title(event.name)}")


class Live:
    """The running steps, redrawn in place; finished ones scroll away above as single lines."""

    def __init__(self, images: tuple[str, ...] = ()) -> None:
        self._images = {name: Progress() for name in images}
        self._drawn = 0
        self._last = 0.0
        self._running: dict[str, tuple[str, float]] = {}
        self._amounts: dict[str, Amount] = {}
        self._told: set[tuple[str, str]] = set()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        now = time.monotonic()
        if isinstance(event, Amount):
            self._amounts[event.step] = event
        elif _interesting(event):
            self._step(event, now)
        if now - self._last >= REDRAW:
            self._last = now
            self._draw(now)

    def _step(self, step: Step, now: float) -> None:
        image = self._images.get(target_of(step.name, tuple(self._images)) or "")
        if image is not None:
            image.take(step)
        if step.state == "running":
            self._running.setdefault(step.id, (_title(step.name), now))
            return
        started = self._running.pop(step.id, None)
        if step.state in ("done", "cached", "failed") and (step.id, step.state) not in self._told:
            self._told.add((step.id, step.state))
            self._erase()
            spent = f"{now - started[1]:6.1f} s" if started else " " * 8
            say(f"  {step.state:<8}{spent}  {_title(step.name)}")

    def _erase(self) -> None:
        if self._drawn:
            sys.stderr.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def _draw(self, now: float) -> None:
        self._erase()
        for step, (title, since) in self._running.items():
            amount = self._amounts.get(step)
            done = ""
            if amount and amount.total:
                done = f"  {amount.current / 2**20:.0f} of {amount.total / 2**20:.0f} MiB"
            elif amount and amount.part:
                done = f"  {amount.part[:60]}"
            sys.stderr.write(f"  running {now - since:6.1f} s  {title}{done}\n")
            self._drawn += 1
        for name, image in self._images.items():
            sys.stderr.write(f"  {image.state:<8} {image.ended:>3} of {len(image.steps):>3} steps  {name}\n")
            self._drawn += 1
        sys.stderr.flush()


class Progress:
    """How far one image of many is. A step that several share is counted with the one it is named after."""

    def __init__(self) -> None:
        self.steps: dict[str, str] = {}

    def take(self, step: Step) -> None:
        """Take one event of a step."""
        self.steps[step.id] = step.state

    @property
    def ended(self) -> int:
        """How many of its steps have ended."""
        return sum(state in ("done", "cached") for state in self.steps.values())

    @property
    def state(self) -> str:
        """One word for the table."""
        states = set(self.steps.values())
        if "failed" in states:
            return "failed"
        if "running" in states:
            return "running"
        return "waiting" if self.ended < len(self.steps) or not self.steps else "done"
