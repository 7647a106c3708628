"""What the doctor looks at and what it says: values of this stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from imagebuilder.host import Host
from imagebuilder.host.daemon import Daemon
from imagebuilder.host.machine import Disk, Machine
from imagebuilder.host.toolkit import Toolkit

if TYPE_CHECKING:
    from datetime import datetime

    from imagebuilder.host.reach import Answer

Status = Literal["ok", "warn", "fail", "skip"]
NeededFor = Literal["build", "gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: `what` was seen, `why` it matters, `fix` as commands that work when pasted.

    `needed_for` says what a failure stops: building images, or running them on GPUs.
    """

    id: str
    needed_for: NeededFor
    status: Status
    what: str
    why: str | None = None
    fix: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give the finding as `--format json` prints it."""
        return {
            "id": self.id,
            "needed_for": self.needed_for,
            "status": self.status,
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that findings are drawn from.

    `index` and `registry` are None where they were not asked, or did not answer in time. `now` is this
    host's clock. `unanswered` names the questions that got no answer
    in time.
    """

    host: Host = field(default_factory=Host)
    machine: Machine = field(default_factory=Machine)
    toolkit: Toolkit = field(default_factory=Toolkit)
    daemon: Daemon = field(default_factory=Daemon)
    disks: tuple[Disk, ...] = ()
    index: Answer | None = None
    registry: Answer | None = None
    now: datetime
    unanswered: tuple[str, ...] = ()
