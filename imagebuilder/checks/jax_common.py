"""What the checks of JAX share: the import, its devices, and how results are compared."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List

if TYPE_CHECKING:
    from .result import Context

# Devices that the CPU stands for, where a check needs more than one.
CPU_DEVICES = 2


def load(context: Context) -> Any:
    """Import jax as the checks need it: with float64 for references, and without taking all GPU memory.

    On the CPU there are two devices, so that collectives mean something.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if context.device == "cpu":
        flag = "--xla_force_host_platform_device_count={}".format(CPU_DEVICES)
        os.environ["XLA_FLAGS"] = " ".join(filter(None, (os.environ.get("XLA_FLAGS"), flag)))
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax


def devices(jax: Any, context: Context) -> List[Any]:
    """Give the devices to check, GPUs or the CPU's."""
    found = list(jax.devices("gpu" if context.device == "cuda" else "cpu"))
    return found[: context.gpus] if context.gpus and context.device == "cuda" else found


def types(context: Context, device: Any) -> List[str]:
    """Give the types to try: FP16 on a CPU has no fast kernels, BF16 begins with capability 8.0."""
    if context.device == "cpu":
        return ["float32", "bfloat16"]
    return ["float32", "float16", "bfloat16"] if capability(device) >= 8 else ["float32", "float16"]


def capability(device: Any) -> float:
    """Give the compute capability of a GPU as a number; 0 where JAX does not say."""
    try:
        return float(device.compute_capability)
    except (AttributeError, TypeError, ValueError):
        return 0.0


def label(device: Any) -> str:
    """Give what evidence calls a device: `gpu:0`."""
    return "{}:{}".format(device.platform, device.id)


def named(device: Any) -> Dict[str, Any]:
    """Give what evidence says of a device."""
    return {"name": str(device.device_kind), "platform": str(device.platform), "id": int(device.id)}
