"""The group `gpu` for PyTorch: what torch sees, whether its wheel has code, whether kernels are right."""

from __future__ import annotations

import functools
import os
import re
import time
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import host, reference
from .gpu import count_problem
from .pytorch_amp import set_tf32
from .pytorch_models import relative_error, synchronize
from .result import Context, Failed, Outcome, raise_all


def devices(context: Context) -> Outcome:
    """Torch sees as many GPUs as the driver shows and CUDA_VISIBLE_DEVICES leaves."""
    import torch

    nvml = host.nvml()
    seen = torch.cuda.device_count() if context.device == "cuda" else 0
    hiding = os.environ.get("CUDA_VISIBLE_DEVICES")
    evidence: Dict[str, Any] = {
        "torch": seen,
        "nvml": nvml,
        "CUDA_VISIBLE_DEVICES": hiding,
        "asked": context.gpus,
    }
    problem = count_problem(seen, nvml.get("devices"), hiding, context.gpus, "torch")
    if problem:
        problem.evidence = evidence
        raise problem
    if context.device == "cuda":
        torch.cuda.init()
    evidence["names"] = [torch.cuda.get_device_name(index) for index in range(seen)]
    return Outcome("{} x {}".format(seen, ", ".join(dict.fromkeys(evidence["names"])) or "no GPU"), evidence)


def targets(context: Context) -> Outcome:
    """Check that the wheel holds code for every GPU, and torch initialises without a warning about one."""
    import torch

    with warnings.catch_warnings(record=True) as caught:  # those about capability are errors already
        if context.device == "cuda":
            torch.cuda.init()
    wheel = torch.cuda.get_arch_list() if torch.version.cuda else []
    promised = context.manifest.compute_capabilities if context.manifest else ()
    count = torch.cuda.device_count() if context.device == "cuda" else 0
    problems, found = [], {}
    for index in range(count):
        capability = tuple(torch.cuda.get_device_capability(index))
        found[index] = {"name": torch.cuda.get_device_name(index), "capability": "{}.{}".format(*capability)}
        how = code_for(capability, wheel)
        found[index]["code"] = how
        if how is None:
            problems.append(_no_code(found[index], wheel))
        elif promised and found[index]["capability"] not in promised and how == "ptx":
            found[index]["note"] = "compiled from PTX at first use: the first start is slow"
    evidence = {
        "wheel": wheel,
        "manifest": list(promised),
        "gpus": found,
        "warnings": [str(warning.message)[:300] for warning in caught],
    }
    raise_all(problems, evidence)
    return Outcome("code for {} GPUs among {}".format(count, " ".join(wheel) or "no targets"), evidence)


def code_for(capability: Tuple[int, ...], wheel: Sequence[str]) -> Optional[str]:
    """Say what of a wheel runs on a GPU: `cubin`, `ptx`, or None.

    A cubin runs on the same major and the same or a higher minor; one with a suffix (sm_90a) on its own
    capability alone. Integrated GPUs (5.3, 6.2, 7.2, 8.7) need code of their own.
    """
    how = None
    for entry in wheel:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", entry)
        if not match:
            continue
        kind, target, suffix = match.group(1), (int(match.group(2)), int(match.group(3))), match.group(4)
        exact = (bool(suffix) and suffix == "a") or capability in ((5, 3), (6, 2), (7, 2), (8, 7))
        if kind == "sm" and (
            target == capability or (not exact and target[0] == capability[0] and target <= capability)
        ):
            return "cubin"
        if kind == "compute" and not suffix and target <= capability:
            how = "ptx"
    return how


def _no_code(gpu: Dict[str, Any], wheel: Sequence[str]) -> Failed:
    return Failed(
        "no code for {} ({})".format(gpu["name"], gpu["capability"]),
        diagnosis="the wheel is built for {}, not for this GPU: `no kernel image is available`".format(
            " ".join(wheel)
        ),
        next_step="imgbuild resolve --framework pytorch --gpu sm_{}".format(
            gpu["capability"].replace(".", "")
        ),
    )


def _each(torch: Any, device: str) -> List[str]:
    return (
        ["cuda:{}".format(index) for index in range(torch.cuda.device_count())]
        if device == "cuda"
        else [device]
    )


def _types(torch: Any, device: str) -> List[str]:
    """Give the types to try: FP16 on a CPU has no fast kernels, BF16 begins with capability 8.0."""
    if not device.startswith("cuda"):
        return ["float32", "bfloat16"]
    modern = torch.cuda.get_device_capability(device) >= (8, 0)
    return ["float32", "float16", "bfloat16"] if modern else ["float32", "float16"]


def _runs(context: Context, work: Callable[..., Dict[str, float]]) -> Iterator[reference.Run]:
    """Give one computation on every device in every type."""
    import torch

    set_tf32(torch, False)
    for device in _each(torch, context.device):
        for kind in _types(torch, device):
            yield device, kind, functools.partial(work, torch, device, getattr(torch, kind), context)


def matmul(context: Context) -> Outcome:
    """Check that products equal the float64 reference on every GPU in FP32, FP16 and BF16."""
    return reference.compare("matrix product", reference.BOUNDS, _runs(context, _matmul))


def _matmul(torch: Any, device: str, kind: Any, context: Context) -> Dict[str, float]:
    size = 256 if device == "cpu" else (4096 if context.full else 1024)
    torch.manual_seed(5)
    a, b = torch.randn(size, size).to(kind), torch.randn(size, size).to(kind)
    return {"product": relative_error(a.to(device) @ b.to(device), a.double() @ b.double())}


def convolution(context: Context) -> Outcome:
    """Check that a convolution, forward and backward, equals the float64 reference on every GPU."""
    runs = _runs(context, _convolution)
    return reference.compare("convolution", reference.CONVOLUTION_BOUNDS, runs)


def _convolution(torch: Any, device: str, kind: Any, context: Context) -> Dict[str, float]:
    torch.manual_seed(6)
    batch = 4 if device == "cpu" else 16
    images, weights = torch.randn(batch, 16, 24, 24).to(kind), (torch.randn(32, 16, 3, 3) / 12).to(kind)
    upstream = torch.randn(batch, 32, 24, 24).to(kind)
    results = []
    for where, dtype in ((device, kind), ("cpu", torch.float64)):
        x = images.to(where, dtype).detach().requires_grad_()
        w = weights.to(where, dtype).detach().requires_grad_()
        out = torch.nn.functional.conv2d(x, w, padding=1)
        out.backward(upstream.to(where, dtype))
        results.append((out, x.grad, w.grad))
    names = ("forward", "input_gradient", "weight_gradient")
    return {name: relative_error(found, exact) for name, found, exact in zip(names, *results)}  # noqa: B905 - Python 3.8 has no strict


def memory(context: Context) -> Outcome:
    """Check that what is written to a GPU's memory comes back, over the bus and within the GPU."""
    import torch

    problems, evidence = [], {}
    for device in _each(torch, context.device):
        count = _elements(torch, device, context)
        source = torch.arange(count, dtype=torch.int32) * 2654435761 % 2147483647
        started = time.perf_counter()
        there = source.to(device)
        synchronize(torch, device)
        seconds = time.perf_counter() - started
        back = there.clone().to("cpu")
        evidence[device] = {
            "bytes": count * 4,
            "to_device_gb_s": round(count * 4 / max(seconds, 1e-9) / 1e9, 2),
        }
        if not torch.equal(source, back):
            problems.append(reference.changed(source, back, device))
    raise_all(problems, evidence)
    return Outcome(
        "{} MiB there and back".format(int(sum(e["bytes"] for e in evidence.values())) >> 20), evidence
    )


def _elements(torch: Any, device: str, context: Context) -> int:
    if device == "cpu":
        return 1 << 20
    free = int(torch.cuda.mem_get_info(device)[0])
    return min(free // 16, (1 << 30 if context.full else 1 << 26))
