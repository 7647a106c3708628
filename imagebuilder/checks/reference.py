"""Results compared with a float64 reference, in any framework whose arrays NumPy can read."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Tuple

from .result import Failed, Outcome, raise_all

# Relative error (Frobenius norm) against float64: a few units in the last place. In FP32 it tells FP32 from
# TF32 (3e-4 and more); cuDNN's Winograd transforms lose a digit more than products do.
BOUNDS = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 4e-2}
CONVOLUTION_BOUNDS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 4e-2}

# A device, a type, and the computation there, which gives the errors of its results by name.
Run = Tuple[str, str, Callable[[], Dict[str, float]]]


def relative_error(found: Any, reference: Any) -> float:
    """Give the norm of the difference over the norm of the reference, in float64."""
    import numpy as np

    exact = np.asarray(reference, dtype=np.float64)
    difference = np.asarray(found).astype(np.float64) - exact
    return float(np.linalg.norm(difference) / max(float(np.linalg.norm(exact)), 1e-30))


def compare(name: str, bounds: Dict[str, float], runs: Iterable[Run]) -> Outcome:
    """Do a computation on every device in every type; raises Failed where one is too far from float64."""
    problems, evidence = [], {}
    for device, kind, work in runs:
        errors = work()
        evidence["{} {}".format(device, kind)] = errors
        worst = max(errors.values())
        if not worst <= bounds[kind]:  # also when it is not a number
            problems.append(
                Failed(
                    "{} in {} on {} is off by {:.1e}".format(name, kind, device, worst),
                    diagnosis="wrong results: the bound against float64 is {:.0e}".format(bounds[kind]),
                    next_step="try another build or driver; if it stays, the GPU is faulty",
                )
            )
    raise_all(problems, evidence)
    worst = max(value for key, errors in evidence.items() if "float32" in key for value in errors.values())
    return Outcome("{}, FP32 off float64 by {:.0e} at most".format(name, worst), evidence)


def changed(source: Any, back: Any, device: str) -> Failed:
    """Give the failure for memory that does not give back what was written."""
    return Failed(
        "{} of {} numbers come back changed from {}".format(int((source != back).sum()), len(source), device),
        diagnosis="the GPU's memory or the bus is faulty",
        next_step="look for Xid and ECC messages in the host's kernel log",
    )
