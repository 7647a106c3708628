"""The runner: whatever a check does, there is an answer in time and the other checks go on."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from imagebuilder.checks import catalogue, runner
from imagebuilder.checks.result import CheckResult

FOLDER = Path(runner.__file__).parent

BROKEN = """
import ctypes, os, signal, subprocess, sys, time
from .result import Failed, Outcome, Skipped

def fine(context): return Outcome("fine", {"device": context.device})
def skipped(context): raise Skipped("nothing to see", diagnosis="because")
def failed(context): raise Failed("bad", diagnosis="cause", next_step="do this", evidence={"n": 1})
def raises(context): raise ImportError("libcudnn.so.9: cannot open shared object file: No such file")
def hangs(context):
    subprocess.Popen(["sleep", "300"])
    time.sleep(300)
def hangs_in_c(context): ctypes.CDLL(None).pause()
def segfault(context): ctypes.string_at(0)
def aborts(context): os.abort()
def exits(context): sys.exit(0)
def vanishes(context): os._exit(3)
def is_killed(context): os.kill(os.getpid(), signal.SIGKILL)
def bus(context):
    print("nccl: Bus error in /dev/shm", flush=True)
    os.kill(os.getpid(), signal.SIGBUS)
def noisy(context):
    sys.stdout.write('{"status": "pass", "summary": "forged"}\\n' + "x" * 3_000_000)
    return Outcome("noise does not matter", {"big": "y" * 300_000})
def grandchild(context):
    subprocess.Popen(["sleep", "300"])
    return Outcome("left a process behind")
def bad_device(context):
    import warnings
    warnings.warn("B200 with CUDA capability sm_100 is not compatible with the current PyTorch installation.")
    return Outcome("only warned")
"""

DRIVER = """
import json, sys
from checks import catalogue, runner
checks = [catalogue.Check("env." + name, "broken:" + name, "host", name) for name in sys.argv[2:]]
facts = {}
results = runner.run(runner.Plan(checks, timeout=float(sys.argv[1])), facts, lambda result: None)
print(json.dumps([result.to_dict() for result in results]))
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Give a folder with a copy of the checks as it lies in images, and some broken ones beside them."""
    shutil.copytree(FOLDER, tmp_path / "checks", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "checks" / "broken.py").write_text(BROKEN)
    (tmp_path / "driver.py").write_text(DRIVER)
    return tmp_path


def run(folder: Path, limit: float, *names: str) -> list[dict[str, object]]:
    """Run broken checks through the real runner."""
    done = subprocess.run(
        [sys.executable, "driver.py", str(limit), *names],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    results: list[dict[str, object]] = json.loads(done.stdout)
    return results


def cli(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line in an interpreter of its own."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "imagebuilder.checks", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_way_to_die_is_a_failed_check_and_the_rest_go_on(broken: Path) -> None:
    """Segfault, abort, kill, exit and silence are failed checks that say how they ended; later checks run."""
    results = run(broken, 20, "segfault", "aborts", "is_killed", "exits", "vanishes", "bus", "fine")
    words = [str(result["diagnosis"]) for result in results]
    assert [result["status"] for result in results] == ["fail"] * 6 + ["pass"]
    assert "killed by signal SIGSEGV" in words[0]
    assert "killed by signal SIGABRT" in words[1]
    assert "killed by signal SIGKILL" in words[2]
    assert "memory" in words[2]
    assert "SystemExit" in words[3]
    assert "exit code 3" in str(results[4]["summary"])
    assert "shared memory" in words[5]
    assert results[5]["next_step"] == "run with `--shm-size=1g` or `--ipc=host`"


@pytest.mark.parametrize("name", ["hangs", "hangs_in_c"])
def test_a_hang_is_ended_in_time_and_shows_where_it_stood(broken: Path, name: str) -> None:
    """A check that does not answer is ended with its children; the evidence holds its threads' stacks."""
    started = time.monotonic()
    (result,) = run(broken, 6, name)
    assert time.monotonic() - started < 15
    assert result["status"] == "fail"
    assert result["summary"] == "no answer in 6 s"
    assert f"in {name}" in json.dumps(result["evidence"])


def test_a_check_that_leaves_processes_behind_does_not_hold_up_the_run(broken: Path) -> None:
    """The pipes that a grandchild keeps open do not count; the check's own end does."""
    started = time.monotonic()
    (result,) = run(broken, 60, "grandchild")
    assert result["status"] == "pass"
    assert time.monotonic() - started < 10


def test_output_can_neither_forge_nor_block_a_result(broken: Path) -> None:
    """What a check or a library prints never becomes its result, however much it is."""
    (result,) = run(broken, 20, "noisy")
    assert result["status"] == "pass"
    assert result["summary"] == "noise does not matter"


def test_outcomes_keep_their_words(broken: Path) -> None:
    """Skips and failures carry reason, cause, next step and evidence."""
    skipped, failed, raised = run(broken, 20, "skipped", "failed", "raises")
    assert (skipped["status"], skipped["diagnosis"]) == ("skip", "because")
    assert (failed["diagnosis"], failed["next_step"]) == ("cause", "do this")
    assert failed["evidence"]["n"] == 1  # type: ignore[index]
    assert "libcudnn.so.9" in str(raised["diagnosis"])


def test_a_warning_about_capability_is_a_failure(broken: Path) -> None:
    """A framework that only warns about a GPU it has no code for does not pass."""
    (result,) = run(broken, 20, "bad_device")
    assert result["status"] == "fail"
    assert "no code for this GPU" in str(result["diagnosis"])


def result(group: str, status: str, device: str | None = "host") -> CheckResult:
    """Give a result of a group."""
    return CheckResult({"gpu": runner.KERNELS}.get(group, f"{group}.x"), group, status, 0.0, device, "words")


def test_a_pass_needs_gpu_checks_that_passed() -> None:
    """Skipped GPU checks, or none, are no GPU evidence; requiring it makes that a failure."""
    env, gpu = result("env", "pass"), result("gpu", "pass", "cuda")
    skipped, on_cpu = result("gpu", "skip", None), result("gpu", "pass", "cpu")
    assert runner.verdict([env, gpu]) == "passed"
    for blind in ([env], [env, skipped], [env, gpu, skipped], [env, on_cpu], []):
        assert runner.verdict(blind) == "passed without GPU evidence"
        assert runner.verdict(blind, require_gpu=True) == "failed"
    assert runner.verdict([env, gpu, result("amp", "fail", "cuda")]) == "failed"


def test_a_driver_alone_is_no_gpu_evidence() -> None:
    """An image whose framework has no checks of its own gets `gpu.driver` passed, and no kernel has run."""
    driver = CheckResult("gpu.driver", "gpu", "pass", 0.0, "cuda", "R580")
    assert runner.verdict([driver]) == "passed without GPU evidence"
    assert runner.verdict([driver], require_gpu=True) == "failed"


def test_the_framework_of_the_manifest_is_checked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of TensorFlow that holds the user's PyTorch too is checked as TensorFlow."""
    for name in ("torch", "tensorflow"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert runner.detect_framework("tensorflow") == "tensorflow"
    assert runner.detect_framework() == "pytorch"
    assert runner.detect_framework("jax") == "pytorch"


def test_command_line_prints_one_document_and_writes_the_same_report(tmp_path: Path) -> None:
    """`--format json` and `--report` give the report of the documented shape; exit 0 without a failure."""
    report = tmp_path / "report.json"
    done = cli("--only", "env.python", "--only", "gpu", "--format", "json", "--report", str(report))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads(report.read_text())
    assert document["schema"] == 1
    assert document["verdict"] == "passed without GPU evidence"
    assert document["results"][0]["id"] == "env.python"
    assert {
        "id",
        "group",
        "status",
        "seconds",
        "device",
        "summary",
        "evidence",
        "diagnosis",
        "next_step",
    } == set(document["results"][0])
    assert list(tmp_path.iterdir()) == [report]


def test_without_gpu_the_gpu_checks_are_skipped_and_can_be_required(tmp_path: Path) -> None:
    """`--gpus none` skips the group with a reason and a next step; `--require-gpu` makes that exit 6."""
    done = cli("--only", "gpu.driver", "--gpus", "none", "--require-gpu", "--format", "json")
    document = json.loads(done.stdout)
    assert done.returncode == 6
    assert document["verdict"] == "failed"
    (only,) = document["results"]
    assert only["status"] == "skip"
    assert only["diagnosis"]
    assert "--gpus all" in only["next_step"]


def test_a_check_on_a_required_gpu_fails_where_there_is_none() -> None:
    """`--device cuda` runs the GPU checks for real, so that they fail with the cause."""
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("there is a GPU here")
    done = cli("--only", "gpu.driver", "--device", "cuda")
    assert done.returncode == 6
    assert "no GPU here" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--only", "gpux"),
        ("--gpus", "0"),
        ("--gpus", "-1"),
        ("--timeout", "0"),
        ("--timeout", "x"),
        ("--suite", "all"),
    ],
)
def test_wrong_usage_is_exit_2_without_a_traceback(arguments: tuple[str, ...]) -> None:
    """A wrong option is one clear line on stderr."""
    done = cli(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_list_shows_checks_and_runs_none() -> None:
    """`--list` names every check of the framework that is here."""
    done = cli("--list", "--format", "json")
    ids = [row["id"] for row in json.loads(done.stdout)]
    assert ids == [check.id for check in catalogue.for_framework(runner.detect_framework())]


def test_every_check_names_a_function_that_is_there() -> None:
    """The catalogue and the modules agree, without importing a framework."""
    for check in catalogue.CHECKS:
        module, name = check.function.split(":")
        tree = ast.parse((FOLDER / f"{module}.py").read_text())
        assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)], check.id
        assert check.group in catalogue.GROUPS


def test_every_check_is_documented() -> None:
    """docs/checks.md has a section for each check."""
    text = (Path(__file__).parents[2] / "docs" / "checks.md").read_text()
    for check in catalogue.CHECKS:
        assert f"`{check.id}`" in text, check.id


def test_the_folder_stands_alone_and_is_python_3_8() -> None:
    """No syntax after Python 3.8, and no import but the standard library, relative ones and frameworks."""
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names or top in {"torch", "numpy", "jax", "tensorflow"}, (
                    f"{path.name}: {name}"
                )


def test_frameworks_are_imported_inside_functions_only() -> None:
    """Listing and choosing checks never imports a framework."""
    for path in FOLDER.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & {
                    "torch",
                    "numpy",
                    "jax",
                    "tensorflow",
                }, path.name
