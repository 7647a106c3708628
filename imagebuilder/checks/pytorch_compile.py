"""The group `compile`: torch.compile of a small model gives what the model gives."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, Optional

from . import symptoms, toolchain
from .pytorch_models import gradients, joined, relative_error
from .result import Context, Failed, Outcome, Skipped

_BOUND = 1e-4  # FP32 against FP32, with sums in another order


def model(context: Context) -> Outcome:
    """Check that outputs, in the full suite gradients too, of a compiled model equal the eager ones."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of workers for one small graph
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.abspath("inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.abspath("triton")
    import torch

    backend, note = _backend(torch, context.device)
    evidence: Dict[str, Any] = {"backend": backend, "device": context.device}
    network = _network(torch, context.device)
    inputs = torch.randn(32, 64, device=context.device)
    expected = network(inputs)
    started = time.monotonic()
    try:
        compiled = torch.compile(network, backend=backend)
        found = compiled(inputs)
        evidence["output_error"] = relative_error(found, expected)
        if context.full:
            evidence["gradient_error"] = _gradient_error(torch, network, compiled, inputs)
    except Exception as error:
        raise _failure(error, backend, evidence) from error
    evidence["compile_seconds"] = round(time.monotonic() - started, 2)
    worst = max(evidence["output_error"], evidence.get("gradient_error", 0.0))
    if not worst <= _BOUND:
        raise Failed(
            "compiled and eager results differ by {:.1e}".format(worst),
            diagnosis="the generated code computes something else than eager mode",
            evidence=evidence,
        )
    return Outcome(
        "{}{} in {} s, off eager by {:.0e}".format(backend, note, evidence["compile_seconds"], worst),
        evidence,
    )


def _backend(torch: Any, device: str) -> Any:
    """Choose Inductor where it can work; raises Skipped where upstream has no torch.compile at all."""
    if not hasattr(torch, "compile"):
        raise Skipped("torch.compile begins with torch 2.0")
    problem = _refusal(torch)
    if problem:
        raise Skipped(problem, evidence={"python": sys.version.split()[0], "torch": torch.__version__})
    if device == "cpu" and toolchain.cxx_compiler() is None:
        return "aot_eager", " (graph capture alone: no C++ compiler for Inductor's CPU code)"
    return "inductor", ""


def _refusal(torch: Any) -> Optional[str]:
    """Give the words with which this torch refuses to compile on this Python."""
    try:
        torch.compile(lambda x: x, backend="eager")
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None


def _network(torch: Any, device: str) -> Any:
    torch.manual_seed(3)
    nn = torch.nn
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 16)).to(device)


def _gradient_error(torch: Any, network: Any, compiled: Any, inputs: Any) -> float:
    found = []
    for function in (network, compiled):
        network.zero_grad(set_to_none=True)
        function(inputs).square().mean().backward()
        found.append(joined(torch, gradients(network)))
    return relative_error(found[1], found[0])


def _failure(error: Exception, backend: str, evidence: Dict[str, Any]) -> Failed:
    text = "{}: {}".format(type(error).__name__, error)
    known = symptoms.find(text)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return Failed(
        "torch.compile with {} stops: {}".format(backend, first[:200]),
        diagnosis=known.diagnosis if known else "see `compile.toolchain`, and `evidence.error`",
        next_step=known.next_step if known else None,
        evidence={**evidence, "error": text.splitlines()[-25:]},
    )
