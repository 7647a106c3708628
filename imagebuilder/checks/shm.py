"""Shared memory, which NCCL between processes needs: checked before NCCL is started."""

from __future__ import annotations

from typing import Optional

from . import host
from .result import Context, Failed, Outcome, Skipped

# Docker gives 64 MB unless asked; 1 GiB is what the run line of every image asks for.
WANTED = 1 << 30
RUN_LINE = "docker run --gpus all --shm-size=1g --ulimit memlock=-1 --ulimit stack=67108864 IMAGE"


def shm(context: Context) -> Outcome:
    """Check that shared memory is at least 1 GiB where two or more GPUs are to work together."""
    gpus = context.gpus if context.gpus is not None else count_gpus(context)
    size = host.shm_bytes()
    evidence = {"shm_bytes": size, "wanted_bytes": WANTED, "gpus": gpus}
    problem = too_small(size, gpus)
    if problem:
        problem.evidence = evidence
        raise problem
    text = "shared memory {}".format("is absent" if size is None else "{} MiB".format(size >> 20))
    return Outcome("{}, {} GPU{}".format(text, gpus, "" if gpus == 1 else "s"), evidence)


def count_gpus(context: Context) -> int:
    """Give the number of GPUs that CUDA shows; 0 on the CPU."""
    if context.device != "cuda":
        return 0
    return int(host.cuda().get("devices") or 0)


def nccl_can_start(context: Context) -> None:
    """Raise Skipped where NCCL of one process over all GPUs cannot run: MIG, or too little shared memory."""
    if context.device != "cuda":
        return
    if any(device.get("mig") for device in host.nvml().get("devices") or []):
        raise Skipped("NCCL does not run across the MIG instances of a GPU")
    if too_small(host.shm_bytes(), count_gpus(context)):
        raise Skipped("not started: /dev/shm is too small, see `nccl.shm`", next_step=RUN_LINE)


def too_small(size: Optional[int], gpus: int) -> Optional[Failed]:
    """Give the failure when `size` bytes are too few for `gpus` GPUs, else None."""
    if gpus < 2 or (size is not None and size >= WANTED):
        return None
    found = "absent" if size is None else "{} MiB".format(size >> 20)
    return Failed(
        "shared memory (/dev/shm) is {}, {} GPUs want 1024 MiB".format(found, gpus),
        diagnosis="shm too small: NCCL stops with `unhandled system error`, data loaders with a bus error",
        next_step=RUN_LINE,
    )
