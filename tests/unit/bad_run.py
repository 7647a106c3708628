"""The command line run inside this process, and what a refusal of bad input must look like."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from imagebuilder.cli import main

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


# What changes the file system, by the name of its audit event, and where in the event the paths are.
CHANGES = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.truncate": (0,),
    "shutil.rmtree": (0,),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_fences: list[Path] = []


class EscapeError(BaseException):
    """A run under test was about to change a file outside its own folder; nothing catches it on the way."""


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Stop a change outside the fence before it happens: bad input, run by root, must not hurt the host."""
    if not _fences:
        return
    if event == "open":
        path, _, flags = arguments
        paths = [path] if isinstance(flags, int) and flags & WRITING else []
    else:
        paths = [arguments[place] for place in CHANGES.get(event, ())]
    for path in paths:
        if isinstance(path, str | bytes | os.PathLike):
            real = Path(os.path.realpath(os.fsdecode(path)))
            if not real.is_relative_to(_fences[-1]) and real != Path(os.devnull):
                raise EscapeError(f"{event}: {real}")


sys.addaudithook(_watch)


@contextmanager
def fenced(folder: Path) -> Iterator[None]:
    """Let this process change files beneath `folder` alone."""
    _fences.append(folder.resolve())
    try:
        yield
    finally:
        _fences.pop()


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
    out, err = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
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
