"""What to read of a framework: where in its wheels and in their metadata its facts stand.

A framework is a row here; `read` and `derive` know none by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Where the facts of one framework stand.

    `stated` is the member that says what the wheel was built as, `facts` how: a pattern with one group for
    each of `cuda` (a quoted text, or None in a CPU-only wheel), `commit` and `local_version`. `targets_in`
    is the library that the list of targets is compiled into, `measured` those whose symbol versions give the
    floors of glibc and libstdc++, `bundled` a pattern of members that are CUDA libraries inside the wheel,
    with their name as its group. `libraries` is a pattern of the requirements that are pins, not ranges for
    the user; `compiler` names the one whose pin is a fact of the release. `companions` are projects whose
    wheels ask for this framework.
    """

    stated: str
    facts: Mapping[str, str]
    targets_in: str
    measured: tuple[str, ...]
    bundled: str
    libraries: str
    compiler: str
    companions: tuple[str, ...]


PYTORCH = Recipe(
    stated="torch/version.py",
    facts={
        "cuda": r"^cuda\b[^=\n]*= (None|'[^'\n]+')",
        "commit": r"^git_version = '([0-9a-f]+)'",
        "local_version": r"^__version__ = '([^'+\s]+\+[^'\s]+)'",
    },
    targets_in="torch/lib/libtorch_python.so",
    measured=("torch/lib/libc10.so", "torch/lib/libc10_cuda.so"),
    bundled=(
        r"(?:torch/lib/|nvidia/[^/]+/lib/)"
        r"(lib(?:cudnn|nccl|cublas|cudart|nvrtc)[^/]*?)(?:-[0-9a-f]{6,})?\.so[^/]*"
    ),
    libraries=r"nvidia-.*|cuda-.*|triton|pytorch-triton",
    compiler="triton",
    companions=("torchvision", "torchaudio"),
)

RECIPES: Mapping[str, Recipe] = {"pytorch": PYTORCH}

# The list of targets as the build writes it: two or more, parted by blanks.
TARGETS = re.compile(rb"(?:sm|compute)_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?)+")
SYMBOLS = re.compile(rb"\x00(GLIBC|GLIBCXX)_(\d+(?:\.\d+)+)(?=\x00)")
