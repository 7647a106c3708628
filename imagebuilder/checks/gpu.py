"""The driver, asked without any framework."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

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


def count_problem(
    seen: int,
    shown: Optional[Sequence[Dict[str, Any]]],
    hiding: Optional[str],
    asked: Optional[int],
    who: str,
) -> Optional[Failed]:
    """Compare the GPUs of a framework (`seen` by `who`), of NVML (`shown`), and the number asked for."""
    if shown is not None and not any(device.get("mig") for device in shown):
        left = host.visible_of(len(shown), hiding)
        if seen == 0 and shown and left == 0:
            return Failed(
                "CUDA_VISIBLE_DEVICES=`{}` hides every GPU".format(hiding),
                diagnosis="the variable takes indexes below {} or UUIDs, separated by commas".format(
                    len(shown)
                ),
                next_step="unset CUDA_VISIBLE_DEVICES",
            )
        if left is not None and left != seen:
            return Failed(
                "NVML shows {} GPUs, {} sees {}".format(left, who, seen),
                diagnosis="NVML mismatch: the devices or the driver's libraries were passed on in part",
                next_step="see `gpu.driver`; start the container anew with `--gpus all`",
            )
    if asked is not None and seen < asked:
        return Failed(
            "{} GPUs were asked for, {} sees {}".format(asked, who, seen),
            diagnosis="fewer GPUs are visible in the container than expected",
            next_step=RUN_LINE,
        )
    return None
