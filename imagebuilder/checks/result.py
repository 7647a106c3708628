"""What a check is given and what it gives: the words that every module here shares."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Optional

if TYPE_CHECKING:
    from .manifest import Manifest

RUN_LINE = "docker run --gpus all --shm-size=1g IMAGE"


@dataclass(frozen=True)
class CheckResult:
    """What one check found; `seconds` is wall time, `device` is `cuda`, `cpu` or `host`."""

    id: str
    group: str
    status: str
    seconds: float
    device: Optional[str]
    summary: str
    evidence: Dict[str, Any] = field(default_factory=dict)
    diagnosis: Optional[str] = None
    next_step: Optional[str] = None

    def to_dict(self) -> Dict[str, Any]:
        """Give the result as one object of report.json."""
        return asdict(self)


@dataclass(frozen=True)
class Context:
    """What a check may know: where to run, how much to do, and what the image promises.

    `device` is `cuda` or `cpu`; `gpus` is how many GPUs to use or to expect (None: all that are visible);
    `manifest_error` says why a manifest that is there cannot be used; `limit` is the time in seconds after
    which the runner ends the check.
    """

    device: str = "cpu"
    gpus: Optional[int] = None
    suite: str = "quick"
    manifest: Optional[Manifest] = None
    manifest_error: Optional[str] = None
    limit: float = 120.0

    @property
    def full(self) -> bool:
        """Whether there is time for the larger sizes of `--suite full`."""
        return self.suite == "full"


@dataclass(frozen=True)
class Outcome:
    """A check that passed: one line for the table, and the numbers behind it."""

    summary: str
    evidence: Dict[str, Any] = field(default_factory=dict)


class Failed(Exception):  # noqa: N818 - `raise Failed` says what it means
    """A check that did not pass: what was seen, what causes it, what to do."""

    def __init__(
        self,
        summary: str,
        *,
        diagnosis: Optional[str] = None,
        next_step: Optional[str] = None,
        evidence: Optional[Dict[str, Any]] = None,
    ) -> None:
        super().__init__(summary)
        self.summary = summary
        self.diagnosis = diagnosis
        self.next_step = next_step
        self.evidence = evidence or {}


class Skipped(Failed):
    """A check that says nothing here, and why; never to be read as a pass."""


def raise_all(problems: List[Failed], evidence: Dict[str, Any]) -> None:
    """Raise nothing when there are no problems; else one failure that names each of them."""
    if not problems:
        return
    first = problems[0]
    more = "" if len(problems) == 1 else " (and {} more)".format(len(problems) - 1)
    diagnoses = [str(problem.diagnosis or problem.summary) for problem in problems[:8]]
    merged = dict(evidence)
    merged["problems"] = [problem.summary for problem in problems[:50]]
    raise Failed(
        first.summary + more,
        diagnosis="; ".join(dict.fromkeys(diagnoses)),
        next_step=first.next_step,
        evidence=merged,
    )
