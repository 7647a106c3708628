"""The layer plan: which wheels make up which layer, from the one that changes least to the user's own.

A layer is a function of its wheels, so equal wheels give equal layer digests in every image that has
them: pulled once, pushed once, built once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imagebuilder.lock import Lock, Wheel

# A CUDA wheel from this size on is a layer of its own. The libraries that every framework has go down to the
# CUDA runtime of 0.9 MiB; together with a wheel that only one framework has, it would be shared with none.
LARGE = 2**19


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: `name` is its stage in the Dockerfile, `index` the address of a framework's own index."""

    name: str
    title: str
    wheels: tuple[Wheel, ...]
    index: str | None = None

    @property
    def size(self) -> int:
        """The bytes of its wheels."""
        return sum(wheel.size for wheel in self.wheels)


def plan_layers(lock: Lock) -> tuple[Layer, ...]:
    """Give the layers of a lock in their order in the image."""
    stack = lock.stack
    cuda = [wheel for wheel in lock.wheels if _is_cuda(wheel)]
    large = sorted((wheel for wheel in cuda if wheel.size >= LARGE), key=lambda wheel: wheel.name)
    small = [wheel for wheel in cuda if wheel.size < LARGE]
    rest = [wheel for wheel in lock.wheels if not _is_cuda(wheel)]
    triton = [wheel for wheel in rest if wheel.name in ("triton", "pytorch-triton")]
    framework = [wheel for wheel in rest if _is_framework(lock, wheel)]
    others = [wheel for wheel in rest if wheel not in triton and wheel not in framework]
    groups: list[tuple[str, str, Iterable[Wheel]]] = [
        (wheel.name, f"{wheel.name} {wheel.version}", [wheel]) for wheel in large
    ]
    groups += [
        ("cuda-small", "The small CUDA wheels together", small),
        ("triton", "Triton, which torch.compile generates GPU code with", triton),
        (stack.framework, f"{stack.package} {stack.version}", framework),
        ("python", "What the framework needs of Python packages", others),
        ("extras", f"Extras: {', '.join(stack.extras)}", lock.extra_wheels),
        ("requirements", "The requirements of the user", lock.user_wheels),
    ]
    return tuple(
        layer for name, title, wheels in groups for layer in _by_source(lock, name, title, tuple(wheels))
    )


def _by_source(lock: Lock, name: str, title: str, wheels: tuple[Wheel, ...]) -> Iterator[Layer]:
    """Give one layer for each index that serves wheels of a group: all wheels of a layer are from one."""
    sources = sorted({wheel.source for wheel in wheels})
    for source in sources:
        yield Layer(
            name=name if len(sources) == 1 else f"{name}-{source}",
            title=title if len(sources) == 1 else f"{title}, from {source}",
            wheels=tuple(sorted((w for w in wheels if w.source == source), key=lambda wheel: wheel.name)),
            index=lock.sources.get(source),
        )


def _is_framework(lock: Lock, wheel: Wheel) -> bool:
    """Tell the framework and what is released with it: of one version, pinned (jaxlib and the plugins)."""
    stack = lock.stack
    beside = wheel.name in stack.packages and wheel.version.public == stack.version.public
    return wheel.name == stack.package or beside


def _is_cuda(wheel: Wheel) -> bool:
    return wheel.name.startswith(("nvidia-", "cuda-"))
