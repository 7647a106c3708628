"""The group `compile` for TensorFlow: what XLA compiles gives what TensorFlow computes eagerly."""

from __future__ import annotations

import time
from typing import Any, Tuple

from .reference import relative_error
from .result import Context, Failed, Outcome
from .tensorflow_common import devices, load

_BOUND = 1e-5  # FP32, with sums in another order


def model(context: Context) -> Outcome:
    """Check that a function compiled by XLA and its gradient equal the eager ones."""
    tf = load(context)
    import numpy as np

    random = np.random.default_rng(3)
    inputs, first, second = (
        tf.constant(random.standard_normal(shape) / 8, "float32")
        for shape in ((32, 64), (64, 128), (128, 16))
    )

    def step(a: Any, b: Any) -> Tuple[Any, ...]:
        with tf.GradientTape() as tape:
            tape.watch((a, b))
            loss = tf.reduce_mean(tf.square(tf.nn.gelu(inputs @ a) @ b))
        return (loss, *tape.gradient(loss, (a, b)))

    with tf.device(devices(tf, context)[0]):
        plain = [one.numpy() for one in step(first, second)]
        started = time.monotonic()
        compiled = [one.numpy() for one in tf.function(step, jit_compile=True)(first, second)]
        seconds = round(time.monotonic() - started, 2)
    worst = max(relative_error(found, exact) for found, exact in zip(compiled, plain))  # noqa: B905 - Python 3.8 has no strict
    evidence = {"compile_seconds": seconds, "error": worst}
    if not worst <= _BOUND:
        raise Failed(
            "compiled and eager results differ by {:.1e}".format(worst),
            diagnosis="the code that XLA generates computes something else",
            evidence=evidence,
        )
    return Outcome("XLA in {} s, off eager by {:.0e}".format(seconds, worst), evidence)
