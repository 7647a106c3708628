"""`--this-host`: the GPUs and the driver of this machine, as a user would name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.errors import OutsideError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imagebuilder.host import HostGpu
    from imagebuilder.matrix import Matrix

# Seconds that the driver may take to name its GPUs.
GPU_SEARCH = 20


def gpus_and_driver(matrices: Sequence[Path]) -> tuple[tuple[str, ...], str]:
    """Give what `--gpu` and `--driver` would say of this host.

    A GPU whose name the matrix does not know is given by its target. Raises OutsideError where there is no
    GPU or its driver does not answer.
    """
    from imagebuilder.host import this_host
    from imagebuilder.host.reach import together
    from imagebuilder.matrix import load

    # a broken driver can hang whoever asks it
    host = together({"host": this_host}, seconds=GPU_SEARCH).get("host")
    if host is None or not host.gpus or host.driver is None:
        why = host.nvml_error if host is not None else f"the driver gave no answer in {GPU_SEARCH} seconds"
        raise OutsideError("no GPU of this host can be seen", why=why, hint="imgbuild doctor")
    matrix = load(matrices)
    return tuple(dict.fromkeys(_named(matrix, gpu) for gpu in host.gpus)), str(host.driver)


def _named(matrix: Matrix, gpu: HostGpu) -> str:
    from imagebuilder.matrix.gpus import find_gpu

    try:
        return find_gpu(matrix, gpu.name)[0]
    except UsageError:
        return gpu.capability.target.text if gpu.capability is not None else gpu.name
