"""The checks of TensorFlow, run for real on the CPU: every GPU check executes with `cpu` as its device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from framework_venv import functions, make, perform, perform_all

if TYPE_CHECKING:
    from pathlib import Path

WRONG = """
import tensorflow as tf
real = tf.matmul
tf.matmul = lambda a, b: real(a, b) * (1.001 if a.dtype == tf.float32 else 1)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install TensorFlow's CPU wheels."""
    return make(tmp_path_factory.mktemp("tensorflow"), "tensorflow-cpu==2.20.0")


@pytest.fixture(scope="module")
def answers(python: Path) -> dict[str, dict[str, Any]]:
    """Run every check of TensorFlow once, with the CPU as its device."""
    return perform_all(python, "tensorflow")


@pytest.mark.parametrize("function", functions("tensorflow"))
def test_every_check_executes_on_the_cpu(function: str, answers: dict[str, dict[str, Any]]) -> None:
    """The code of each GPU check runs here too, so that it is not met first on a GPU; TF32 is a GPU's."""
    answer = answers[function]
    assert answer["status"] == ("skip" if function == "tensorflow_amp:tf32" else "pass"), answer


def test_mixed_precision_reports_types_and_errors(answers: dict[str, dict[str, Any]]) -> None:
    """Under mixed_bfloat16 layers give BF16, one step stays near FP32, the loss falls."""
    answer = answers["tensorflow_amp:bf16"]
    for name in ("transformer", "cnn"):
        facts = answer["evidence"][name]
        assert facts["types"] == ["bfloat16"]
        assert 0 < facts["gradient_error"] < 1e-1
        assert facts["losses"][-1] < 0.9 * facts["losses"][0]
        assert answer["evidence"]["speed_ratio_to_fp32"][name] > 0


def test_no_gpu_at_all_is_named(python: Path) -> None:
    """TensorFlow goes on without a word on the CPU where it does not find its CUDA libraries."""
    answer = perform(python, "tensorflow_gpu:devices", device="cuda")
    assert (answer["status"], answer["summary"]) == ("fail", "TensorFlow sees no GPU")
    assert "CUDA libraries" in answer["diagnosis"]


def test_wrong_results_are_found(python: Path) -> None:
    """A product that is off by a thousandth does not pass the comparison with float64."""
    answer = perform(python, "tensorflow_gpu:matmul", WRONG)
    assert (answer["status"], "off by 1.0e-03" in answer["summary"]) == ("fail", True)
