"""The driver, asked without any framework."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from . import host
from .manifest import Manifest, numbers
from .result import RUN_LINE, Context, Failed, Outcome, raise_all
from .symptoms import cuda_error


def driver(context: Context) -> Outcome:
    """Check that the driver is at least the image's floor, its parts agree, and initialisation succeeds."""
    facts = host.probe(context).evidence
    evidence = {
        key: facts.get(key) for key in ("driver", "device_files", "nvidia_uvm", "nvml", "cuda", "environment")
    }
    raise_all(problems(facts, context.manifest), evidence)
    supports = facts["cuda"].get("supports_cuda", "unknown")
    built = context.manifest.cuda if context.manifest else None
    evidence["three_cuda_versions"] = {"driver supports": supports, "image built for": built}
    floor = context.manifest.driver_min if context.manifest else None
    compared = "at least {}".format(floor) if floor else "no manifest, so no floor to compare with"
    return Outcome(
        "driver {} ({}), supports CUDA {}".format(facts.get("driver"), compared, supports), evidence
    )


def problems(facts: Dict[str, Any], manifest: Optional[Manifest]) -> List[Failed]:
    """Give what is wrong between host, container and manifest, the likeliest cause first."""
    found: List[Failed] = []
    cuda = facts.get("cuda") or {}
    if not host.offers_gpu(facts):
        diagnosis, next_step = host.why_no_gpu(facts)
        return [Failed("no GPU here", diagnosis=diagnosis, next_step=next_step)]
    found += _floor(facts.get("driver"), manifest)
    if facts.get("device_files") and not facts.get("nvidia_uvm"):
        found.append(
            Failed(
                "/dev/nvidia-uvm is missing",
                diagnosis="the host has not loaded nvidia-uvm, or its device was not passed on",
                next_step="on the host: `nvidia-modprobe -u -c=0`, then start the container again",
            )
        )
    if cuda.get("library") is None:
        found.append(
            Failed(
                "libcuda.so.1 is not in the container",
                diagnosis="NVIDIA_DRIVER_CAPABILITIES lacks `compute`, or no container toolkit was used",
                next_step=RUN_LINE,
            )
        )
    elif cuda.get("init") != 0:
        found.append(_init_failure(facts))
    return found


def _init_failure(facts: Dict[str, Any]) -> Failed:
    code = facts["cuda"]["init"]
    name, cause, next_step = cuda_error(code)
    hiding = (facts.get("environment") or {}).get("CUDA_VISIBLE_DEVICES")
    if code in (100, 101) and hiding is not None:
        cause = "CUDA_VISIBLE_DEVICES=`{}` hides every GPU; it takes indexes or UUIDs".format(hiding)
    if code in (803, 804):
        cause += "; the file loaded is {}".format(facts["cuda"]["library"])
    return Failed("cuInit answers {} ({})".format(code, name), diagnosis=cause, next_step=next_step)


def _floor(driver: Optional[str], manifest: Optional[Manifest]) -> List[Failed]:
    if not driver or manifest is None or not manifest.driver_min:
        return []
    if numbers(driver) >= numbers(manifest.driver_min):
        return []
    fitting = [
        other["stack"]
        for other in manifest.fallbacks
        if other.get("stack") and numbers(driver) >= numbers(str(other.get("driver_min", "999")))
    ]
    return [
        Failed(
            "driver {} is older than {}".format(driver, manifest.driver_min),
            diagnosis="driver too old: {} needs at least {}, this host has {}".format(
                manifest.identifier, manifest.driver_min, driver
            ),
            next_step="use the image `{}`, or update the driver".format(fitting[0])
            if fitting
            else "update the driver",
        )
    ]
