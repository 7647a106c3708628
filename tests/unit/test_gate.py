"""The start-up gate: what it says, and that it never stands in a command's way unless asked to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.checks import gate

PROGRAM = [sys.executable, "-IS", gate.__file__]
STACK: dict[str, Any] = {
    "identifier": "pytorch-2.4.1-cuda12.1",
    "driver_min": "525.60.13",
    "compute_capabilities": ["7.0", "7.5", "8.0", "8.6", "9.0"],
    "fallbacks": [
        {"stack": "old-driver", "driver_min": "450.80.02", "compute_capabilities": ["7.0", "8.0"]},
        {"stack": "new-gpu", "driver_min": "525.60.13", "compute_capabilities": ["12.0"]},
    ],
}


def run(*command: str, mode: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command through the gate as an image does."""
    environment = {key: value for key, value in os.environ.items() if key != "IMGBUILD_GATE"}
    environment.update({"IMGBUILD_GATE": mode} if mode is not None else {})
    return subprocess.run(
        [*PROGRAM, *command], env=environment, capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize(
    ("driver", "gpus", "words"),
    [
        ("525.60.13", [("A100", "8.0")], ""),
        ("570.1", [("L4", "8.9")], ""),
        ("", [("A100", "8.0")], ""),
        ("525.60.12", [("A100", "8.0")], "driver 525.60.12 is older than 525.60.13; `old-driver` would fit"),
        (
            "570.1",
            [("RTX 5090", "12.0")],
            "RTX 5090 (12.0) is not among its compute capabilities; `new-gpu` would fit",
        ),
        ("450.0", [("A100", "8.0")], "no other known image fits either"),
        ("525.60.12", [("RTX 5090", "12.0")], "no other known image fits either"),
        ("570.1", [("Orin", "8.7")], "Orin (8.7)"),
        ("570.1", [("A100", "8.0"), ("A100", "8.0")], ""),
    ],
)
def test_the_line_says_what_does_not_fit_and_what_would(
    driver: str, gpus: list[tuple[str, str]], words: str
) -> None:
    """Driver and every GPU are compared; the named image fits both."""
    line = gate.compare(STACK, driver, gpus)
    assert (line == "") == (words == "")
    assert words in line


def test_on_wsl_only_the_branch_of_the_driver_counts() -> None:
    """Windows drivers have other minor numbers: 525.13 there is of the branch that the floor names."""
    assert gate.compare(STACK, "525.13", [], wsl=True) == ""
    assert "older" in gate.compare(STACK, "516.1", [], wsl=True)


@pytest.mark.parametrize(
    "stack",
    [{}, {"driver_min": 5}, {"driver_min": "x.y"}, {"compute_capabilities": ["a"]}, {"fallbacks": [{}]}],
)
def test_odd_manifests_hold_nothing_against_the_host(stack: dict[str, Any]) -> None:
    """What the manifest does not say, or says in another form, is not compared."""
    assert isinstance(gate.compare(stack, "1.0", []), str)


def fake(
    tmp_path: Path, *devices: str, driver: str | None = None, stack: object = STACK
) -> tuple[str, str, str]:
    """Give manifest, version file and device folder of a made-up host."""
    dev = tmp_path / "dev"
    dev.mkdir()
    for name in devices:
        (dev / name).touch()
    proc, path = tmp_path / "version", tmp_path / "stack.json"
    if driver:
        proc.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Mar  5 2024\n")
    path.write_text(stack if isinstance(stack, str) else json.dumps(stack))
    return str(path), str(proc), str(dev)


def test_an_old_driver_is_named(tmp_path: Path) -> None:
    """The kernel module's version is compared without any library of the driver."""
    line = gate.verdict(*fake(tmp_path, "nvidia0", "nvidiactl", driver="470.57.02"))
    assert line == (
        "this host does not fit pytorch-2.4.1-cuda12.1: driver 470.57.02 is older than 525.60.13; "
        "`old-driver` would fit"
    )


def test_a_fitting_host_is_silent(tmp_path: Path) -> None:
    """Nothing is said where nothing is wrong; WSL2 without driver libraries is unknown, not wrong."""
    assert gate.verdict(*fake(tmp_path, "nvidia0", driver="550.54.15")) == ""


def test_wsl_has_no_version_file_and_is_no_missing_gpu(tmp_path: Path) -> None:
    """With /dev/dxg there is a GPU although /proc/driver/nvidia is absent."""
    assert gate.verdict(*fake(tmp_path, "dxg")) == ""


@pytest.mark.parametrize(
    ("driver", "words"), [("550.54.15", "no GPU in this container"), (None, "no NVIDIA driver visible")]
)
def test_no_gpu_gives_the_run_line(tmp_path: Path, driver: str | None, words: str) -> None:
    """A driver without devices means a missing flag; without a driver everything runs on the CPU."""
    line = gate.verdict(*fake(tmp_path, "nvidiactl", driver=driver))
    assert words in line
    assert "docker run --gpus all --shm-size=1g IMAGE" in line


@pytest.mark.parametrize(
    "stack", ["", "{", "[]", "null", "\x00", '{"driver_min": [1]}', '{"fallbacks": 3, "driver_min": "999.1"}']
)
def test_a_broken_manifest_never_stops_the_command(tmp_path: Path, stack: str) -> None:
    """Whatever stack.json holds, the command runs (a made-up host is passed as parameters)."""
    manifest, proc, dev = fake(tmp_path, "nvidia0", driver="550.54.15", stack=stack)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import gate;"
        "gate.main(['echo', 'ran'], 'warn', manifest=sys.argv[2], proc_version=sys.argv[3], dev=sys.argv[4])"
    )
    folder = str(Path(gate.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-IS", "-c", script, folder, manifest, proc, dev],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "ran\n"
    assert done.stderr.count("\n") <= 1


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_codes_pass_through(code: int) -> None:
    """The command's own exit code is the container's."""
    assert run("sh", "-c", f"exit {code}", mode="off").returncode == code


def test_it_becomes_the_command() -> None:
    """The command keeps the process id, so that signals reach it and nothing waits beside it."""
    with subprocess.Popen([*PROGRAM, "sleep", "30"], stderr=subprocess.DEVNULL) as child:
        for _ in range(200):
            if Path(f"/proc/{child.pid}/comm").read_text().strip() == "sleep":
                break
            time.sleep(0.02)
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("name", ["SIGPIPE", "SIGINT", "SIGXFSZ", "SIGTERM"])
def test_signals_have_their_usual_meaning_in_the_command(name: str) -> None:
    """Python's own handling of signals is not passed on."""
    if name == "SIGINT":  # whoever runs the tests in the background may have turned it off
        signal.signal(signal.SIGINT, signal.default_int_handler)
    done = run("sh", "-c", f"kill -{name[3:]} $$; echo survived", mode="off")
    assert done.returncode == -getattr(signal, name)
    assert done.stdout == ""


def test_an_ignored_interrupt_stays_ignored() -> None:
    """What was ignored when the container started is not reset (nohup, background jobs)."""
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "x", *PROGRAM, "sh", "-c", "kill -INT $$; echo survived"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "survived\n"


@pytest.mark.parametrize(
    ("command", "code"), [("no-such-command-here", 127), ("/etc/passwd", 126), ("/no/such", 127), ("/", 126)]
)
def test_commands_that_cannot_run_have_the_codes_of_a_shell(command: str, code: int) -> None:
    """127 for what is not there, 126 for what is no program, and one line that says so."""
    done = run(command, mode="off")
    assert done.returncode == code
    assert done.stderr.startswith(f"imgbuild: `{command}`")
    assert done.stderr.count("\n") == 1


def test_environment_and_arguments_arrive_as_given() -> None:
    """Nothing is added to the environment (Python sets LC_CTYPE in the C locale), nothing is quoted anew."""
    done = subprocess.run(
        [*PROGRAM, "/usr/bin/env"],
        env={"A": "1 2", "IMGBUILD_GATE": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.splitlines()) == ["A=1 2", "IMGBUILD_GATE=off"]
    assert run("printf", "%s|", "a b", "$HOME", "", mode="off").stdout == "a b|$HOME||"


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="there is a GPU here")
def test_modes_without_a_gpu() -> None:
    """Warn says one line and runs, strict says it and ends with 3, off is silent, another word is named."""
    warned, strict, silent, odd = (run("echo", "ran", mode=mode) for mode in (None, "strict", "off", "loud"))
    assert (warned.returncode, warned.stdout, warned.stderr.count("\n")) == (0, "ran\n", 1)
    assert (strict.returncode, strict.stdout, strict.stderr.count("\n")) == (3, "", 1)
    assert (silent.returncode, silent.stdout, silent.stderr) == (0, "ran\n", "")
    assert (odd.returncode, odd.stdout, odd.stderr.count("\n")) == (0, "ran\n", 1)


def test_no_command_is_said() -> None:
    """An image without a command and none given ends with 127."""
    done = run(mode="off")
    assert (done.returncode, done.stderr) == (127, "imgbuild: no command was given\n")


def test_closed_output_does_not_matter() -> None:
    """A container without stderr still runs its command."""
    done = subprocess.run(
        ["sh", "-c", 'exec 2>&-; exec "$@"', "x", *PROGRAM, "echo", "ran"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ran\n")


def test_it_is_quick() -> None:
    """Less than three times the start of a bare Python: nothing heavy is imported."""

    def best(command: list[str]) -> float:
        times = []
        for _ in range(12):
            started = time.perf_counter()
            subprocess.run(command, stderr=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - started)
        return min(times)

    assert best([*PROGRAM, "/bin/true"]) < 3 * best([sys.executable, "-IS", "-c", "pass"]) + 0.005
