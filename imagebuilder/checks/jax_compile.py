"""The group `compile` for JAX: what XLA compiles gives what JAX computes step by step."""

from __future__ import annotations

import time
from typing import Any

from .jax_common import devices, load
from .reference import relative_error
from .result import Context, Failed, Outcome

_BOUND = 1e-5  # FP32, with sums in another order


def model(context: Context) -> Outcome:
    """Check that a jitted model and its gradient equal the same without jit."""
    jax = load(context)
    import numpy as np

    random = np.random.default_rng(3)
    device = devices(jax, context)[0]
    shapes = ((32, 64), (64, 128), (128, 16))
    inputs, first, second = (
        jax.device_put(random.standard_normal(shape).astype(np.float32) / 8, device) for shape in shapes
    )

    def loss(weights: Any) -> Any:
        hidden = jax.nn.gelu(inputs @ weights[0])
        return ((hidden @ weights[1]) ** 2).mean()

    both = jax.value_and_grad(loss)
    with jax.default_matmul_precision("highest"):
        with jax.disable_jit():
            plain = jax.tree_util.tree_leaves(both((first, second)))
        started = time.monotonic()
        compiled = jax.tree_util.tree_leaves(jax.block_until_ready(jax.jit(both)((first, second))))
        seconds = round(time.monotonic() - started, 2)
    worst = max(relative_error(found, exact) for found, exact in zip(compiled, plain))  # noqa: B905 - Python 3.8 has no strict
    evidence = {"compile_seconds": seconds, "error": worst, "device": str(device)}
    if not worst <= _BOUND:
        raise Failed(
            "compiled and uncompiled results differ by {:.1e}".format(worst),
            diagnosis="the code that XLA generates computes something else",
            evidence=evidence,
        )
    return Outcome("XLA in {} s, off uncompiled by {:.0e}".format(seconds, worst), evidence)
