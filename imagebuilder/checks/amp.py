"""What a model in mixed precision must show in any framework: its types, its results, a falling loss."""

from __future__ import annotations

import math
from typing import Any, Dict

from .result import Failed

# Relative errors of one step against FP32. FP16 and TF32 keep 11 bits and BF16 8: units in the last place
# of 1e-3 and 8e-3, of which a few layers add up some (8e-3 and 2e-2 were measured in gradients).
BOUNDS = {"fp16": 3e-2, "bf16": 1e-1, "tf32": 3e-2}
FALL = 0.9  # the last loss must be under this part of the first


def assert_types(wanted: str, name: str, facts: Dict[str, Any]) -> None:
    """Raise Failed where products and convolutions give another type than the one that was asked for."""
    if facts["types"] != [wanted]:
        raise Failed(
            "{}: layers give {} instead of {}".format(name, ", ".join(facts["types"]), wanted),
            diagnosis="mixed precision does not take hold",
            evidence=facts,
        )


def assert_near(mode: str, name: str, facts: Dict[str, Any]) -> None:
    """Raise Failed where loss or gradients of one step are too far from FP32."""
    worst = max(facts["loss_error"], facts["gradient_error"])
    if not worst <= BOUNDS[mode]:  # also when it is not a number
        raise Failed(
            "{}: {} is off FP32 by {:.1e}, the bound is {:.0e}".format(name, mode, worst, BOUNDS[mode]),
            diagnosis="wrong results in {}: a kernel computes something else".format(mode),
            next_step="look at `gpu.matmul` and `gpu.convolution`",
            evidence=facts,
        )


def assert_falling(mode: str, name: str, facts: Dict[str, Any]) -> None:
    """Raise Failed where the loss is not finite or does not fall."""
    losses = facts["losses"]
    if not all(math.isfinite(loss) for loss in losses):
        raise Failed(
            "{}: the loss in {} is not finite".format(name, mode), diagnosis="overflow", evidence=facts
        )
    if losses[-1] > FALL * losses[0]:
        raise Failed(
            "{}: the loss in {} does not fall".format(name, mode),
            diagnosis="it does not learn",
            evidence=facts,
        )
