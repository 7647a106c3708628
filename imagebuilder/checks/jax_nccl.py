"""The group `nccl` for JAX: collectives and a data-parallel step over all devices of one process."""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from typing import Any, Callable, Dict, List, Tuple

from . import host, nccl_log, shm
from .jax_common import devices, load
from .reference import relative_error
from .result import Context, Failed, Outcome

_BOUND = 1e-5  # FP32, with sums in another order


def collectives(context: Context) -> Outcome:
    """Check that the collectives give the right numbers, measure their speed, read how NCCL carries them."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "nccl")
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=log)
        jax, world = _world(context)
        found = {name: _time(jax, world, context, name) for name in _COLLECTIVES}
        text = nccl_log.text(log)
    evidence: Dict[str, Any] = {"devices": len(world), "collectives": found}
    if context.device == "cuda":
        evidence["nccl"] = nccl_log.read(text)
        evidence["shm_bytes"] = host.shm_bytes()
    wrong = [name for name, facts in found.items() if facts["error"] != 0]
    if wrong:
        raise nccl_log.wrong(wrong, evidence)
    return Outcome(nccl_log.told(len(world), found, evidence.get("nccl")), evidence)


def data_parallel(context: Context) -> Outcome:
    """Check that a step over a batch that is split over the devices equals the step on the whole batch."""
    import numpy as np

    jax, world = _world(context)
    random = np.random.default_rng(4)
    weights = random.standard_normal((32, 8)).astype(np.float32) / 6
    batch = random.standard_normal((4 * len(world), 32)).astype(np.float32)

    def gradient(w: Any, x: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return jax.grad(lambda w: ((x @ w) ** 2).mean())(w)

    def split(w: Any, x: Any) -> Any:
        return jax.lax.pmean(gradient(w[0], x), "ranks")[None]

    copies = np.broadcast_to(weights, (len(world), *weights.shape))
    found = np.asarray(_mapped(jax, world, split, 2)(copies, batch))
    exact = np.asarray(gradient(weights, batch))
    worst = max(relative_error(one, exact) for one in found)
    evidence = {"devices": len(world), "error": worst}
    if not worst <= _BOUND:
        raise Failed(
            "a data-parallel step is off the single one by {:.1e}".format(worst),
            diagnosis="devices do not add up their gradients rightly",
            evidence=evidence,
        )
    return Outcome("{} devices: data-parallel step off by {:.0e}".format(len(world), worst), evidence)


def _world(context: Context) -> Tuple[Any, List[Any]]:
    """Give jax and the devices to use; raises Skipped where NCCL cannot run."""
    shm.nccl_can_start(context)
    jax = load(context)
    return jax, devices(jax, context)


def _mapped(jax: Any, world: List[Any], function: Callable[..., Any], arguments: int) -> Any:
    """Give a function that runs on every device, on its part of the first axis, which is `ranks`."""
    import numpy as np

    mesh = jax.sharding.Mesh(np.array(world), ("ranks",))
    spec = jax.sharding.PartitionSpec("ranks")
    shard = getattr(jax, "shard_map", None)
    if shard is None:  # before JAX 0.6
        shard = importlib.import_module("jax.experimental.shard_map").shard_map
    return jax.jit(shard(function, mesh=mesh, in_specs=(spec,) * arguments, out_specs=spec))


def _all_reduce(jax: Any, x: Any, count: int) -> Any:
    return jax.lax.psum(x, "ranks")


def _all_gather(jax: Any, x: Any, count: int) -> Any:
    return jax.lax.all_gather(x, "ranks", tiled=True)


def _reduce_scatter(jax: Any, x: Any, count: int) -> Any:
    return jax.lax.psum_scatter(x, "ranks", tiled=True)


def _ring(jax: Any, x: Any, count: int) -> Any:
    return jax.lax.ppermute(x, "ranks", [(one, (one + 1) % count) for one in range(count)])


# Name -> the collective, and what its bytes are multiplied by for the bandwidth of the bus, as nccl-tests do.
_COLLECTIVES: Dict[str, Tuple[Callable[[Any, Any, int], Any], Callable[[int], float]]] = {
    "all-reduce": (_all_reduce, lambda n: 2 * (n - 1) / n),
    "all-gather": (_all_gather, lambda n: (n - 1) / n),
    "reduce-scatter": (_reduce_scatter, lambda n: (n - 1) / n),
    "ring": (_ring, lambda n: 1.0 if n > 1 else 0.0),
}


def _expected(name: str, parts: Any) -> Any:
    """Give what every device must hold in the end, one behind the other."""
    import numpy as np

    total = parts.sum(0)
    if name == "all-reduce":
        return np.concatenate([total] * len(parts))
    if name == "all-gather":
        return np.concatenate([parts.reshape(-1)] * len(parts))
    return total if name == "reduce-scatter" else np.roll(parts, 1, axis=0).reshape(-1)


def _time(jax: Any, world: List[Any], context: Context, name: str) -> Dict[str, float]:
    """Run one collective on known whole numbers; give its error and the bandwidth of the bus."""
    import numpy as np

    collective, factor = _COLLECTIVES[name]
    count = len(world)
    size = ((1 << 26 if context.full else 1 << 24) if context.device == "cuda" else 1 << 16) // count * count
    parts = np.stack([(np.arange(size) % 1000 + rank).astype(np.float32) for rank in range(count)])
    run = _mapped(jax, world, lambda x: collective(jax, x, count), 1)
    spec = jax.sharding.NamedSharding(
        jax.sharding.Mesh(np.array(world), ("ranks",)), jax.sharding.PartitionSpec("ranks")
    )
    there = jax.device_put(parts.reshape(-1), spec)
    found = np.asarray(run(there).block_until_ready())
    started = time.perf_counter()
    for _ in range(3):
        run(there).block_until_ready()
    seconds = (time.perf_counter() - started) / 3
    moved = size * 4 * (count if name == "all-gather" else 1) * factor(count)
    return {
        "error": float(np.abs(found - _expected(name, parts)).max()),
        "bytes": size * 4,
        "bus_gb_s": round(moved / max(seconds, 1e-9) / 1e9, 3),
    }
