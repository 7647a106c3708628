"""An end from outside is treated as Ctrl-C is: the build is stopped and every temporary thing removed."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType


def clean_up_on_termination() -> None:
    """Make SIGTERM (a cancelled CI job) and SIGHUP (a closed terminal) unwind the command before it ends.

    The exit code is 128 and the signal's number, as shells have it.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        # what was ignored on purpose (nohup) stays so
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    # a second one must not cut the cleaning up short
    signal.signal(number, signal.SIG_IGN)
    sys.stderr.write("imgbuild: terminated; nothing was left half-written\n")
    sys.exit(128 + number)
