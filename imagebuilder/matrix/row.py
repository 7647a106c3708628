"""Rows of facts: frozen, slotted, keyword-only dataclasses that are cheap to define.

`dataclass` writes and compiles up to six methods a class. With as many classes as there are kinds of rows
that costs more than reading the facts (measured: 11 ms against 1.5 ms), at every start. A row has its
methods once, in the base class, and is a dataclass in every other respect: `fields` and `replace` work.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from typing import Any, ClassVar, TypeVar, dataclass_transform

T = TypeVar("T")


class Row:
    """What all rows do: compare and print by their facts, never change."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, **facts: Any) -> None:
        put = object.__setattr__
        for name, one in self.__dataclass_fields__.items():
            if name in facts:
                put(self, name, facts.pop(name))
            elif one.default is not MISSING:
                put(self, name, one.default)
            elif one.default_factory is not MISSING:
                put(self, name, one.default_factory())
            else:
                raise TypeError(f"{type(self).__name__} lacks `{name}`")
        if facts:
            raise TypeError(f"{type(self).__name__} knows no {', '.join(facts)}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        compared = (one.name for one in self.__dataclass_fields__.values() if one.compare)
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__ = None  # type: ignore[assignment]  # rows hold mappings

    def __repr__(self) -> str:
        held = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__name__}({held})"


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def row(cls: type[T]) -> type[T]:
    """Make a class derived from `Row` a frozen, slotted, keyword-only dataclass."""
    return dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
