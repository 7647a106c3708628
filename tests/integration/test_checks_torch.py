"""The checks of PyTorch, run for real on the CPU: every GPU check executes with `cpu` as its device."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.checks import catalogue, child, nccl_log, ranks
from imagebuilder.checks.result import Context

ROOT = Path(catalogue.__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="torch is not installed here: pip install torch numpy setuptools",
    ),
    pytest.mark.filterwarnings("default"),
]


def perform(check_id: str, **context: Any) -> dict[str, Any]:
    """Run the function of one check in a process of its own, on the CPU."""
    (check,) = [check for check in catalogue.CHECKS if check.id == check_id]
    script = (
        "import json, sys; from imagebuilder.checks import child, result;"
        "context = result.Context(**json.loads(sys.argv[2]));"
        "print(json.dumps(child.perform(sys.argv[1], context), default=str))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, check.function, json.dumps({"device": "cpu", **context})],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize(
    "check_id", [check.id for check in catalogue.CHECKS if check.id.startswith("gpu.") and check.framework]
)
def test_gpu_checks_execute_on_the_cpu(check_id: str) -> None:
    """The code of each GPU check runs here too, so that it is not met first on a GPU."""
    answer = perform(check_id)
    assert answer["status"] == "pass", answer


@pytest.mark.parametrize(
    "check_id", ["env.framework", "libs.loaded", "amp.fp16", "amp.bf16", "nccl.collectives"]
)
def test_cpu_evidence(check_id: str) -> None:
    """Import, loaded libraries, mixed precision and collectives pass, or say why they mean nothing here."""
    answer = perform(check_id)
    assert answer["status"] in {"pass", "skip"}, answer
    assert answer["status"] == "pass" or answer["summary"]


@pytest.mark.parametrize("check_id", ["nccl.ddp", "nccl.tensor-parallel"])
def test_parallel_steps_equal_single_ones(
    check_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Gloo ranks leave the parameters of one undivided step."""
    monkeypatch.chdir(tmp_path)
    answer = perform(check_id)
    assert answer["status"] == "pass", answer
    assert answer["evidence"]["ranks"] == 2
    assert answer["evidence"]["error"] < 1e-5


def test_mixed_precision_reports_types_and_errors() -> None:
    """BF16: layers compute in BF16, one step stays near FP32, the loss falls, the speed ratio is a number."""
    answer = perform("amp.bf16")
    for name in ("transformer", "cnn"):
        facts = answer["evidence"][name]
        assert facts["types"] == ["torch.bfloat16"]
        assert 0 < facts["gradient_error"] < 8e-2
        assert facts["losses"][-1] < 0.9 * facts["losses"][0]
        assert answer["evidence"]["speed_ratio_to_fp32"][name] > 0


def test_wrong_results_are_found() -> None:
    """A product that is off by a thousandth does not pass the comparison with float64."""
    script = (
        "import json, torch; from imagebuilder.checks import child, result;"
        "real = torch.Tensor.__matmul__;"
        "torch.Tensor.__matmul__ = lambda a, b: real(a, b) * (1.001 if a.dtype == torch.float32 else 1);"
        "print(json.dumps(child.perform('pytorch_gpu:matmul', result.Context()), default=str))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["status"] == "fail"
    assert "off by 1.0e-03" in answer["summary"]


def test_ranks_that_hang_or_die_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team whose task does not exist ends at once with the rank that failed, and its output."""
    monkeypatch.chdir(tmp_path)
    team = ranks.start("pytorch_rank", "no-such-task", "cpu", 2, 60)
    assert not team.complete
    assert not team.timed_out
    assert "failed" in team.how()
    assert any("no-such-task" in line for line in ranks.tail(team))
    slow = ranks.start("pytorch_rank", "collectives", "cpu", 2, 0.1)
    assert slow.timed_out
    assert slow.how() == "the ranks hang"
    assert nccl_log.cause(slow.log) is None


def test_the_whole_quick_suite_has_a_verdict_in_time(tmp_path: Path) -> None:
    """All groups run as in an image; without a GPU the verdict says so, and no check fails."""
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("there is a GPU here")
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "imagebuilder.checks", "--report", str(report), "--skip", "env.requirements"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    document = json.loads(report.read_text())
    assert done.returncode == 0, done.stdout
    assert document["verdict"] == "passed without GPU evidence"
    assert {r["status"] for r in document["results"] if r["group"] == "gpu"} == {"skip"}
    assert not [r["id"] for r in document["results"] if r["device"] == "cuda"]


def test_perform_never_raises() -> None:
    """A function that is not there is a failed check like any other."""
    assert child.perform("pytorch_gpu:nothing", Context())["status"] == "fail"


def test_tf32_code_executes_on_the_cpu() -> None:
    """The switches of TF32 exist in this torch and leave a CPU's results alone."""
    import torch

    from imagebuilder.checks import pytorch_amp

    context = Context(device="cpu")
    mode = pytorch_amp.Mode("tf32", None, False)
    assert pytorch_amp._precision(torch, context, mode).evidence["cnn"]["gradient_error"] < 1e-5
    assert pytorch_amp._product_error(torch, "cpu", True) < 1e-5
