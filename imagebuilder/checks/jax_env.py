"""The group `env` for JAX: the import, and that all its parts are of one version."""

from __future__ import annotations

import time
from importlib import metadata
from typing import Any, Dict, List, Optional

from .jax_common import load
from .result import Context, Failed, Outcome, raise_all

# Distributions that must have the version of jax, in their first three numbers.
_PARTS = (
    "jaxlib",
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
)


def framework(context: Context) -> Outcome:
    """Check that jax imports, and that jaxlib and the CUDA plugin are of its version."""
    started = time.monotonic()
    jax = load(context)
    evidence: Dict[str, Any] = {
        "jax": jax.__version__,
        "parts": {name: version for name in _PARTS if (version := _version(name)) is not None},
        "import_seconds": round(time.monotonic() - started, 2),
        "file": jax.__file__,
    }
    raise_all(_problems(context, evidence), evidence)
    plugins = [name for name in evidence["parts"] if name.endswith("plugin")]
    return Outcome(
        "jax {} with {}, imported in {} s".format(
            jax.__version__, ", ".join(plugins) or "no CUDA plugin", evidence["import_seconds"]
        ),
        evidence,
    )


def _version(name: str) -> Optional[str]:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _short(version: str) -> List[str]:
    return version.split("+")[0].split(".")[:3]


def _problems(context: Context, evidence: Dict[str, Any]) -> List[Failed]:
    problems = [
        Failed(
            "{} is {}, jax is {}".format(name, version, evidence["jax"]),
            diagnosis="jax, jaxlib and plugin must agree in X.Y.Z: other mixes crash or run on the CPU",
            next_step="pip install --no-deps {}=={}".format(name, ".".join(_short(evidence["jax"]))),
        )
        for name, version in evidence["parts"].items()
        if _short(version) != _short(evidence["jax"])
    ]
    found = context.manifest
    if found is None or found.framework != "jax":
        return problems
    if evidence["jax"].split("+")[0] != found.framework_version.split("+")[0]:
        problems.append(
            Failed(
                "jax is {}, the manifest says {}".format(evidence["jax"], found.framework_version),
                diagnosis="jax was replaced after the image was built",
                next_step="pip install --no-deps jax=={}".format(found.framework_version),
            )
        )
    ".".join(_short(evidence["jax"]))
    if found.cuda:
        wanted = "jax-cuda{}-plugin".format(found.cuda.split(".")[0])
        if wanted not in evidence["parts"]:
            problems.append(
                Failed(
                    "{} is not installed, the manifest says CUDA {}".format(wanted, found.cuda),
                    diagnosis="without its plugin jax runs on the CPU without an error",
                    next_step="pip install --no-deps {}=={}".format(
                        wanted, ".".join(_short(evidence["jax"]))
                    ),
                )
            )
    return problems
