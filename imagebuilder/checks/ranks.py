"""Start one process a rank, wait for all of them, and say how they ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from .process import child_environment, last_lines, signal_name


@dataclass(frozen=True)
class Team:
    """How a team of ranks ended: an answer for each rank (None where it gave none), and the reasons."""

    answers: List[Optional[Dict[str, Any]]]
    codes: List[Optional[int]]
    timed_out: bool
    log: str
    output: str

    @property
    def complete(self) -> bool:
        """Whether every rank answered and ended well."""
        return not self.timed_out and all(self.answers) and not any(self.codes)

    def how(self) -> str:
        """Say in a few words what went wrong."""
        if self.timed_out:
            return "the ranks hang"
        for rank, code in enumerate(self.codes):
            if code is not None and code < 0 and code != -9:
                return "rank {} was killed by signal {}".format(rank, signal_name(code))
        failed = [rank for rank, code in enumerate(self.codes) if code]
        return "rank {} failed".format(failed[0]) if failed else "a rank gave no answer"


def start(
    module: str,
    task: str,
    device: str,
    world: int,
    limit: float,
    extra: Optional[Dict[str, str]] = None,
    full: bool = False,
) -> Team:
    """Run `python -m MODULE TASK` of this package in `world` processes for at most `limit` seconds.

    When one rank fails, the others would wait for it for ever: they are ended too.
    """
    folder = tempfile.mkdtemp(prefix="ranks-", dir=os.getcwd())
    workers = [_worker(module, task, device, rank, world, folder, extra, full) for rank in range(world)]
    deadline = time.monotonic() + limit
    timed_out = False
    try:
        while any(worker.poll() is None for worker in workers):
            if any(worker.poll() for worker in workers):
                time.sleep(0.5)  # so that the others can still say what they saw
                break
            if time.monotonic() > deadline:
                timed_out = True
                break
            time.sleep(0.02)
        codes = [worker.poll() for worker in workers]
    finally:
        # They are of the check's own process group, which the runner ends in any case.
        for worker in workers:
            worker.kill()
            worker.wait()
    return Team(
        answers=[_answer(folder, rank) for rank in range(world)],
        codes=codes,
        timed_out=timed_out,
        log=_texts(folder, "nccl"),
        output=_texts(folder, "output"),
    )


def _worker(
    module: str,
    task: str,
    device: str,
    rank: int,
    world: int,
    folder: str,
    extra: Optional[Dict[str, str]],
    full: bool,
) -> "subprocess.Popen[bytes]":
    environment = child_environment(
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": str(rank),
            "IMGBUILD_RANKS": folder,
            "IMGBUILD_DEVICE": device,
            "IMGBUILD_FULL": "1" if full else "",
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_FILE": os.path.join(folder, "nccl-{}".format(rank)),
            # The ranks of this test are on one host, and a container may have no other interface.
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            **(extra or {}),
        }
    )
    with open(os.path.join(folder, "output-{}".format(rank)), "wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "{}.{}".format(__package__, module), task],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
        )


def _answer(folder: str, rank: int) -> Optional[Dict[str, Any]]:
    try:
        with open(os.path.join(folder, "answer-{}".format(rank)), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _texts(folder: str, prefix: str) -> str:
    texts = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(prefix):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
    return "\n".join(texts)


def tail(team: Team) -> List[str]:
    """Give the last lines that the ranks printed."""
    return last_lines(team.output, 20)
