"""The checks of PyTorch, run for real in the image of the main job, on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagebuilder.checks import catalogue

if TYPE_CHECKING:
    from conftest import RealImage

CHECKS = Path(catalogue.__file__).parent
OWN = [check for check in catalogue.CHECKS if check.framework == "pytorch"]
# Where the checks under test lie in the container, beside those that the image carries.
MOUNT = ("--volume", f"{CHECKS}:/src/imagebuilder/checks:ro", "--env", "PYTHONPATH=/src", "--workdir", "/tmp")
PERFORM = """
import json, sys
from imagebuilder.checks import child, result
context = result.Context(**json.loads(sys.argv[2]))
print(json.dumps(child.perform(sys.argv[1], context), default=str))
"""


def inside(image: RealImage, script: str, *words: str) -> Any:
    """Run Python in a container of the image and give the JSON document of its last line."""
    done = image.run("python", "-c", script, *words, options=(*MOUNT, "--shm-size", "1g"))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def perform(image: RealImage, check_id: str, **context: Any) -> dict[str, Any]:
    """Run the function of one check in a process of its own, on the CPU."""
    (check,) = [check for check in OWN if check.id == check_id]
    answer: dict[str, Any] = inside(image, PERFORM, check.function, json.dumps({"device": "cpu", **context}))
    return answer


@pytest.mark.parametrize("check_id", [check.id for check in OWN if check.group == "gpu"])
def test_gpu_checks_execute_on_the_cpu(check_id: str, real_image: RealImage) -> None:
    """The code of each GPU check runs here too, so that it is not met first on a GPU."""
    answer = perform(real_image, check_id)
    assert answer["status"] == "pass", answer


@pytest.mark.parametrize(
    "check_id", ["env.framework", "libs.loaded", "amp.fp16", "amp.bf16", "nccl.collectives"]
)
def test_cpu_evidence(check_id: str, real_image: RealImage) -> None:
    """Import, loaded libraries, mixed precision and collectives pass, or say why they mean nothing here."""
    answer = perform(real_image, check_id)
    assert answer["status"] in {"pass", "skip"}, answer
    assert answer["status"] == "pass" or answer["summary"]


@pytest.mark.parametrize("check_id", ["nccl.ddp", "nccl.tensor-parallel"])
def test_parallel_steps_equal_single_ones(check_id: str, real_image: RealImage) -> None:
    """Two Gloo ranks leave the parameters of one undivided step."""
    answer = perform(real_image, check_id)
    assert answer["status"] == "pass", answer
    assert answer["evidence"]["ranks"] == 2
    assert answer["evidence"]["error"] < 1e-5


def test_mixed_precision_reports_types_and_errors(real_image: RealImage) -> None:
    """BF16: layers compute in BF16, one step stays near FP32, the loss falls, the speed ratio is a number."""
    answer = perform(real_image, "amp.bf16")
    for name in ("transformer", "cnn"):
        facts = answer["evidence"][name]
        assert facts["types"] == ["torch.bfloat16"]
        assert 0 < facts["gradient_error"] < 8e-2
        assert facts["losses"][-1] < 0.9 * facts["losses"][0]
        assert answer["evidence"]["speed_ratio_to_fp32"][name] > 0


def test_wrong_results_are_found(real_image: RealImage) -> None:
    """A product that is off by a thousandth does not pass the comparison with float64."""
    broken = (
        "import torch\n"
        "real = torch.Tensor.__matmul__\n"
        "torch.Tensor.__matmul__ = lambda a, b: real(a, b) * (1.001 if a.dtype == torch.float32 else 1)\n"
    )
    answer = inside(real_image, broken + PERFORM, "pytorch_gpu:matmul", "{}")
    assert answer["status"] == "fail"
    assert "off by 1.0e-03" in answer["summary"]


def test_ranks_that_hang_or_die_are_ended(real_image: RealImage) -> None:
    """A team whose task does not exist ends at once with the rank that failed, and its output."""
    script = """
import json
from imagebuilder.checks import nccl_log, ranks
lost = ranks.start("pytorch_rank", "no-such-task", "cpu", 2, 60)
slow = ranks.start("pytorch_rank", "collectives", "cpu", 2, 0.1)
print(json.dumps({
    "complete": lost.complete, "timed_out": [lost.timed_out, slow.timed_out],
    "how": [lost.how(), slow.how()], "tail": ranks.tail(lost), "cause": nccl_log.cause(slow.log),
}))
"""
    answer = inside(real_image, script)
    assert not answer["complete"]
    assert answer["timed_out"] == [False, True]
    assert "failed" in answer["how"][0]
    assert any("no-such-task" in line for line in answer["tail"])
    assert (answer["how"][1], answer["cause"]) == ("the ranks hang", None)


def test_tf32_code_executes_on_the_cpu(real_image: RealImage) -> None:
    """The switches of TF32 exist in this torch and leave a CPU's results alone."""
    script = """
import json, torch
from imagebuilder.checks import pytorch_amp, result
mode = pytorch_amp.Mode("tf32", None, False)
found = pytorch_amp._precision(torch, result.Context(device="cpu"), mode)
print(json.dumps([found.evidence["cnn"]["gradient_error"], pytorch_amp._product_error(torch, "cpu", True)]))
"""
    assert max(inside(real_image, script)) < 1e-5
