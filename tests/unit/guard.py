"""What a test may not do: start programs, reach the network, change files outside its own folder.

Audit hooks cannot be taken out again, so there is one, and it looks at what is forbidden just now.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# What unit tests start: compilers of little libraries, linters, and what an error advises to run.
PROGRAMS = {"sh", "gcc", "cc", "ldconfig", "hadolint", "shellcheck", "env", "dash", "sed"}
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system")
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
TESTS = Path(__file__).parents[1]
PYTHON = Path(os.path.realpath(sys.executable))
_fences: list[Path] = []
_guarded: list[list[str]] = []


class ForbiddenError(BaseException):
    """A test was about to do what it may not; no code under test catches this."""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _fences:
        _stop_at_fence(event, arguments)
    if _guarded:
        _stop_outside(event, arguments)


sys.addaudithook(_hook)


def _stop_at_fence(event: str, arguments: tuple[Any, ...]) -> None:
    """Stop a change outside the fence before it happens: bad input, run by root, must not hurt the host."""
    if event == "open":
        path, _, flags = arguments
        paths = [path] if isinstance(flags, int) and flags & WRITING else []
    else:
        paths = [arguments[place] for place in CHANGES.get(event, ())]
    for path in paths:
        if isinstance(path, str | bytes | os.PathLike):
            real = Path(os.path.realpath(os.fsdecode(path)))
            if real != Path(os.devnull) and not real.is_relative_to(_fences[-1]):
                raise ForbiddenError(f"{event} outside of {_fences[-1]}: {real}")


def _stop_outside(event: str, arguments: tuple[Any, ...]) -> None:
    said = None
    if event in STARTS:
        program = os.fsdecode(arguments[0] or "")
        if Path(program).name not in PROGRAMS and not _ours(program, *arguments[3:4]):
            said = f"starts the program `{program}`"
    elif event == "socket.connect" and not _local(arguments[1]):
        said = f"connects to {arguments[1]!r}"
    elif event == "socket.getaddrinfo" and not _local(arguments):
        said = f"looks up the host `{arguments[0]!r}`"
    if said:
        _guarded[-1].append(said)
        raise ForbiddenError(f"a unit test {said}: such a test belongs to tests/integration")


def _ours(program: str, environment: Any = None) -> bool:
    """Tell whether a program is this Python, a script of the tests, or none that there is."""
    path = (environment or os.environ).get("PATH")
    found = which(program, path=os.fsdecode(path) if path is not None else None)
    real = Path(os.path.realpath(found or program))
    return found is None or real == PYTHON or real.is_relative_to(TESTS) or "/pytest-" in str(real)


def _local(address: object) -> bool:
    """Tell whether an address is on this host, a socket in a test's folder, or reserved to lead nowhere."""
    if isinstance(address, str | bytes):
        return "/pytest-" in os.fsdecode(address)
    host = address[0] if isinstance(address, tuple) and address else None
    if host in (None, "localhost", b"localhost"):
        return True
    name = os.fsdecode(host)
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.endswith(".invalid")


@contextmanager
def fenced(folder: Path) -> Iterator[None]:
    """Let this process change files beneath `folder` alone."""
    _fences.append(Path(os.path.realpath(folder)))
    try:
        yield
    finally:
        _fences.pop()


@contextmanager
def guarded() -> Iterator[list[str]]:
    """Forbid programs and the network; gives the list of what was tried, also in threads."""
    tried: list[str] = []
    _guarded.append(tried)
    try:
        yield tried
    finally:
        _guarded.pop()
