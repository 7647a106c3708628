"""The group `gpu` for TensorFlow: what it sees, and whether kernels are right."""

from __future__ import annotations

import functools
import os
import time
from typing import Any, Callable, Dict, Iterator, Tuple

from . import host, reference
from .gpu import count_problem
from .reference import relative_error
from .result import Context, Failed, Outcome, raise_all
from .tensorflow_common import devices as devices_of
from .tensorflow_common import facts, load, types


def devices(context: Context) -> Outcome:
    """TensorFlow sees as many GPUs as the driver shows and CUDA_VISIBLE_DEVICES leaves."""
    tf = load(context)
    nvml = host.nvml()
    seen = facts(tf) if context.device == "cuda" else []
    hiding = os.environ.get("CUDA_VISIBLE_DEVICES")
    evidence: Dict[str, Any] = {"tensorflow": seen, "nvml": nvml, "asked": context.gpus}
    if context.device == "cuda" and not seen:
        raise Failed(
            "TensorFlow sees no GPU",
            diagnosis="it does not find its CUDA libraries (`Cannot dlopen some GPU libraries`) or has none",
            next_step="see `libs.resolve` and `env.framework`; TF_CPP_MIN_LOG_LEVEL=0 tells which library",
            evidence=evidence,
        )
    problem = count_problem(len(seen), nvml.get("devices"), hiding, context.gpus, "TensorFlow")
    if problem:
        problem.evidence = evidence
        raise problem
    names = dict.fromkeys(str(one["name"]) for one in seen)
    return Outcome("{} x {}".format(len(seen), ", ".join(names) or "no GPU"), evidence)


def _runs(context: Context, work: Callable[..., Dict[str, float]]) -> Iterator[reference.Run]:
    """Give one computation on every device in every type; on the CPU one device is enough."""
    tf = load(context)
    names = devices_of(tf, context)
    for device in names if context.device == "cuda" else names[:1]:
        for kind in types(tf, context):
            yield device, kind, functools.partial(work, tf, device, kind, context)


def matmul(context: Context) -> Outcome:
    """Check that products equal the float64 reference on every GPU in FP32, FP16 and BF16."""
    return reference.compare("matrix product", reference.BOUNDS, _runs(context, _matmul))


def _matmul(tf: Any, device: str, kind: str, context: Context) -> Dict[str, float]:
    import numpy as np

    size = 256 if context.device == "cpu" else (4096 if context.full else 1024)
    random = np.random.default_rng(5)
    with tf.device(device):
        a, b = (tf.cast(random.standard_normal((size, size)), kind) for _ in range(2))
        found = tf.cast(tf.matmul(a, b), "float64").numpy()
    exact = tf.cast(a, "float64").numpy() @ tf.cast(b, "float64").numpy()
    return {"product": relative_error(found, exact)}


def convolution(context: Context) -> Outcome:
    """Check that a convolution, forward and backward, equals the float64 reference on every GPU."""
    runs = _runs(context, _convolution)
    return reference.compare("convolution", reference.CONVOLUTION_BOUNDS, runs)


def _convolution(tf: Any, device: str, kind: str, context: Context) -> Dict[str, float]:
    import numpy as np

    random = np.random.default_rng(6)
    batch = 4 if context.device == "cpu" else 16
    shapes = ((batch, 24, 24, 16), (3, 3, 16, 32), (batch, 24, 24, 32))
    images, weights, upstream = (
        tf.cast(random.standard_normal(shape) / (12 if shape[0] == 3 else 1), kind) for shape in shapes
    )

    def whole(where: str, dtype: str) -> Tuple[Any, ...]:
        with tf.device(where), tf.GradientTape() as tape:
            x, w, up = (tf.cast(one, dtype) for one in (images, weights, upstream))
            tape.watch((x, w))
            out = tf.nn.conv2d(x, w, 1, "SAME")
        gradients = tape.gradient(out, (x, w), output_gradients=up)
        return tuple(tf.cast(one, "float64").numpy() for one in (out, *gradients))

    names = ("forward", "input_gradient", "weight_gradient")
    pairs = zip(names, whole(device, kind), whole("/CPU:0", "float64"))  # noqa: B905 - Python 3.8 has no strict
    return {name: relative_error(found, exact) for name, found, exact in pairs}


def memory(context: Context) -> Outcome:
    """Check that what is written to a GPU's memory comes back, over the bus and within the GPU."""
    tf = load(context)
    import numpy as np

    problems, evidence = [], {}
    count = 1 << 20 if context.device == "cpu" else (1 << 28 if context.full else 1 << 26)
    source = (np.arange(count, dtype=np.int64) * 2654435761 % 2147483647).astype(np.float32)
    for device in devices_of(tf, context):
        with tf.device(device):
            started = time.perf_counter()
            there = tf.identity(tf.constant(source))
            back = tf.identity(there).numpy()
        seconds = time.perf_counter() - started
        speed = round(count * 8 / max(seconds, 1e-9) / 1e9, 2)
        evidence[device] = {"bytes": count * 4, "there_and_back_gb_s": speed}
        if not np.array_equal(source, back):
            problems.append(reference.changed(source, back, device))
    raise_all(problems, evidence)
    return Outcome("{} MiB there and back".format(count * 4 * len(evidence) >> 20), evidence)
