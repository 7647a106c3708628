"""The command line run inside this process, and what a refusal of bad input must look like."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest.mock import patch

from guard import fenced

from imagebuilder.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Seconds that a refusal may take on a slow machine: bad input is found before any work is done.
SECONDS = 10.0
REFUSED = (2, 3, 4)
WANTS_JSON = ("--format", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run of the command line did."""

    words: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def sentence(self) -> str:
        """The line that says what is wrong."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("imgbuild: ")]
        return lines[0].removeprefix("imgbuild: ") if len(lines) == 1 else ""


def imgbuild(*words: str | Path, within: Path) -> Outcome:
    """Run `imgbuild WORDS...` in the current folder; it can change files beneath `within` alone.

    The streams are strict UTF-8, as in a container.
    """
    streams = [
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)
        for errors in ("strict", "backslashreplace")
    ]
    arguments = tuple(map(str, words))
    code: object = None
    began = time.monotonic()
    with (
        patch.object(sys, "argv", ["imgbuild", *arguments]),
        redirect_stdout(streams[0]),
        redirect_stderr(streams[1]),
        fenced(within),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    out, err = (stream.buffer.getvalue().decode() for stream in streams)
    return Outcome(
        words=arguments,
        code=code if isinstance(code, int) else 0 if code is None else 1,
        stdout=out,
        stderr=err,
        seconds=time.monotonic() - began,
    )


def content(folder: Path) -> dict[str, bytes | str | None]:
    """Give everything beneath a folder: files with their bytes, links with their targets, folders as None."""
    return {
        path.relative_to(folder).as_posix(): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


def assert_clear(outcome: Outcome, codes: Sequence[int] = REFUSED, words: Sequence[str] = ()) -> None:
    """See that a run was refused in a sentence of its own, quickly, without a traceback."""
    shown = f"{outcome.words!r}\n{outcome.stderr}"
    assert outcome.code in codes, shown
    assert "Traceback" not in outcome.stderr, shown
    assert "internal fault" not in outcome.stderr, shown
    assert outcome.sentence, shown
    assert not outcome.sentence.endswith("."), shown
    assert "  next: " in outcome.stderr, shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", outcome.stderr), shown
    assert len(outcome.stderr) < 20_000, f"{len(outcome.stderr)} characters"
    for word in words:
        assert word in outcome.stderr, f"{word!r} is not in\n{shown}"
    assert outcome.seconds < SECONDS, f"{outcome.seconds:.1f} s: {shown}"
    if "json" in outcome.words:
        assert isinstance(json.loads(outcome.stdout), dict)
        assert json.loads(outcome.stdout)["error"], outcome.stdout
    else:
        assert not outcome.stdout, outcome.stdout
