"""The names of a request matched against the matrix; a name that it does not know gets its nearest ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imagebuilder.errors import UnmetError, UsageError
from imagebuilder.matrix.gpus import find_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagebuilder.matrix.facts import Framework, Gpu, Matrix
    from imagebuilder.matrix.words import Capability

PYPI = "pypi"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedGpu:
    """A GPU of a request: its name as the user wrote it, and the row of the matrix that it means.

    A bare target (sm_86) means no row of its own (`is_target`) but what all GPUs of its capability share.
    """

    name: str
    gpu: Gpu
    is_target: bool

    @property
    def capability(self) -> Capability:
        """Its compute capability."""
        return self.gpu.capability


def find_framework(matrix: Matrix, name: str) -> tuple[str, Framework]:
    """Give the framework of this name, alias or package; raises UsageError with the nearest names."""
    for key, framework in matrix.frameworks.items():
        if name in (key, framework.package, *framework.aliases):
            return key, framework
    raise _unknown("framework", name, matrix.frameworks)


def wanted_gpu(matrix: Matrix, name: str) -> WantedGpu:
    """Give the GPU of this name or target; raises UsageError with the nearest names."""
    found, gpu = find_gpu(matrix, name)
    return WantedGpu(name=name, gpu=gpu, is_target=found not in matrix.gpus)


def check_base(matrix: Matrix, name: str | None) -> None:
    """Raise UsageError for a base that the matrix does not know, UnmetError for one that is gone."""
    if name is None or name in matrix.bases:
        return
    from fnmatch import fnmatchcase

    for pattern, gone in matrix.gone.items():
        if not fnmatchcase(name, pattern):
            continue
        raise UnmetError(
            f"the base `{name}` is gone",
            conflicts=(
                {"constraint": f"--os {name}", "fact": f"{gone.why}; use {gone.instead}", "source": gone.src},
            ),
            hint=_try("os", next(iter(matrix.bases))),
        )
    raise _unknown("os", name, matrix.bases)


def source_order(framework: Framework, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Give every index of a framework, those that the request names first; raises UsageError for others."""
    known = (PYPI, *sorted(framework.indexes))
    for name in wanted:
        if name not in known:
            raise _unknown("source", name, known)
    return (*wanted, *(name for name in known if name not in wanted))


def _try(option: str, value: str) -> str:
    from shlex import quote

    framework = "" if option == "framework" else "--framework pytorch "
    return f"imgbuild resolve {framework}--{option} {quote(value)}"


def _unknown(option: str, name: str, known: Iterable[str]) -> UsageError:
    """Give the error for a name that nothing has, with the nearest names that something has."""
    from difflib import get_close_matches

    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5) or names[:1]
    return UsageError(
        f"`--{option} {name}` is not in the matrix",
        why=f"it knows {', '.join(names)}",
        hint=_try(option, near[0]) if near else None,
    )
