"""The group `nccl` for PyTorch: collectives and parallel steps over all GPUs, or Gloo in two processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from . import host, nccl_log, ranks, shm, symptoms
from .result import Context, Failed, Outcome, Skipped

if TYPE_CHECKING:
    from .ranks import Team

_CPU_RANKS = 2
_BOUND = 1e-5  # FP32, with sums in another order


def collectives(context: Context) -> Outcome:
    """Check that the collectives give the right numbers, and measure their speed."""
    team, evidence = _run(context, "collectives")
    wrong = [
        "{} is off by {:g} on rank {}".format(name, facts["error"], rank)
        for rank, answer in enumerate(team.answers)
        for name, facts in (answer or {}).items()
        if facts["error"] != 0
    ]
    answer = team.answers[0] or {}
    evidence["collectives"] = answer
    if wrong:
        raise Failed(
            wrong[0], diagnosis="a collective gives wrong numbers: " + "; ".join(wrong[:8]), evidence=evidence
        )
    speeds = ", ".join("{} {:g} GB/s".format(name, facts["bus_gb_s"]) for name, facts in answer.items())
    if evidence["ranks"] == 1:
        speeds = ", ".join(answer) + " right; one rank has no bus"
    return Outcome("{}: {}{}".format(_who(context, evidence), speeds, _carried(evidence)), evidence)


def ddp(context: Context) -> Outcome:
    """Check that a step of DistributedDataParallel leaves the parameters of one step on the whole batch."""
    return _equal(context, "ddp", "data-parallel")


def tensor_parallel(context: Context) -> Outcome:
    """Check that a step of two layers split over the ranks leaves the parameters of the undivided step."""
    return _equal(context, "tensor_parallel", "tensor-parallel")


def _equal(context: Context, task: str, title: str) -> Outcome:
    team, evidence = _run(context, task)
    worst = max(float((answer or {})["error"]) for answer in team.answers)
    evidence["error"] = worst
    if not worst <= _BOUND:
        raise Failed(
            "a {} step is off the single-process step by {:.1e}".format(title, worst),
            diagnosis="ranks do not add up their gradients rightly",
            evidence=evidence,
        )
    return Outcome("{}: {} step off by {:.0e}".format(_who(context, evidence), title, worst), evidence)


def _world(context: Context) -> int:
    """Give the number of ranks: one for each GPU, or two on the CPU; raises Skipped where NCCL cannot run."""
    if context.device != "cuda":
        return _CPU_RANKS
    devices = host.nvml().get("devices") or []
    if any(device.get("mig") for device in devices):
        raise Skipped("NCCL does not run across the MIG instances of a GPU")
    seen = shm.count_gpus(context)
    if seen == 0:
        raise Failed("CUDA shows no GPU", diagnosis="see `gpu.driver`")
    world = min(seen, context.gpus) if context.gpus else seen
    if shm.too_small(host.shm_bytes(), world):
        raise Skipped("not started: /dev/shm is too small, see `nccl.shm`", next_step=shm.RUN_LINE)
    return world


def _run(context: Context, task: str) -> Tuple[Team, Dict[str, Any]]:
    """Run a task over all ranks; a failure carries what NCCL's log says of its cause."""
    world = _world(context)
    limit = max(10.0, context.limit * 0.45)  # leaves time for the second try that tells the cause
    team = ranks.start("pytorch_rank", task, context.device, world, limit, full=context.full)
    evidence: Dict[str, Any] = {"ranks": world, "backend": "nccl" if context.device == "cuda" else "gloo"}
    if context.device == "cuda":
        evidence["nccl"] = nccl_log.read(team.log)
        evidence["shm_bytes"] = host.shm_bytes()
    if not team.complete:
        raise _failure(context, task, team, evidence)
    return team, evidence


def _failure(context: Context, task: str, team: Team, evidence: Dict[str, Any]) -> Failed:
    evidence["output_of_ranks"] = ranks.tail(team)
    evidence["log"] = nccl_log.warnings(team.log)[-10:]
    summary = "{} {} ranks: {}".format(evidence["ranks"], evidence["backend"], team.how())
    if team.timed_out and context.device == "cuda" and evidence["ranks"] > 1:
        return _hang(context, task, summary, evidence)
    known = nccl_log.cause(team.log + "\n" + team.output) if context.device == "cuda" else None
    symptom = known or symptoms.find(team.output)
    return Failed(
        summary,
        diagnosis=symptom.diagnosis if symptom else "see `evidence.output_of_ranks` and `evidence.log`",
        next_step=symptom.next_step if symptom else None,
        evidence=evidence,
    )


def _hang(context: Context, task: str, summary: str, evidence: Dict[str, Any]) -> Failed:
    """Try again without peer-to-peer: when that goes through, peer-to-peer is what hangs."""
    limit = max(5.0, context.limit * 0.35)
    again = ranks.start(
        "pytorch_rank", task, "cuda", evidence["ranks"], limit, {"NCCL_P2P_DISABLE": "1"}, context.full
    )
    evidence["without_p2p"] = {
        "complete": again.complete,
        "answer": again.answers[0],
        **nccl_log.read(again.log),
    }
    if again.complete:
        return Failed(
            summary + ", and go through with NCCL_P2P_DISABLE=1",
            diagnosis="P2P is broken on this host: PCIe ACS or IOMMU redirects it, usual in virtual machines",
            next_step="turn ACS off on the host, or set NCCL_P2P_DISABLE=1 there, never in the image",
            evidence=evidence,
        )
    known = nccl_log.cause(again.log)
    return Failed(
        summary + ", also without peer-to-peer",
        diagnosis=known.diagnosis
        if known
        else "NCCL cannot connect the ranks; `evidence.log` has its last words",
        next_step=known.next_step if known else "look at the host's interfaces and at NCCL_SOCKET_IFNAME",
        evidence=evidence,
    )


def _who(context: Context, evidence: Dict[str, Any]) -> str:
    count: int = evidence["ranks"]
    return "{} {} rank{}".format(count, evidence["backend"], "" if count == 1 else "s")


def _carried(evidence: Dict[str, Any]) -> str:
    """Name the transport that NCCL itself reports, and a slow one as such."""
    found: Dict[str, Any] = evidence.get("nccl") or {}
    pairs: Dict[str, List[str]] = found.get("pairs") or {}
    if not pairs:
        return ""
    slow = nccl_log.slow_path(pairs)
    note = " (slow path: {} pairs do not use P2P)".format(len(pairs[slow])) if slow else ""
    return "; via {}{}".format(", ".join(sorted(found["transports"])), note)
