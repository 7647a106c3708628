"""Host -> findings, each with what to do: what a build needs, and what GPUs need.

`gather` asks (within a bounded time), `examine` judges (pure).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imagebuilder.doctor.build import build_findings
from imagebuilder.doctor.container import container_findings
from imagebuilder.doctor.finding import Facts, Finding
from imagebuilder.doctor.gpu import gpu_findings
from imagebuilder.doctor.net import net_findings
from imagebuilder.host import LIVE, Host, this_host
from imagebuilder.host.daemon import Daemon, read_daemon
from imagebuilder.host.machine import Disk, find_program, read_disk, read_machine
from imagebuilder.host.reach import Answer, together
from imagebuilder.host.toolkit import Toolkit, read_toolkit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from imagebuilder.matrix.facts import Matrix

__all__ = ["Facts", "Finding", "examine", "gather", "stops_a_build"]

# the engine, the driver, the index and the registry are asked side by side
_SECONDS = 8.0


def examine(facts: Facts, matrix: Matrix, *, need_bytes: int) -> tuple[Finding, ...]:
    """Judge the facts of a host; `need_bytes` is what one build fills on a disk."""
    return (
        *build_findings(facts, need_bytes),
        *net_findings(facts),
        *gpu_findings(facts, matrix),
        *container_findings(facts, matrix),
    )


def stops_a_build(findings: tuple[Finding, ...]) -> bool:
    """Whether something failed that every build needs."""
    return any(one.status == "fail" and one.needed_for == "build" for one in findings)


def gather(
    *, now: datetime, cache: Path, asked: Mapping[str, Callable[[], Answer]], root: Path = LIVE
) -> Facts:
    """Ask everything at once; takes less than 10 seconds whatever does not answer.

    `cache` is the folder in which downloads are kept. `asked` holds the questions to the network by name,
    `index` and `registry`.
    """
    questions: dict[str, Callable[[], Any]] = {
        "host": lambda: this_host(root),
        "toolkit": lambda: read_toolkit(root),
        "daemon": lambda: read_daemon(find_program(root, "docker")),
        **asked,
    }
    answers = together(questions, seconds=_SECONDS)
    daemon = answers.get("daemon", Daemon())
    return Facts(
        host=answers.get("host", Host(nvml_error="the driver did not answer in time")),
        machine=read_machine(root),
        toolkit=answers.get("toolkit", Toolkit()),
        daemon=daemon,
        disks=_disks(daemon, cache),
        index=answers.get("index"),
        registry=answers.get("registry"),
        now=now,
        unanswered=tuple(name for name in questions if name not in answers),
    )


def _disks(daemon: Daemon, cache: Path) -> tuple[Disk, ...]:
    disks = [read_disk("images", folder) for folder in daemon.content]
    disks.append(read_disk("downloads", cache))
    return tuple(disk for disk in disks if disk is not None)
