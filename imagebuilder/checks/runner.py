"""Run the checks of the framework that is here, each in its own process, and judge the whole."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

from . import catalogue, host, symptoms
from .process import Ended, last_lines, run_child, signal_name
from .result import CheckResult

if TYPE_CHECKING:
    from .catalogue import Check

PASSED = "passed"
WITHOUT_GPU = "passed without GPU evidence"
FAILED = "failed"
# The check without which no GPU has run anything of the framework.
KERNELS = "gpu.matmul"


@dataclass(frozen=True)
class Plan:
    """What to run: `device` None chooses by what is here; `timeout` in seconds replaces every limit."""

    checks: Sequence[Check]
    suite: str = "quick"
    device: Optional[str] = None
    gpus: Optional[int] = None
    timeout: Optional[float] = None
    manifest: Optional[str] = None


def detect_framework(promised: Optional[str] = None) -> Optional[str]:
    """Give the framework that this Python can import, without importing it.

    The one that the manifest promises comes first: an image may hold two. Only the folders of sys.path are
    asked: an import hook of somebody's could hang or crash whoever asks it.
    """
    for name in sorted(catalogue.FRAMEWORKS, key=lambda one: one != promised):
        framework = catalogue.FRAMEWORKS[name]
        if importlib.machinery.PathFinder.find_spec(framework.module) is not None:
            return name
    return None


def probe(limit: float = 30.0) -> Dict[str, Any]:
    """Ask for the facts of this host in a child: a broken driver can crash or hang whoever asks."""
    request = {"function": "host:probe", "device": "cpu", "suite": "quick", "limit": limit}
    ended = run_child("child", request, limit)
    if ended.answer is None or ended.answer["status"] != "pass":
        facts = host.files()
        facts["probe"] = (
            "no answer in {:g} s".format(limit) if ended.timed_out else last_lines(ended.output, 5)
        )
        return facts
    return dict(ended.answer["evidence"])


def run(plan: Plan, facts: Dict[str, Any], tell: Callable[[CheckResult], None]) -> List[CheckResult]:
    """Run the checks one after the other; `tell` hears each result when it is there."""
    plan = replace(plan, device=plan.device or ("cuda" if host.offers_gpu(facts) else "cpu"))
    results: List[CheckResult] = []
    # Images come without byte code, and their user may not write it beside the sources: without a place
    # for it, every child would compile the whole framework anew.
    bytecode = tempfile.mkdtemp(prefix="imgbuild-bytecode-")
    extra = {"PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", bytecode)}
    try:
        for check in plan.checks:
            result = _without_gpu(check, facts) if _lacks_gpu(check, plan) else run_check(check, plan, extra)
            results.append(result)
            tell(result)
    finally:
        shutil.rmtree(bytecode, ignore_errors=True)
    return results


def _lacks_gpu(check: Check, plan: Plan) -> bool:
    return check.device == "gpu" and plan.device != "cuda"


def _without_gpu(check: Check, facts: Dict[str, Any]) -> CheckResult:
    diagnosis, next_step = host.why_no_gpu(facts)
    return CheckResult(
        id=check.id,
        group=check.group,
        status="skip",
        seconds=0.0,
        device=None,
        summary="no GPU here",
        diagnosis=diagnosis,
        next_step=next_step,
    )


def run_check(check: Check, plan: Plan, extra: Optional[Dict[str, str]] = None) -> CheckResult:
    """Run one check in a child and give its result, however the child ends."""
    limit = plan.timeout or (check.limit * (2 if plan.suite == "full" else 1))
    device = plan.device or "cpu"
    request = {
        "function": check.function,
        "device": device,
        "gpus": plan.gpus,
        "suite": plan.suite,
        "limit": limit,
        "manifest": plan.manifest,
    }
    ended = run_child("child", request, limit, extra)
    answer = ended.answer if ended.answer is not None and not ended.timed_out else _no_answer(ended, limit)
    evidence = dict(answer.get("evidence") or {})
    if answer["status"] == "fail":
        evidence.setdefault("output", last_lines(ended.output))
    return CheckResult(
        id=check.id,
        group=check.group,
        status=answer["status"],
        seconds=ended.seconds,
        device="host" if check.device == "host" else device,
        summary=answer["summary"],
        evidence=evidence,
        diagnosis=answer.get("diagnosis"),
        next_step=answer.get("next_step"),
    )


def _no_answer(ended: Ended, limit: float) -> Dict[str, Any]:
    """Say how a child ended that gave no answer."""
    known = symptoms.find(ended.output)
    if ended.timed_out:
        summary = "no answer in {:g} s".format(limit)
        diagnosis = known.diagnosis if known else "it hangs; `evidence.output` shows where each thread stood"
        next_step = "give more time with --timeout, if this machine is only slow"
    elif ended.code < 0:
        summary = "killed by signal {}".format(signal_name(ended.code))
        diagnosis, next_step = _killed(ended)
    else:
        summary = "ended with exit code {} and no answer".format(ended.code)
        diagnosis, next_step = "something called exit inside the check", None
    if known and not ended.timed_out:
        diagnosis = "{}: {}".format(summary, known.diagnosis)
    if known and known.next_step:
        next_step = known.next_step
    return {
        "status": "fail",
        "summary": summary,
        "diagnosis": diagnosis,
        "next_step": next_step,
        "evidence": {"exit_code": ended.code, "oom_kills": ended.oom_kills},
    }


_SIGNALS = {
    "SIGKILL": (
        "most often the kernel's out-of-memory killer",
        "give the container more memory (`--memory`)",
    ),
    "SIGBUS": ("a mapped file could not grow: /dev/shm or the disk is full", "run with `--shm-size=1g`"),
    "SIGILL": ("the processor lacks an instruction that the framework was built with", None),
    "SIGSEGV": (
        "a native library crashed: mixed or damaged binaries",
        "look at the `env` and `libs` checks first",
    ),
    "SIGABRT": ("a native library gave up", "look at the `libs` checks and at `evidence.output`"),
}


def _killed(ended: Ended) -> Any:
    name = signal_name(ended.code)
    cause, next_step = _SIGNALS.get(name, ("ended from outside", None))
    if ended.oom_kills:
        cause = "the kernel ended it for lack of memory"
    return "killed by signal {}: {}".format(name, cause), next_step


def verdict(results: Sequence[CheckResult], *, require_gpu: bool = False) -> str:
    """Judge the whole: `passed` needs all checks of `gpu` passed on a GPU, the kernels among them."""
    if any(result.status == "fail" for result in results):
        return FAILED
    gpu = [result for result in results if result.group == "gpu"]
    # A driver that answers proves nothing of an image whose framework has no checks here.
    kernels = any(result.id == KERNELS for result in gpu)
    proven = kernels and all(result.status == "pass" and result.device == "cuda" for result in gpu)
    if proven:
        return PASSED
    return FAILED if require_gpu else WITHOUT_GPU
