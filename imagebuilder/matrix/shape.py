"""The schema: the type hints of `facts` as shapes, and plain documents turned into typed rows.

A plain document is what JSON can hold: texts, numbers, lists and mappings. `typed` turns it into rows when
they are asked for: a table converts a row at its first use, so that a matrix of many frameworks costs only
those that are looked at.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.matrix.words import Capability, Cuda, Driver, Glibc, Python, Target

Row = TypeVar("Row")

WORDS = (Capability, Cuda, Driver, Glibc, Python, Target)


class Scalar(NamedTuple):
    """A single value, written as a YAML scalar; `choices` where only some texts are allowed."""

    kind: type
    choices: tuple[str, ...] = ()


class Items(NamedTuple):
    """A list, typed as a tuple."""

    item: Shape


class Table(NamedTuple):
    """A mapping from names to values of one shape; `choices` where only some names are allowed."""

    value: Shape
    choices: tuple[str, ...] = ()


class Record(NamedTuple):
    """A row with named facts: one of the dataclasses of `facts`."""

    cls: type


Shape = Scalar | Items | Table | Record


class Fact(NamedTuple):
    """One field of a row."""

    shape: Shape
    required: bool
    default: Any


class Rows(Mapping[str, Row]):
    """A read-only mapping whose values are made from a plain document when they are first asked for."""

    __slots__ = ("_made", "_make", "_plain")

    def __init__(self, plain: Mapping[str, Any], make: Callable[[Any], Row]) -> None:
        self._plain = plain
        self._make = make
        self._made: dict[str, Row] = {}

    def __getitem__(self, key: str) -> Row:
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(self._plain[key])
        return made

    def __contains__(self, key: object) -> bool:
        return key in self._plain

    def __iter__(self) -> Iterator[str]:
        return iter(self._plain)

    def __len__(self) -> int:
        return len(self._plain)

    def __repr__(self) -> str:
        return repr(dict(self.items()))


def shape_of(hint: Any) -> Shape:
    """Read one type hint; raises TypeError for a hint that a fact cannot have."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return shape_of(next(one for one in arguments if one is not type(None)))
    if origin is Literal:
        return Scalar(str, arguments)
    if origin is tuple:
        return Items(shape_of(arguments[0]))
    if origin is not None and issubclass(origin, Mapping):
        return Table(shape_of(arguments[1]), get_args(arguments[0]))
    if hint in (str, int, float, bool, Version, SpecifierSet, *WORDS):
        return Scalar(hint)
    if hasattr(hint, "__dataclass_fields__"):
        return Record(hint)
    raise TypeError(f"no shape for {hint!r}")


@cache
def facts_of(cls: type) -> dict[str, Fact]:
    """Give the facts of a row's class by name, in the order in which they are written."""
    hints = get_type_hints(cls)
    return {one.name: _fact(one, hints[one.name]) for one in fields(cls) if one.metadata.get("fact", True)}


def _fact(one: Field[Any], hint: Any) -> Fact:
    if one.default_factory is not MISSING:
        return Fact(shape_of(hint), False, one.default_factory())
    return Fact(shape_of(hint), one.default is MISSING, one.default)


@cache
def maker(shape: Shape) -> Callable[[Any], Any]:
    """Give the function that turns a plain value of a shape, which it must fit, into a typed one."""
    if isinstance(shape, Scalar):
        return _same if shape.kind in (str, int, float, bool) else parser(shape.kind)
    if isinstance(shape, Items):
        item = maker(shape.item)
        return lambda plain: tuple(map(item, plain))
    if isinstance(shape, Table):
        value = maker(shape.value)
        return lambda plain: Rows(plain, value)
    return _record_maker(shape.cls)


def _same(plain: Any) -> Any:
    return plain


def _record_maker(cls: type) -> Callable[[Any], Any]:
    makers: dict[str, Callable[[Any], Any]] = {}

    def make(plain: Mapping[str, Any]) -> Any:
        if not makers:
            makers.update((name, maker(fact.shape)) for name, fact in facts_of(cls).items())
        return cls(**{name: makers[name](value) for name, value in plain.items()})

    return make


@cache
def parser(kind: type) -> Callable[[str], Any]:
    """Give the function that reads a text as this kind of value and remembers what it read."""
    read: Callable[[str], Any] = kind.parse if issubclass(kind, WORDS) else kind
    return cache(read)


def plain_of(value: Any, shape: Shape) -> Any:
    """Turn a typed value back into a plain one; facts with their default value are left out."""
    if isinstance(shape, Record):
        facts = facts_of(shape.cls)
        held = ((name, getattr(value, name), fact) for name, fact in facts.items())
        return {name: plain_of(one, fact.shape) for name, one, fact in held if _stated(one, fact)}
    if isinstance(shape, Table):
        return {key: plain_of(one, shape.value) for key, one in value.items()}
    if isinstance(shape, Items):
        return [plain_of(one, shape.item) for one in value]
    return value if shape.kind in (int, float, bool) else str(value)


def _stated(value: Any, fact: Fact) -> bool:
    return fact.required or (value is not fact.default and value != fact.default)
