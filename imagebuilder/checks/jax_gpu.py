"""The group `gpu` for JAX: what it sees, and whether kernels are right."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, Tuple

from . import host
from .gpu import count_problem
from .jax_common import devices as devices_of
from .jax_common import load, named, relative_error, types
from .result import Context, Failed, Outcome, raise_all

# As for PyTorch: relative error (Frobenius norm) against float64.
_BOUNDS = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 4e-2}
_CONVOLUTION_BOUNDS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 4e-2}
_LAYOUT = ("NCHW", "OIHW", "NCHW")


def devices(context: Context) -> Outcome:
    """JAX sees as many GPUs as the driver shows and CUDA_VISIBLE_DEVICES leaves."""
    jax = load(context)
    nvml = host.nvml()
    try:
        seen = devices_of(jax, context) if context.device == "cuda" else []
    except RuntimeError as error:  # no plugin, or one that does not start
        raise Failed(
            "JAX has no GPU: {}".format(str(error).splitlines()[0][:200]),
            diagnosis="the CUDA plugin is missing or does not start; jax runs on the CPU without an error",
            next_step="see `env.framework` and `gpu.driver`",
        ) from error
    hiding = os.environ.get("CUDA_VISIBLE_DEVICES")
    evidence: Dict[str, Any] = {"jax": [named(one) for one in seen], "nvml": nvml, "asked": context.gpus}
    problem = count_problem(len(seen), nvml.get("devices"), hiding, context.gpus, "JAX")
    if problem:
        problem.evidence = evidence
        raise problem
    names = dict.fromkeys(one["name"] for one in evidence["jax"])
    return Outcome("{} x {}".format(len(seen), ", ".join(names) or "no GPU"), evidence)


def _compare(
    context: Context, name: str, work: Callable[..., Dict[str, float]], bounds: Dict[str, float]
) -> Outcome:
    """Run one computation on every device in every type, and compare with float64 on the CPU."""
    jax = load(context)
    problems, evidence = [], {}
    for device in devices_of(jax, context):
        for kind in types(context, device):
            with jax.default_matmul_precision("highest"):
                errors = work(jax, device, kind, context)
            evidence["{}:{} {}".format(device.platform, device.id, kind)] = errors
            worst = max(errors.values())
            if not worst <= bounds[kind]:  # also when it is not a number
                problems.append(
                    Failed(
                        "{} in {} on {} is off by {:.1e}".format(name, kind, device, worst),
                        diagnosis="wrong results: the bound against float64 is {:.0e}".format(bounds[kind]),
                        next_step="try another build or driver; if it stays, the GPU is faulty",
                    )
                )
    raise_all(problems, evidence)
    worst = max(value for key, errors in evidence.items() if "float32" in key for value in errors.values())
    return Outcome("{}, FP32 off float64 by {:.0e} at most".format(name, worst), evidence)


def matmul(context: Context) -> Outcome:
    """Check that products equal the float64 reference on every GPU in FP32, FP16 and BF16."""
    return _compare(context, "matrix product", _matmul, _BOUNDS)


def _matmul(jax: Any, device: Any, kind: str, context: Context) -> Dict[str, float]:
    import numpy as np

    size = 256 if context.device == "cpu" else (4096 if context.full else 1024)
    random = np.random.default_rng(5)
    a, b = (
        jax.device_put(random.standard_normal((size, size)).astype(np.float32), device).astype(kind)
        for _ in range(2)
    )
    exact = np.asarray(a).astype(np.float64) @ np.asarray(b).astype(np.float64)
    return {"product": relative_error(jax.numpy.matmul(a, b), exact)}


def convolution(context: Context) -> Outcome:
    """Check that a convolution, forward and backward, equals the float64 reference on every GPU."""
    return _compare(context, "convolution", _convolution, _CONVOLUTION_BOUNDS)


def _convolution(jax: Any, device: Any, kind: str, context: Context) -> Dict[str, float]:
    import numpy as np

    random = np.random.default_rng(6)
    batch = 4 if context.device == "cpu" else 16
    shapes = ((batch, 16, 24, 24), (32, 16, 3, 3), (batch, 32, 24, 24))
    cast = jax.numpy.dtype(kind)
    images, weights, upstream = (
        (random.standard_normal(shape) / (12 if shape[-1] == 3 else 1)).astype(np.float32).astype(cast)
        for shape in shapes
    )

    def whole(x: Any, w: Any, up: Any) -> Tuple[Any, ...]:
        def forward(x: Any, w: Any) -> Any:
            return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_LAYOUT)

        out, back = jax.vjp(forward, x, w)
        return (out, *back(up))

    results = []
    for where, dtype in ((device, cast), (jax.devices("cpu")[0], np.float64)):
        arrays = [jax.device_put(array.astype(dtype), where) for array in (images, weights, upstream)]
        results.append(jax.jit(whole)(*arrays))
    names = ("forward", "input_gradient", "weight_gradient")
    return {name: relative_error(found, exact) for name, found, exact in zip(names, *results)}  # noqa: B905 - Python 3.8 has no strict


def memory(context: Context) -> Outcome:
    """Check that what is written to a GPU's memory comes back, over the bus and within the GPU."""
    jax = load(context)
    import numpy as np

    problems, evidence = [], {}
    count = 1 << 20 if context.device == "cpu" else (1 << 28 if context.full else 1 << 26)
    source = (np.arange(count, dtype=np.int64) * 2654435761 % 2147483647).astype(np.int32)
    for device in devices_of(jax, context):
        started = time.perf_counter()
        there = jax.device_put(source, device).block_until_ready()
        seconds = time.perf_counter() - started
        back = np.asarray(jax.numpy.copy(there))
        key = "{}:{}".format(device.platform, device.id)
        evidence[key] = {"bytes": count * 4, "to_device_gb_s": round(count * 4 / max(seconds, 1e-9) / 1e9, 2)}
        if not np.array_equal(source, back):
            problems.append(
                Failed(
                    "{} of {} numbers come back changed from {}".format(
                        int((source != back).sum()), count, key
                    ),
                    diagnosis="the GPU's memory or the bus is faulty",
                    next_step="look for Xid and ECC messages in the host's kernel log",
                )
            )
    raise_all(problems, evidence)
    return Outcome("{} MiB there and back".format(count * 4 * len(evidence) >> 20), evidence)
