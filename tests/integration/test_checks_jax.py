"""The checks of JAX, run for real on the CPU: every GPU check executes with `cpu` as its device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from framework_venv import functions, make, perform, perform_all

if TYPE_CHECKING:
    from pathlib import Path

WRONG = """
import jax.numpy as jnp
real = jnp.matmul
jnp.matmul = lambda a, b: real(a, b) * (1.001 if a.dtype == "float32" else 1)
"""
LOUD = """
import jax
real = jax.lax.psum
jax.lax.psum = lambda x, name: real(x, name) + 1
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install JAX's CPU wheels."""
    return make(tmp_path_factory.mktemp("jax"), "jax==0.7.2")


@pytest.fixture(scope="module")
def answers(python: Path) -> dict[str, dict[str, Any]]:
    """Run every check of JAX once, with the CPU as its device."""
    return perform_all(python, "jax")


@pytest.mark.parametrize("function", functions("jax"))
def test_every_check_executes_on_the_cpu(function: str, answers: dict[str, dict[str, Any]]) -> None:
    """The code of each GPU check runs here too, so that it is not met first on a GPU; TF32 is a GPU's."""
    answer = answers[function]
    assert answer["status"] == ("skip" if function == "jax_amp:tf32" else "pass"), answer


def test_mixed_precision_reports_types_and_errors(answers: dict[str, dict[str, Any]]) -> None:
    """BF16: products and convolutions are BF16, one step stays near FP32, the loss falls."""
    answer = answers["jax_amp:bf16"]
    for name in ("transformer", "cnn"):
        facts = answer["evidence"][name]
        assert facts["types"] == ["bfloat16"]
        assert 0 < facts["gradient_error"] < 1e-1
        assert facts["losses"][-1] < 0.9 * facts["losses"][0]
        assert answer["evidence"]["speed_ratio_to_fp32"][name] > 0


def test_wrong_results_are_found(python: Path) -> None:
    """A product that is off by a thousandth, and a sum over devices that is off by one."""
    answer = perform(python, "jax_gpu:matmul", WRONG)
    assert (answer["status"], "off by 1.0e-03" in answer["summary"]) == ("fail", True)
    answer = perform(python, "jax_nccl:collectives", LOUD)
    assert answer["summary"] == "all-reduce gives wrong numbers"


def test_parts_of_another_version_are_found(python: Path) -> None:
    """Jax and jaxlib of different versions, as an upgrade of one of them leaves them."""
    answer = perform(python, "jax_env:framework", "import jax; jax.__version__ = '0.7.1'\n")
    assert answer["status"] == "fail"
    assert "jaxlib is 0.7.2, jax is 0.7.1" in answer["summary"]
