"""Answers of an index, kept on disk: a run that broke off goes on from here.

A store that cannot be read or written is passed over without a word, and so is a damaged file in it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any


class Store:
    """A folder of answers: each a line of JSON about it, then its bytes; named by what was asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, asked: str) -> tuple[dict[str, Any], bytes] | None:
        """Give what is kept of a question: what is said about the answer, and its bytes."""
        try:
            head, _, body = self._file(asked).read_bytes().partition(b"\n")
            about = json.loads(head)
        except (OSError, ValueError, RecursionError):
            return None
        sound = isinstance(about, dict) and about.get("sha256") == sha256(body).hexdigest()
        return (about, body) if sound else None

    def put(self, asked: str, about: dict[str, Any], body: bytes) -> None:
        """Keep an answer; written beside its place and renamed: no reader sees half of it."""
        import tempfile

        file = self._file(asked)
        head = json.dumps({**about, "sha256": sha256(body).hexdigest()})
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(dir=file.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(head.encode() + b"\n" + body)
                Path(beside).replace(file)
            except BaseException:
                Path(beside).unlink(missing_ok=True)
                raise

    def _file(self, asked: str) -> Path:
        return self._folder / sha256(asked.encode()).hexdigest()[:40]
