"""The small values that facts are made of: driver versions, compute capabilities, targets, CUDA versions.

Each is parsed once from text, keeps the text it was written as, and orders as the field orders it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

Grade = Literal["A", "B", "C", "D"]
Machine = Literal["x86_64", "aarch64"]


@dataclass(frozen=True, slots=True, eq=False)
class _Numbered:
    """Text with dot-separated numbers in it; equal and ordered by the numbers alone."""

    text: str
    numbers: tuple[int, ...] = field(repr=False)

    form: ClassVar[re.Pattern[str]]
    wanted: ClassVar[str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text; raises ValueError that says which form is wanted."""
        if not isinstance(text, str) or not cls.form.fullmatch(text):
            raise ValueError(f"`{text}` is not {cls.wanted}")
        return cls(text, tuple(int(part) for part in re.findall(r"[0-9]+", text)))

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self.numbers == other.numbers if isinstance(other, type(self)) else NotImplemented

    def __lt__(self, other: Self) -> bool:
        return self.numbers < other.numbers

    def __le__(self, other: Self) -> bool:
        return self.numbers <= other.numbers

    def __gt__(self, other: Self) -> bool:
        return self.numbers > other.numbers

    def __ge__(self, other: Self) -> bool:
        return self.numbers >= other.numbers

    def __hash__(self) -> int:
        return hash(self.numbers)


class Driver(_Numbered):
    """A driver version such as 525.60.13; a branch alone (580) is its lowest version."""

    __slots__ = ()
    form = re.compile(r"[1-9][0-9]{2}(\.[0-9]{1,3}){0,2}")
    wanted = "a driver version such as `535.104.05`"

    @property
    def branch(self) -> int:
        """The driver branch: 525 for 525.60.13."""
        return self.numbers[0]


class Cuda(_Numbered):
    """A CUDA version by its minor, such as 12.1."""

    __slots__ = ()
    form = re.compile(r"[1-9][0-9]?\.[0-9]{1,2}")
    wanted = "a CUDA version such as `12.1`"

    @property
    def major(self) -> int:
        """12 for 12.1."""
        return self.numbers[0]


class Python(_Numbered):
    """A Python version by its minor, such as 3.11."""

    __slots__ = ()
    form = re.compile(r"3\.[0-9]{1,2}")
    wanted = "a Python version such as `3.11`"

    @property
    def tag(self) -> str:
        """The interpreter tag of a wheel: cp311."""
        return "cp" + "".join(map(str, self.numbers))


class Glibc(_Numbered):
    """A glibc version such as 2.28."""

    __slots__ = ()
    form = re.compile(r"2\.[0-9]{1,2}")
    wanted = "a glibc version such as `2.28`"


class Capability(_Numbered):
    """A compute capability such as 8.0."""

    __slots__ = ()
    form = re.compile(r"[1-9][0-9]?\.[0-9]")
    wanted = "a compute capability such as `8.0`"

    @property
    def major(self) -> int:
        """8 for 8.6."""
        return self.numbers[0]

    @property
    def target(self) -> Target:
        """The machine-code target of just this capability: sm_86 for 8.6."""
        return Target.parse("sm_" + "".join(map(str, self.numbers)))


class Target(_Numbered):
    """What a wheel holds code for: sm_80 is machine code, compute_80 is PTX."""

    __slots__ = ()
    form = re.compile(r"(sm|compute)_[1-9][0-9]{1,2}[af]?")
    wanted = "a target such as `sm_80` or `compute_90`"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text; sm_90, sm_90a and compute_90 are three different targets."""
        plain = super().parse(text)
        return cls(
            text, (*plain.numbers, int(text.startswith("c")), ord(text[-1]) if text[-1] in "af" else 0)
        )

    @property
    def capability(self) -> Capability:
        """The compute capability that the target names: 8.0 for sm_80."""
        digits = str(self.numbers[0])
        return Capability.parse(f"{digits[:-1]}.{digits[-1]}")

    @property
    def is_ptx(self) -> bool:
        """Whether a driver has to compile it before it runs."""
        return self.text.startswith("compute_")
