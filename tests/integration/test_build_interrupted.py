"""Ctrl-C and termination at any moment: exit 130 or 143, nothing half-done, and the next build succeeds."""

from __future__ import annotations

import signal
import subprocess
import time
from shutil import rmtree

import pytest
from commands import TEST_NAMES, Place, containers, has_image, succeeded
from local_index import LOCK, REQUEST, Tiny

# The line of the progress at which the signal comes, and whether the index is slow at that time.
MOMENTS = {
    "the build begins": "render ",
    "wheels are fetched": "running pytorch",
    "layers are exported": "running exporting",
    "the image is read back": "done    exporting",
}


def interrupt(place: Place, line: str, number: signal.Signals, *words: str) -> tuple[int, str]:
    """Start a build, send a signal when its progress says `line`, and give exit code and output."""
    process = place.start("build", "--progress", "plain", *words)
    told = []
    assert process.stderr is not None
    for text in process.stderr:
        told.append(text)
        if line in text:
            process.send_signal(number)
            break
    rest = process.communicate(timeout=60)[1]
    return process.returncode, "".join(told) + rest


def assert_clean(place: Place, before: set[str]) -> None:
    """See that no file, container or build of an interrupted command is left."""
    assert not place.leftovers()
    assert not containers() - before
    end = time.monotonic() + 5
    while (found := _builds_of(place)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not found, "buildx still runs"


def _builds_of(place: Place) -> list[str]:
    """Give the processes that work on temporary files of this place."""
    found = subprocess.run(
        ["pgrep", "--full", "--list-full", str(place.temporary)], capture_output=True, text=True, check=False
    )
    return found.stdout.splitlines()


@pytest.fixture
def before(engine: None) -> set[str]:
    """Give the containers that were there before."""
    return containers()


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c(own_tiny: Tiny, before: set[str], moment: str) -> None:
    """SIGINT ends with 130, no tag and nothing left; the same command then succeeds."""
    tag = f"{TEST_NAMES}/interrupted:{moment.replace(' ', '-')}"
    words = ("--lock", LOCK, "--no-test", "--tag", tag)
    own_tiny.index.delay = 3.0 if moment == "wheels are fetched" else 0.0
    code, told = interrupt(own_tiny.place, MOMENTS[moment], signal.SIGINT, *words)
    assert code == 130, told
    assert "Traceback" not in told
    assert not has_image(tag)
    assert_clean(own_tiny.place, before)
    own_tiny.index.delay = 0.0
    succeeded(own_tiny.build("--tag", tag))


def test_ctrl_c_while_locking(own_tiny: Tiny, before: set[str]) -> None:
    """SIGINT while the index is asked for versions leaves no lock."""
    process = own_tiny.place.start("build", *REQUEST, "--no-test", "--tag", f"{TEST_NAMES}/interrupted:lock")
    own_tiny.index.asked.clear()
    own_tiny.index.delay = 1.0
    while not own_tiny.index.asked and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 130, told
    assert [path.name for path in own_tiny.place.folder.iterdir()] == [LOCK]
    assert_clean(own_tiny.place, before)


def test_ctrl_c_while_testing(own_tiny: Tiny, before: set[str]) -> None:
    """SIGINT during the smoke checks removes their container and gives no tag."""
    tag = f"{TEST_NAMES}/interrupted:test"
    code, told = interrupt(own_tiny.place, "built and read back", signal.SIGINT, "--lock", LOCK, "--tag", tag)
    assert code == 130, told
    assert not has_image(tag)
    assert_clean(own_tiny.place, before)


def test_termination(own_tiny: Tiny, before: set[str]) -> None:
    """SIGTERM, as CI systems cancel a job, stops the build and cleans up as Ctrl-C does."""
    own_tiny.index.delay = 3.0
    tag = f"{TEST_NAMES}/interrupted:terminated"
    words = ("--lock", LOCK, "--no-test", "--tag", tag)
    code, told = interrupt(own_tiny.place, "running pytorch", signal.SIGTERM, *words)
    assert code == 143, told
    assert not has_image(tag)
    assert_clean(own_tiny.place, before)


def test_a_killed_build_can_be_run_again(own_tiny: Tiny) -> None:
    """After SIGKILL, which nobody can clean up after, the same command still succeeds."""
    own_tiny.index.delay = 1.0
    tag = f"{TEST_NAMES}/interrupted:killed"
    words = ("--lock", LOCK, "--no-test", "--tag", tag)
    code, _ = interrupt(own_tiny.place, "running pytorch", signal.SIGKILL, *words)
    assert code == -signal.SIGKILL
    own_tiny.index.delay = 0.0
    succeeded(own_tiny.build("--tag", tag))
    for left in own_tiny.place.bases.glob("context-*"):
        rmtree(left)
