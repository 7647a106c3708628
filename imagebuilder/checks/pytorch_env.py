"""The group `env` for PyTorch: the import, the build, and the bridge to NumPy."""

from __future__ import annotations

import time
import warnings
from importlib import metadata
from typing import Any, Dict, List

from . import symptoms
from .result import Context, Failed, Outcome, Skipped, raise_all


def framework(context: Context) -> Outcome:
    """Check that the import of torch succeeds without a warning, and that it is the promised build."""
    started = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch
    evidence: Dict[str, Any] = {
        "torch": torch.__version__,
        "distribution": metadata.version("torch"),
        "cuda": torch.version.cuda,
        "import_seconds": round(time.monotonic() - started, 2),
        "file": torch.__file__,
        "arch_flags": _flags(torch),
        "warnings": [str(warning.message)[:300] for warning in caught][:5],
    }
    raise_all(_numpy_warnings(evidence["warnings"]) + _build_problems(context, evidence), evidence)
    built = "CUDA {}".format(torch.version.cuda) if torch.version.cuda else "no CUDA"
    return Outcome(
        "torch {} for {}, imported in {} s".format(torch.__version__, built, evidence["import_seconds"]),
        evidence,
    )


def _flags(torch: Any) -> str:
    try:
        return str(torch._C._cuda_getArchFlags() or "")
    except AttributeError:  # a build without CUDA
        return ""


def _numpy_warnings(texts: List[str]) -> List[Failed]:
    known = [symptoms.find(text) for text in texts if "umpy" in text]
    return [
        Failed("torch warns at import", diagnosis=symptom.diagnosis, next_step=symptom.next_step)
        for symptom in known
        if symptom
    ][:1]


def _build_problems(context: Context, evidence: Dict[str, Any]) -> List[Failed]:
    found = context.manifest
    if found is None or found.framework != "pytorch":
        return []
    problems = []
    public = evidence["torch"].split("+")[0]
    if public != found.framework_version.split("+")[0]:
        problems.append(
            Failed(
                "torch is {}, the manifest says {}".format(evidence["torch"], found.framework_version),
                diagnosis="torch was replaced after the image was built",
                next_step="pip install --no-deps torch=={}".format(found.framework_version),
            )
        )
    if found.cuda and evidence["cuda"] is None:
        problems.append(
            Failed(
                "torch is a CPU-only build, the manifest says CUDA {}".format(found.cuda),
                diagnosis="the wheel has no CUDA code: everything would run on the CPU without an error",
                next_step="install the build of torch for CUDA {}".format(found.cuda),
            )
        )
    elif found.cuda and evidence["cuda"] != found.cuda:
        problems.append(
            Failed(
                "torch is built for CUDA {}, the manifest says {}".format(evidence["cuda"], found.cuda),
                diagnosis="a build of torch for another CUDA was installed",
                next_step="install the build of torch for CUDA {}".format(found.cuda),
            )
        )
    return problems


def numpy(context: Context) -> Outcome:
    """Check that a NumPy array goes into torch and back as the same memory."""
    try:
        import numpy as np
    except ImportError:
        if context.manifest is not None and "numpy" in context.manifest.packages:
            raise
        raise Skipped("NumPy is not installed") from None
    import torch

    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    evidence = {"numpy": np.__version__, "torch": torch.__version__}
    tensor = torch.from_numpy(array)
    tensor.add_(1)
    back = tensor.numpy()
    if not (array[0, 0] == 1 and np.array_equal(back, array) and np.shares_memory(back, array)):
        raise Failed("torch and NumPy do not share memory", evidence=evidence)
    return Outcome("torch and NumPy {} share memory".format(np.__version__), evidence)
