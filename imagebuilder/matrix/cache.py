"""Checked matrix documents, remembered as JSON by what they were read from: reading YAML is slow.

They lie in `$XDG_CACHE_HOME/imgbuild/matrix` (`~/.cache/imgbuild/matrix`). A cache that cannot be read or
written is passed over without a word, and so is a damaged file in it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imagebuilder import __version__
from imagebuilder.matrix.facts import Matrix
from imagebuilder.matrix.shape import facts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEPT = 8


def get(digest: str) -> dict[str, Any] | None:
    """Give the checked document of the files with this digest, if there is a sound one."""
    try:
        plain = json.loads(_file(digest).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) and set(plain) == set(facts_of(Matrix)) else None


def put(digest: str, plain: Mapping[str, Any]) -> None:
    """Remember a checked document; written beside its place and renamed: no reader sees half of it."""
    import tempfile

    file = _file(digest)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=file.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(plain, stream, ensure_ascii=False, separators=(",", ":"))
            Path(beside).replace(file)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
        _forget_old(file.parent)


def _file(digest: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - no home, no error
    return Path(home) / "imgbuild" / "matrix" / f"{digest}-{__version__}-{_checkers()}.json"


def _checkers() -> str:
    """Name the code that checks: a document that older code let pass is checked again."""
    with os.scandir(Path(__file__).parent) as entries:
        newest = max(entry.stat().st_mtime_ns for entry in entries if entry.name.endswith(".py"))
    return format(newest, "x")


def _forget_old(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[_KEPT:]:
        file.unlink(missing_ok=True)
