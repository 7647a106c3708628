"""The image of the main job, from real wheels: what it holds, how it behaves, and what its report says."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any
from xml.etree import ElementTree

import pytest
from commands import docker, succeeded
from conftest import MAIN_JOB, RealImage

VERSIONS = (
    "import json, torch; print(json.dumps([torch.__version__, torch.backends.cudnn.version(),"
    " list(torch.cuda.nccl.version()), torch.version.cuda]))"
)


@pytest.fixture(scope="module")
def report(real_image: RealImage) -> dict[str, Any]:
    """Read the report that the build wrote."""
    document: dict[str, Any] = json.loads((real_image.report / "report.json").read_text())
    return document


def labels(image: RealImage) -> dict[str, str]:
    """Give the labels of the image."""
    form = "{{json .Config.Labels}}"
    found: dict[str, str] = json.loads(docker("image", "inspect", "--format", form, image.reference).stdout)
    return found


def test_the_versions_are_those_of_the_stack(real_image: RealImage) -> None:
    """Torch, cuDNN and NCCL say of themselves what the issue asks for."""
    done = real_image.run("python", "-c", VERSIONS)
    assert json.loads(done.stdout) == ["2.4.1+cu121", 90100, [2, 20, 5], "12.1"]


def test_the_default_tag(real_image: RealImage) -> None:
    """The tag is the stack's and names the digest that was built."""
    assert real_image.document["tags"] == ["pytorch:2.4.1-cuda12.1-cudnn9-py3.11-debian12"]
    form = "{{.Id}}"
    assert (
        docker("image", "inspect", "--format", form, real_image.reference).stdout.strip()
        == real_image.document["digest"]
    )


def test_the_verdict_without_a_gpu(real_image: RealImage, report: dict[str, Any]) -> None:
    """Environment and libraries pass, AMP and collectives have CPU evidence, GPU checks are skipped."""
    status: dict[str, set[str]] = {}
    for result in report["results"]:
        status.setdefault(result["group"], set()).add(result["status"])
    assert status["env"] == status["libs"] == {"pass"}
    assert status["gpu"] == {"skip"}
    cpu = {
        result["id"]
        for result in report["results"]
        if (result["status"], result["device"]) == ("pass", "cpu")
    }
    assert {"amp.bf16", "nccl.collectives", "nccl.ddp", "compile.model"} <= cpu
    assert report["verdict"] == real_image.document["verdict"] == "passed without GPU evidence"


def test_report_and_junit_agree(real_image: RealImage, report: dict[str, Any]) -> None:
    """Both files name the same checks, the image, its digest and its stack."""
    root = ElementTree.fromstring((real_image.report / "junit.xml").read_bytes())  # noqa: S314 (our own file)
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert set(cases) == {result["id"] for result in report["results"]}
    skipped = {name for name, case in cases.items() if case.find("skipped") is not None}
    assert skipped == {result["id"] for result in report["results"] if result["status"] == "skip"}
    assert not list(root.iter("failure"))
    assert (report["schema"], report["digest"]) == (1, real_image.document["digest"])
    assert report["stack"] == real_image.document["identifier"]


def test_doing_it_again_does_nothing(real_image: RealImage) -> None:
    """The same command takes the lock, the image and the report that are there."""
    begun = time.monotonic()
    done = real_image.place.imgbuild(*MAIN_JOB, "--report", "again")
    document = succeeded(done)
    assert time.monotonic() - begun < 30
    assert (document["digest"], document["reused"]) == (real_image.document["digest"], True)
    folder = real_image.place.folder
    assert (folder / "again" / "report.json").read_bytes() == (real_image.report / "report.json").read_bytes()


def test_require_gpu(real_image: RealImage) -> None:
    """Where GPU evidence is required and there is none, the exit code is 6 and the tag stays as it was."""
    done = real_image.place.imgbuild(*MAIN_JOB, "--require-gpu")
    assert done.returncode == 6, done.stderr
    assert "no GPU has run this image" in done.stderr


def test_labels(real_image: RealImage) -> None:
    """Driver floor, compute capabilities and versions can be read without running the image."""
    found = labels(real_image)
    assert found["io.imgbuild.stack"] == real_image.document["identifier"]
    assert found["io.imgbuild.driver.min"] == "525.60.13"
    assert "8.0" in found["io.imgbuild.compute-capabilities"].split()
    assert (found["io.imgbuild.cuda"], found["io.imgbuild.cudnn"]) == ("12.1", "9.1.0.70")
    assert found["org.opencontainers.image.version"] == "2.4.1-cuda12.1-cudnn9-py3.11-debian12"


def test_only_the_command_speaks_on_stdout(real_image: RealImage) -> None:
    """What a command prints is all there is on stdout; the gate's line goes to stderr."""
    done = real_image.run("echo", "x")
    assert (done.returncode, done.stdout) == (0, "x\n")
    assert done.stderr.count("\n") == 1
    assert real_image.run("echo", "x", options=("-e", "IMGBUILD_GATE=off")).stderr == ""


def test_the_strict_gate(real_image: RealImage) -> None:
    """IMGBUILD_GATE=strict refuses to start without a GPU."""
    done = real_image.run("echo", "x", options=("-e", "IMGBUILD_GATE=strict"))
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_exit_codes_pass_through(real_image: RealImage, command: str, code: int) -> None:
    """The container ends with the command's own exit code."""
    assert real_image.run("sh", "-c", command, options=("--init",)).returncode == code


def test_what_cannot_be_run(real_image: RealImage) -> None:
    """A command that does not exist gives 127, one that is no program 126, as in a shell."""
    assert real_image.run("no-such-command").returncode == 127
    assert real_image.run("/etc/passwd").returncode == 126


def test_signals_pass_through(real_image: RealImage) -> None:
    """`docker stop` reaches the command itself, which ends by its own handler at once."""
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(42));"
        "print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        ["docker", "run", "--rm", "--network", "none", real_image.reference, "python", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 42


def test_torchrun(real_image: RealImage) -> None:
    """`torchrun` is on PATH and starts two ranks that meet."""
    script = (
        "import os, torch, torch.distributed as d; d.init_process_group('gloo'); x = torch.ones(1);"
        "d.all_reduce(x); assert x.item() == 2; os.write(1, f'met {d.get_rank()} '.encode())"
    )
    command = f'echo "{script}" > job.py && torchrun --standalone --nproc-per-node 2 job.py'
    # without any network a container cannot resolve its own name, which the ranks meet at
    done = real_image.run("sh", "-c", command, network="bridge")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["0", "1", "met", "met"]


@pytest.mark.parametrize("user", [(), ("-u", "1234:1234"), ("-u", "0:0")])
def test_any_user_can_work(real_image: RealImage, user: tuple[str, ...]) -> None:
    """The default user, an unknown uid and root write to HOME and /workspace and import torch."""
    command = (
        'touch "$HOME/a" /workspace/a && id -u && python -c "import torch; print(torch.ones(2).sum().item())"'
    )
    done = real_image.run("sh", "-c", command, options=user)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [user[1].split(":")[0] if user else "1000", "2.0"]


def test_nothing_of_the_build_is_left(real_image: RealImage) -> None:
    """No pip, installer, package cache, list or byte code is in the image, but a C compiler is."""
    command = (
        "ls -d /root/.cache /opt/uv /run/secrets /run/imgbuild /etc/pip.conf 2>/dev/null;"
        "find /var/lib/apt/lists /var/log /opt/venv -type f "
        r"\( -name '*.pyc' -o -path '/var/l*' \) 2>/dev/null | head;"
        "python -m pip --version 2>/dev/null; gcc --version | head -n 1"
    )
    done = real_image.run("sh", "-c", command, options=("-u", "0"))
    assert len(done.stdout.splitlines()) == 1, done.stdout
    assert done.stdout.startswith("gcc ")


def test_the_checks_are_in_the_image(real_image: RealImage) -> None:
    """`imgbuild-check` lists its checks, runs a group of them, and ends with 6 without required evidence."""
    listed = real_image.run("imgbuild-check", "--list")
    assert listed.returncode == 0
    assert "nccl.collectives" in listed.stdout
    done = real_image.run("imgbuild-check", "--only", "env.python", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "passed without GPU evidence")
    assert real_image.run("imgbuild-check", "--only", "env.python", "--require-gpu").returncode == 6


def test_the_constraints_keep_the_framework(real_image: RealImage) -> None:
    """An installation on top that would replace the image's torch is refused by the constraints."""
    done = real_image.run("sh", "-c", 'cat "$PIP_CONSTRAINT" "$UV_CONSTRAINT"')
    assert done.stdout.splitlines().count("torch==2.4.1") == 2
