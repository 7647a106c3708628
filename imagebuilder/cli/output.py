"""What the commands print: sentences on stderr, tables, one JSON document on stdout."""

from __future__ import annotations

import json
import os
import sys
from shlex import quote
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from imagebuilder.errors import ImgbuildError


def visible(text: str) -> str:
    """Write what is not printable as escapes: a name or a file must not steer the terminal it is shown on."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def say(text: str = "") -> None:
    """Print one line for people, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def emit_json(document: Any) -> None:
    """Print the one JSON document of a command on stdout; in ASCII, which every locale can write."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def styled(text: str, style: str, stream: IO[str] = sys.stderr) -> str:
    """Colour a word on a terminal (`red`, `green`, `yellow`, `bold`); NO_COLOR and pipes get plain text."""
    if os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    codes = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}
    return f"\x1b[{codes[style]}m{text}\x1b[0m"


def table(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Align rows in columns, two spaces apart; the last column is not padded."""
    lines = [list(header)] if header else []
    lines += [list(row) for row in rows]
    if not lines:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def report_error(error: ImgbuildError) -> None:
    """Print what is wrong, why, and what to do next."""
    say(f"{styled('imgbuild:', 'red')} {visible(error.what)}")
    for label, text in (("why", error.why), ("next", error.hint)):
        for line in (text or "").splitlines():
            say(f"  {label}: {visible(line)}" if label else f"        {visible(line)}")
            label = ""


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, beside it first, then renamed over it; raises OutsideError."""
    import tempfile
    from pathlib import Path

    from imagebuilder.errors import OutsideError

    if path.exists() and not path.is_file():
        raise OutsideError(
            f"`{path}` cannot be written", why="it is not a file", hint=f"ls -ld {quote(str(path))}"
        )
    try:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise OutsideError(f"`{path}` cannot be written", why=error.strerror) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except OSError as error:
        raise OutsideError(f"`{path}` cannot be written", why=error.strerror) from None
    finally:
        Path(beside).unlink(missing_ok=True)
