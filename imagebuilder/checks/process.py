"""One check in one child process: whatever the child does, the parent gets an answer in time."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

_TAIL = 65536  # bytes of output that are kept
_MOST_RESULT = 4 * 1024 * 1024  # bytes of answer that are read


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    `answer` is the object it wrote, or None. `code` is its exit code, negative for a signal. `output` is
    the end of stdout and stderr together. `oom_kills` counts what the kernel killed for memory meanwhile.
    """

    answer: Optional[Dict[str, Any]]
    code: int
    timed_out: bool
    seconds: float
    output: str
    oom_kills: int = 0


def package_root() -> str:
    """Give the folder that must be on the path for this package's own name to be importable."""
    folder = os.path.dirname(os.path.abspath(__file__))
    for _ in __package__.split("."):
        folder = os.path.dirname(folder)
    return folder


def child_environment(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """Give the environment as it is, with this package importable from any folder."""
    environment = dict(os.environ)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = package_root() + (os.pathsep + path if path else "")
    environment["PYTHONUNBUFFERED"] = "1"
    environment.update(extra or {})
    return environment


def run_child(
    module: str, request: Dict[str, Any], limit: float, extra: Optional[Dict[str, str]] = None
) -> Ended:
    """Run `python -m MODULE` of this package with `request` on stdin, for at most `limit` seconds.

    The child leads a session of its own and works in a folder of its own, so that its whole family can be
    ended and a `torch.py` in the current folder does not get in the way. The answer comes over a pipe that
    nobody else writes to: whatever programs print on stdout does not matter. `extra` adds variables.
    """
    folder = tempfile.mkdtemp(prefix="imgbuild-check-")
    reader, writer = os.pipe()
    kills = _oom_kills()
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "{}.{}".format(__package__, module), str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=child_environment(extra),
            pass_fds=(writer,),
            start_new_session=True,
        )
        os.close(writer)
        try:
            _send(child, request)
            output, answer, timed_out = _collect(child, reader, started + limit)
        finally:
            end_family(child)
    finally:
        os.close(reader)
        shutil.rmtree(folder, ignore_errors=True)
    return Ended(
        answer=_parse(answer),
        code=child.returncode,
        timed_out=timed_out,
        seconds=round(time.monotonic() - started, 3),
        output=output.decode("utf-8", "replace"),
        oom_kills=_oom_kills() - kills,
    )


def _send(child: "subprocess.Popen[bytes]", request: Dict[str, Any]) -> None:
    if child.stdin is None:
        return
    try:
        child.stdin.write(json.dumps(request).encode())
        child.stdin.close()
    except BrokenPipeError:  # it died at once; how it ended says why
        pass


def _collect(child: "subprocess.Popen[bytes]", reader: int, deadline: float) -> Any:
    """Read output and answer until the child has ended or its time is up."""
    kept: Dict[int, bytes] = {reader: b""}
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        if child.stdout is not None:
            kept[child.stdout.fileno()] = b""
            selector.register(child.stdout.fileno(), selectors.EVENT_READ)
        while selector.get_map():
            now = time.monotonic()
            if now >= deadline:
                break
            # A grandchild may hold the pipes open: the end of the child itself is what counts.
            events = selector.select(min(0.1, deadline - now))
            for key, _ in events:
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fd)
                keep = _MOST_RESULT if key.fd == reader else _TAIL
                kept[key.fd] = (kept[key.fd] + data)[-keep:]
            if not events and child.poll() is not None:
                break
    timed_out = _wait(child, deadline)
    answer = kept.pop(reader)
    return (b"".join(kept.values()), answer, timed_out)


def _wait(child: "subprocess.Popen[bytes]", deadline: float) -> bool:
    try:
        child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return True
    return False


def end_family(child: "subprocess.Popen[Any]") -> None:
    """Kill what is left of the child's process group, and collect the child."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _parse(data: bytes) -> Optional[Dict[str, Any]]:
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _oom_kills() -> int:
    """Count the processes of this container that the kernel killed for memory (control groups, version 2)."""
    try:
        with open("/sys/fs/cgroup/memory.events", encoding="ascii") as file:
            for line in file:
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    except (OSError, ValueError):
        pass
    return 0


def signal_name(code: int) -> str:
    """Give the name of the signal behind a negative exit code."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return "signal {}".format(-code)


def last_lines(output: str, most: int = 15) -> List[str]:
    """Give the last lines that say something."""
    return [line.rstrip()[:400] for line in output.splitlines() if line.strip()][-most:]
