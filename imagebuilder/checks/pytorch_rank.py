"""One rank of the group `nccl`: joins the others, does one task, writes what it found."""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

from .pytorch_amp import set_tf32
from .pytorch_models import relative_error, synchronize

Task = Callable[[Any, Any, int, int, str], Dict[str, Any]]


def main() -> None:
    """Run the task named by the only argument, as the rank that the environment says."""
    import datetime

    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = os.environ["IMGBUILD_RANKS"]
    device = os.environ["IMGBUILD_DEVICE"]
    if device == "cuda":
        device = "cuda:{}".format(rank)
        torch.cuda.set_device(rank)
    torch.set_num_threads(1)
    set_tf32(torch, False)
    dist.init_process_group(
        "nccl" if device.startswith("cuda") else "gloo",
        init_method="file://" + os.path.join(folder, "store"),
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=600),  # the team's own limit ends a hang long before
    )
    answer = TASKS[sys.argv[1]](torch, dist, rank, world, device)
    draft = os.path.join(folder, "draft-{}".format(rank))
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(draft, os.path.join(folder, "answer-{}".format(rank)))
    dist.barrier()
    # Gloo's clean-up can deadlock when everything is done (seen in destroy_process_group of torch 2.4.1, once
    # in some twelve runs): the answer is written and every rank has arrived, so the process just ends.
    sys.stdout.flush()
    os._exit(0)


def collectives(torch: Any, dist: Any, rank: int, world: int, device: str) -> Dict[str, Any]:
    """Run each collective on known numbers, compare with what must come out, and time it."""
    full = bool(os.environ.get("IMGBUILD_FULL"))
    count = (1 << 26 if full else 1 << 24) if device.startswith("cuda") else 1 << 16
    count -= count % world
    found = {}
    for name, build in _COLLECTIVES.items():
        run, check, factor = build(torch, dist, rank, world, device, count)
        if run is None:
            continue
        run()
        error = check()
        seconds = _time(torch, dist, device, run)
        moved = count * 4
        found[name] = {
            "error": error,
            "bytes": moved,
            "seconds": seconds,
            "algorithm_gb_s": round(moved / seconds / 1e9, 3),
            "bus_gb_s": round(moved / seconds * factor / 1e9, 3),
        }
    return found


def _time(torch: Any, dist: Any, device: str, run: Callable[[], Any]) -> float:
    repeats = 10 if device.startswith("cuda") else 3
    dist.barrier()
    synchronize(torch, device)
    started = time.perf_counter()
    for _ in range(repeats):
        run()
    synchronize(torch, device)
    return max((time.perf_counter() - started) / repeats, 1e-9)


def _values(torch: Any, rank: int, count: int, device: str) -> Any:
    """Give numbers that name their rank and place; sums of them are exact in FP32."""
    return (torch.arange(count, device=device) % 1024 + rank * 7).float()


def _all_reduce(
    torch: Any, dist: Any, rank: int, world: int, device: str, count: int
) -> Tuple[Any, Any, float]:
    tensor = _values(torch, rank, count, device)
    expected = sum(_values(torch, other, count, device) for other in range(world))
    first: List[Any] = []

    def run() -> None:
        work = tensor.clone()
        dist.all_reduce(work)
        first[:] = [work]

    return run, lambda: float((first[0] - expected).abs().max()), 2 * (world - 1) / world


def _all_gather(
    torch: Any, dist: Any, rank: int, world: int, device: str, count: int
) -> Tuple[Any, Any, float]:
    part = count // world
    mine = _values(torch, rank, part, device)
    parts = [torch.empty_like(mine) for _ in range(world)]
    expected = torch.cat([_values(torch, other, part, device) for other in range(world)])
    return (
        lambda: dist.all_gather(parts, mine),
        lambda: float((torch.cat(parts) - expected).abs().max()),
        (world - 1) / world,
    )


def _reduce_scatter(
    torch: Any, dist: Any, rank: int, world: int, device: str, count: int
) -> Tuple[Any, Any, float]:
    if not device.startswith("cuda"):
        return None, None, 0.0  # Gloo has it in new releases only
    part = count // world
    inputs = list(_values(torch, rank, count, device).chunk(world))
    out = torch.empty(part, device=device)
    whole = sum(_values(torch, other, count, device) for other in range(world))
    expected = whole[rank * part : (rank + 1) * part]
    return (
        lambda: dist.reduce_scatter(out, inputs),
        lambda: float((out - expected).abs().max()),
        (world - 1) / world,
    )


def _broadcast(
    torch: Any, dist: Any, rank: int, world: int, device: str, count: int
) -> Tuple[Any, Any, float]:
    tensor = _values(torch, rank, count, device)
    expected = _values(torch, world - 1, count, device)
    return lambda: dist.broadcast(tensor, src=world - 1), lambda: float((tensor - expected).abs().max()), 1.0


_COLLECTIVES: Dict[str, Callable[..., Tuple[Any, Any, float]]] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "broadcast": _broadcast,
}


def _network(torch: Any) -> Any:
    torch.manual_seed(11)
    nn = torch.nn
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))


def _batch(torch: Any, world: int) -> Tuple[Any, Any]:
    torch.manual_seed(12)
    return torch.randn(4 * world, 32), torch.randn(4 * world, 8)


def _step(torch: Any, model: Any, inputs: Any, labels: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), labels).backward()
    optimizer.step()


def ddp(torch: Any, dist: Any, rank: int, world: int, device: str) -> Dict[str, Any]:
    """Take one step on a share of the batch with DistributedDataParallel, and one alone on all of it."""
    alone = _network(torch).to(device)
    model = copy.deepcopy(alone)
    inputs, labels = (tensor.to(device) for tensor in _batch(torch, world))
    _step(torch, alone, inputs, labels)
    ids = [rank] if device.startswith("cuda") else None
    wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)
    mine = slice(4 * rank, 4 * rank + 4)
    _step(torch, wrapped, inputs[mine], labels[mine])
    pairs = zip(model.parameters(), alone.parameters())  # noqa: B905 - Python 3.8 has no strict
    return {"error": max(relative_error(found, exact) for found, exact in pairs)}


def tensor_parallel(torch: Any, dist: Any, rank: int, world: int, device: str) -> Dict[str, Any]:
    """Split two layers over the ranks, the first by columns, the second by rows; compare with the whole.

    The forward pass sums the ranks' parts with an all-reduce; the gradient of the sum is every part's.
    """
    torch.manual_seed(13)
    wide = 16 * world
    first, second = torch.randn(wide, 32) / 6, torch.randn(8, wide) / 8
    inputs, labels = (tensor.to(device) for tensor in _batch(torch, world))
    whole = [first.clone().to(device).detach().requires_grad_(), second.clone().to(device).requires_grad_()]
    exact = torch.tanh(inputs @ whole[0].t()) @ whole[1].t()
    torch.nn.functional.mse_loss(exact, labels).backward()

    mine = slice(16 * rank, 16 * rank + 16)
    a = first[mine].clone().to(device).detach().requires_grad_()
    b = second[:, mine].clone().to(device).detach().requires_grad_()
    part = torch.tanh(inputs @ a.t()) @ b.t()
    total = part.detach().clone()
    dist.all_reduce(total)
    total.requires_grad_()
    torch.nn.functional.mse_loss(total, labels).backward()
    part.backward(total.grad)
    with torch.no_grad():
        stepped = [a - 0.1 * a.grad, b - 0.1 * b.grad]
        wanted = [(w - 0.1 * w.grad) for w in whole]
    errors = {
        "output": relative_error(total, exact),
        "first": relative_error(stepped[0], wanted[0][mine]),
        "second": relative_error(stepped[1], wanted[1][:, mine]),
    }
    return {"error": max(errors.values()), "errors": errors}


TASKS: Dict[str, Task] = {"collectives": collectives, "ddp": ddp, "tensor_parallel": tensor_parallel}

if __name__ == "__main__":
    main()
