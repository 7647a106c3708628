"""The libraries that a process with TensorFlow has really loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import loaded as loaded_libraries
from .tensorflow_common import devices, load

if TYPE_CHECKING:
    from .result import Context, Outcome


def loaded(context: Context) -> Outcome:
    """Check that each loaded CUDA library is the pinned wheel's file and answers the pinned version."""
    tf = load(context)
    with tf.device(devices(tf, context)[0]):
        a = tf.ones((1, 8, 8, 1))
        tf.nn.conv2d(a @ a if context.device == "cuda" else a, tf.ones((3, 3, 1, 1)), 1, "SAME").numpy()
    build = tf.sysconfig.get_build_info()
    says = {key: build.get(key) for key in ("cuda_version", "cudnn_version")}
    return loaded_libraries.judge(context, {"tensorflow": tf.__version__, **says})
