"""A GPU by any name that people and nvidia-smi use for it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from imagebuilder.errors import UsageError
from imagebuilder.matrix.facts import Gpu
from imagebuilder.matrix.words import Capability, Cuda, Target

if TYPE_CHECKING:
    from imagebuilder.matrix.facts import Matrix

# Words that tell no GPUs of the matrix apart: makers, families, form factors, editions, memory.
_NOISE = re.compile(
    r"nvidia|tesla|geforce|laptop|mobile|gpu|graphics|generation|edition|server|workstation|max|q|"
    r"sxm\d?|pcie|pci|nvl|oam|hbm\d?e?|hgx|x\d|\d+gb?"
)


def plain_name(text: str) -> str:
    """Give what GPU names are compared by: `NVIDIA A100-SXM4-80GB` and `a100` are the same."""
    words = re.findall(r"[a-z0-9.]+", re.sub(r"\bmig\b.*", "", text.lower()))
    kept = [
        word for number, word in enumerate(words) if not (_NOISE.fullmatch(word) and _is_noise(words, number))
    ]
    return "".join(kept)


def _is_noise(words: list[str], number: int) -> bool:
    """Bare numbers and `q` are noise only behind the name: `RTX 3060` needs its number, `80GB` does not."""
    word = words[number]
    if word.isdigit():
        return False
    return number > 0 or len(words) > 1


def find_gpu(matrix: Matrix, text: str) -> tuple[str, Gpu]:
    """Find a GPU by its name, by one of its aliases, by the name nvidia-smi prints, or by a target.

    A target (`sm_90`) or capability (`9.0`) gives what all GPUs of that capability have in common. Names of
    partitions (MIG) are read as the whole GPU. Raises UsageError with the nearest names for anything else.
    """
    wanted = text.strip()
    if re.fullmatch(r"(sm_|compute_)[1-9]\d{1,2}[af]?|[1-9]\d?\.\d", wanted.lower()):
        return _of_capability(matrix, wanted.lower())
    names = {plain_name(called): name for name, gpu in matrix.gpus.items() for called in (name, *gpu.aliases)}
    plain = plain_name(wanted)
    if plain in names:
        return names[plain], matrix.gpus[names[plain]]
    raise _unknown(matrix, wanted, plain, names)


def _of_capability(matrix: Matrix, text: str) -> tuple[str, Gpu]:
    capability = Target.parse(text).capability if "_" in text else Capability.parse(text)
    same = [gpu for gpu in matrix.gpus.values() if gpu.capability == capability]
    if same:
        return capability.target.text, _common(same)
    cudas = sorted(
        Cuda.parse(name) for name, one in matrix.toolkits.items() if capability in one.capabilities
    )
    if cudas:
        return capability.target.text, _unnamed(matrix, capability, cudas)
    known = sorted({one for toolkit in matrix.toolkits.values() for one in toolkit.capabilities})
    raise UsageError(
        f"no GPU has the compute capability `{capability}`",
        why="toolkits of the matrix make code for " + ", ".join(map(str, known)),
        hint="name the GPU instead, such as --gpu V100",
    )


def _unnamed(matrix: Matrix, capability: Capability, cudas: list[Cuda]) -> Gpu:
    """Give a row for a capability of which the matrix names no GPU, from what toolkits and its kin say."""
    kin = [gpu for gpu in matrix.gpus.values() if gpu.capability.major == capability.major]
    lasts = [gpu.driver_branch_last for gpu in kin if gpu.driver_branch_last is not None]
    ended = max(map(Cuda.parse, matrix.toolkits)) != cudas[-1]
    return Gpu(
        capability=capability,
        arch="not known",
        kind="geforce",
        tensor_cores=(),
        amp="not known",
        cuda_first=cudas[0],
        cuda_last=cudas[-1] if ended else None,
        driver_branch_last=min(lasts) if lasts and len(lasts) == len(kin) else None,
        forward_compat="not known",
    )


def _common(gpus: list[Gpu]) -> Gpu:
    """Give a row that promises no more than each of these GPUs does."""
    gpus = sorted(gpus, key=lambda gpu: (gpu.arch, gpu.kind, gpu.cuda_first, gpu.amp, gpu.forward_compat))
    first = gpus[0]
    firsts = [gpu.driver_branch_first for gpu in gpus if gpu.driver_branch_first is not None]
    lasts = [gpu.driver_branch_last for gpu in gpus if gpu.driver_branch_last is not None]
    strict = next((gpu for gpu in gpus if not gpu.forward_compat.startswith("yes")), first)
    return replace(
        first,
        aliases=(),
        kind=strict.kind,
        memory=None,
        host=first.host if len({gpu.host for gpu in gpus}) == 1 else None,
        tensor_cores=tuple(one for one in first.tensor_cores if all(one in gpu.tensor_cores for gpu in gpus)),
        cuda_first=min(gpu.cuda_first for gpu in gpus),
        driver_branch_first=min(firsts, default=None),
        driver_branch_last=min(lasts, default=None),
        driver_min=None,
        forward_compat=strict.forward_compat,
    )


def _unknown(matrix: Matrix, wanted: str, plain: str, names: dict[str, str]) -> UsageError:
    from difflib import get_close_matches

    shown = {
        plain_name(called): called for name, gpu in matrix.gpus.items() for called in (*gpu.aliases, name)
    }
    near = [shown[one] for one in get_close_matches(plain, list(names), n=3, cutoff=0.6)]
    return UsageError(
        f"no GPU named `{wanted}` is known",
        why="the nearest names are " + ", ".join(f"`{one}`" for one in near) if near else None,
        hint=f"--gpu '{near[0]}', or its target such as `--gpu sm_90`"
        if near
        else "name its target: --gpu sm_90",
    )
