"""What the checks of TensorFlow share: the import and its devices."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Dict, List

if TYPE_CHECKING:
    from .result import Context

# Devices that the CPU stands for, where a check needs more than one.
CPU_DEVICES = 2


def load(context: Context) -> Any:
    """Import TensorFlow as the checks need it: without taking all GPU memory, and without TF32.

    On the CPU no GPU is used, and there are two logical devices, so that collectives mean something.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    if context.device == "cpu":
        with contextlib.suppress(RuntimeError):  # the devices are there already
            tf.config.set_visible_devices([], "GPU")
            logical = [tf.config.LogicalDeviceConfiguration() for _ in range(CPU_DEVICES)]
            tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], logical)
    return tf


def devices(tf: Any, context: Context) -> List[str]:
    """Give the names of the devices to check: GPUs, or the CPU's logical ones."""
    kind = "GPU" if context.device == "cuda" else "CPU"
    names = ["/{}:{}".format(kind, index) for index in range(len(tf.config.list_logical_devices(kind)))]
    return names[: context.gpus] if context.gpus and kind == "GPU" else names


def facts(tf: Any) -> List[Dict[str, Any]]:
    """Give name and compute capability of every GPU that TensorFlow sees."""
    found = []
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        major, minor = details.get("compute_capability") or (0, 0)
        found.append({"name": details.get("device_name"), "capability": float("{}.{}".format(major, minor))})
    return found


def types(tf: Any, context: Context) -> List[str]:
    """Give the types to try: FP16 on a CPU has no fast kernels, BF16 begins with capability 8.0."""
    if context.device == "cpu":
        return ["float32", "bfloat16"]
    modern = all(gpu["capability"] >= 8 for gpu in facts(tf))
    return ["float32", "float16", "bfloat16"] if modern else ["float32", "float16"]
