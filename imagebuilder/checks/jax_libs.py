"""The libraries that a process with JAX has really loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import loaded as loaded_libraries
from .jax_common import devices, load

if TYPE_CHECKING:
    from .result import Context, Outcome


def loaded(context: Context) -> Outcome:
    """Check that each loaded CUDA library is the pinned wheel's file and answers the pinned version."""
    jax = load(context)
    a = jax.device_put(jax.numpy.ones((1, 1, 8, 8), "float32"), devices(jax, context)[0])
    layout = ("NCHW", "OIHW", "NCHW")
    jax.lax.conv_general_dilated(a @ a, a[..., :3, :3], (1, 1), "SAME", dimension_numbers=layout).sum()
    return loaded_libraries.judge(context, {"jax": jax.__version__, "backend": jax.default_backend()})
