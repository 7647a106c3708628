"""The group `env` for TensorFlow: the import, the build, and which Keras it brings."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from .result import Context, Failed, Outcome, raise_all
from .tensorflow_common import load


def framework(context: Context) -> Outcome:
    """Check that TensorFlow imports and is the promised build, with code for CUDA."""
    started = time.monotonic()
    tf = load(context)
    build = dict(tf.sysconfig.get_build_info())
    evidence: Dict[str, Any] = {
        "tensorflow": tf.__version__,
        "keras": tf.keras.__version__,
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "cuda_build": bool(build.get("is_cuda_build")),
        "targets": build.get("cuda_compute_capabilities"),
        "import_seconds": round(time.monotonic() - started, 2),
        "file": tf.__file__,
    }
    raise_all(_problems(context, evidence), evidence)
    built = "CUDA {}".format(evidence["cuda"]) if evidence["cuda_build"] else "no CUDA"
    return Outcome(
        "tensorflow {} for {} with Keras {}, imported in {} s".format(
            tf.__version__, built, evidence["keras"], evidence["import_seconds"]
        ),
        evidence,
    )


def _problems(context: Context, evidence: Dict[str, Any]) -> List[Failed]:
    found = context.manifest
    if found is None or found.framework != "tensorflow":
        return []
    problems = []
    if evidence["tensorflow"] != found.framework_version.split("+")[0]:
        problems.append(
            Failed(
                "tensorflow is {}, the manifest says {}".format(
                    evidence["tensorflow"], found.framework_version
                ),
                diagnosis="tensorflow was replaced after the image was built",
                next_step="pip install --no-deps tensorflow=={}".format(found.framework_version),
            )
        )
    if found.cuda and not evidence["cuda_build"]:
        problems.append(
            Failed(
                "tensorflow is a CPU-only build, the manifest says CUDA {}".format(found.cuda),
                diagnosis="the wheel has no CUDA code: everything would run on the CPU without an error",
                next_step="pip install --no-deps tensorflow=={}".format(found.framework_version),
            )
        )
    return problems
