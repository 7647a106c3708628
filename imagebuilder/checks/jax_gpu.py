"""The group `gpu` for JAX: what it sees, and whether kernels are right."""

from __future__ import annotations

import functools
import os
import time
from typing import Any, Callable, Dict, Iterator, Tuple

from . import host, reference
from .gpu import count_problem
from .jax_common import devices as devices_of
from .jax_common import label, load, named, types
from .reference import relative_error
from .result import Context, Failed, Outcome, raise_all

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


def _runs(context: Context, work: Callable[..., Dict[str, float]]) -> Iterator[reference.Run]:
    """Give one computation on every device in every type, without TF32."""
    jax = load(context)

    def run(device: Any, kind: str) -> Dict[str, float]:
        with jax.default_matmul_precision("highest"):
            return work(jax, device, kind, context)

    for device in devices_of(jax, context):
        for kind in types(context, device):
            yield label(device), kind, functools.partial(run, device, kind)


def matmul(context: Context) -> Outcome:
    """Check that products equal the float64 reference on every GPU in FP32, FP16 and BF16."""
    return reference.compare("matrix product", reference.BOUNDS, _runs(context, _matmul))


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
    runs = _runs(context, _convolution)
    return reference.compare("convolution", reference.CONVOLUTION_BOUNDS, runs)


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
        speed = round(count * 4 / max(seconds, 1e-9) / 1e9, 2)
        evidence[label(device)] = {"bytes": count * 4, "to_device_gb_s": speed}
        if not np.array_equal(source, back):
            problems.append(reference.changed(source, back, label(device)))
    raise_all(problems, evidence)
    return Outcome("{} MiB there and back".format(count * 4 * len(evidence) >> 20), evidence)
