"""Every failure that a user can meet: what is wrong, why, what to do next, and the exit code it gives.

A message is one sentence without a final period, literals in backticks, readable without colour.
"""

from __future__ import annotations

from typing import Any


class ImgbuildError(Exception):
    """A failure that a user can understand and act on.

    `what` says what is wrong, `why` the reason with the fact and its source, `hint` the next step, a
    command that works when pasted wherever there is one. `report` is what was seen besides, as JSON.
    """

    exit_code: int = 1

    def __init__(
        self,
        what: str,
        *,
        why: str | None = None,
        hint: str | None = None,
        report: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint
        self.report = report or {}

    def to_dict(self) -> dict[str, Any]:
        """Give the error and the report as the one JSON document that `--format json` prints."""
        return {"error": self.what, "why": self.why, "hint": self.hint, **self.report}


class UsageError(ImgbuildError):
    """The request itself is malformed: a typo, an impossible value, an unreadable file."""

    exit_code = 2


class MatrixError(UsageError):
    """A matrix file is broken; `problems` holds every one of them as `path:line: message`."""

    def __init__(self, what: str, problems: tuple[str, ...], *, hint: str | None = None) -> None:
        super().__init__(what, why="\n".join(problems), hint=hint)
        self.problems = problems

    def to_dict(self) -> dict[str, Any]:
        """Add the single problems."""
        return {**super().to_dict(), "problems": list(self.problems)}


class UnmetError(ImgbuildError):
    """The request is well formed, but nothing in the matrix or on the index meets it."""

    exit_code = 3

    def __init__(
        self,
        what: str,
        *,
        conflicts: tuple[dict[str, str | None], ...],
        alternatives: tuple[dict[str, str], ...] = (),
        why: str | None = None,
        hint: str | None = None,
    ) -> None:
        if why is None:
            why = "\n".join(
                f"{c['constraint']}: {c['fact']}" + (f" [{c['source']}]" if c["source"] else "")
                for c in conflicts
            )
        if hint is None and alternatives:
            hint = "\n".join(a["command"] for a in alternatives)
        super().__init__(what, why=why, hint=hint)
        self.conflicts = conflicts
        self.alternatives = alternatives

    def to_dict(self) -> dict[str, Any]:
        """Give the shape that design.md names for exit 3."""
        return {
            "error": self.what,
            "conflicts": list(self.conflicts),
            "alternatives": list(self.alternatives),
        }


class OutsideError(ImgbuildError):
    """Something outside is missing or unreachable: engine, registry, index, a program."""

    exit_code = 4


class BuildError(ImgbuildError):
    """The engine ran the build and the build failed."""

    exit_code = 5


class SmokeError(ImgbuildError):
    """A smoke check failed, or GPU evidence was required and there is none."""

    exit_code = 6


class DifferenceError(ImgbuildError):
    """What was verified differs: an image from its lock, a matrix from what an index tells."""

    exit_code = 7


class ManyError(ImgbuildError):
    """Some of many images failed; exit code and reason are the first one's, the report tells of all."""

    def __init__(self, failed: int, images: list[dict[str, Any]], first: ImgbuildError) -> None:
        what = f"{failed} of {len(images)} images failed, first: {first.what}"
        super().__init__(what, why=first.why, hint=first.hint, report={"images": images})
        self.exit_code = first.exit_code
