"""The group `nccl` for TensorFlow: MirroredStrategy over all devices of one process."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any, Dict, List, Tuple

from . import host, nccl_log, shm
from .reference import relative_error
from .result import Context, Failed, Outcome
from .tensorflow_common import devices, load

_BOUND = 1e-5  # FP32, with sums in another order


def collectives(context: Context) -> Outcome:
    """Check that all-reduce and all-gather give the right numbers, and measure them."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "nccl")
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=log)
        tf, strategy, count = _strategy(context)
        found = {name: _time(tf, strategy, count, context, name) for name in ("all-reduce", "all-gather")}
        text = nccl_log.text(log)
    evidence: Dict[str, Any] = {"devices": count, "collectives": found}
    if context.device == "cuda":
        evidence["nccl"] = nccl_log.read(text)
        evidence["shm_bytes"] = host.shm_bytes()
    wrong = [name for name, one in found.items() if one["error"] != 0]
    if wrong:
        raise nccl_log.wrong(wrong, evidence)
    return Outcome(nccl_log.told(count, found, evidence.get("nccl")), evidence)


def data_parallel(context: Context) -> Outcome:
    """Check that a step over a batch that is split over the replicas equals the step on the whole batch."""
    import numpy as np

    tf, strategy, count = _strategy(context)
    random = np.random.default_rng(4)
    weights = tf.constant(random.standard_normal((32, 8)) / 6, "float32")
    batch = random.standard_normal((4 * count, 32)).astype(np.float32)

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_mean(tf.square(x @ weights))
        return tape.gradient(loss, weights)

    def step(x: Any) -> Any:
        context_of = tf.distribute.get_replica_context()
        return context_of.all_reduce(tf.distribute.ReduceOp.MEAN, gradient(x))

    parts = np.split(batch, count)
    split = strategy.experimental_distribute_values_from_function(
        lambda one: tf.constant(parts[one.replica_id_in_sync_group])
    )
    found = strategy.experimental_local_results(strategy.run(tf.function(step), args=(split,)))
    exact = gradient(tf.constant(batch)).numpy()
    worst = max(relative_error(one.numpy(), exact) for one in found)
    evidence = {"devices": count, "error": worst}
    if not worst <= _BOUND:
        raise Failed(
            "a data-parallel step is off the single one by {:.1e}".format(worst),
            diagnosis="replicas do not add up their gradients rightly",
            evidence=evidence,
        )
    return Outcome("{} devices: data-parallel step off by {:.0e}".format(count, worst), evidence)


def _strategy(context: Context) -> Tuple[Any, Any, int]:
    """Give TensorFlow, a strategy, its number of devices; raises Skipped where NCCL cannot run."""
    shm.nccl_can_start(context)
    tf = load(context)
    names = devices(tf, context)
    return tf, tf.distribute.MirroredStrategy(names), len(names)


def _time(tf: Any, strategy: Any, count: int, context: Context, name: str) -> Dict[str, float]:
    """Run one collective on known whole numbers; give its error and the bandwidth of the bus."""
    import numpy as np

    size = (1 << 26 if context.full else 1 << 24) if context.device == "cuda" else 1 << 16
    parts = [(np.arange(size) % 1000 + rank).astype(np.float32) for rank in range(count)]
    values = strategy.experimental_distribute_values_from_function(
        lambda one: tf.constant(parts[one.replica_id_in_sync_group])
    )

    def collective(x: Any) -> Any:
        replica = tf.distribute.get_replica_context()
        if name == "all-gather":
            return replica.all_gather(x, axis=0)
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, x)

    run = tf.function(lambda: strategy.run(collective, args=(values,)))
    results: List[Any] = [one.numpy() for one in strategy.experimental_local_results(run())]
    exact = np.concatenate(parts) if name == "all-gather" else np.sum(parts, axis=0)
    started = time.perf_counter()
    for _ in range(3):
        strategy.experimental_local_results(run())[0].numpy()
    seconds = (time.perf_counter() - started) / 3
    factor = (count - 1) if name == "all-gather" else 2 * (count - 1) / count
    return {
        "error": float(max(abs(one - exact).max() for one in results)),
        "bytes": size * 4,
        "bus_gb_s": round(size * 4 * factor / max(seconds, 1e-9) / 1e9, 3),
    }
