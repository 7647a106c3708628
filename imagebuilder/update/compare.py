"""What an index tells, laid over what the matrix holds: new facts are taken, the others stay as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
# Sources that an index can be asked again.
INDEX_SOURCES = frozenset({"pypi-index", "pypi-meta", "wheel-version", "wheel-elf", "wheel-arch", "ctk-meta"})
# What not every index tells; where one is silent, nothing is said against the matrix.
_OPTIONAL = frozenset({"released", "size_mib"})
# Tables of rows, and the table whose every entry has a source of its own.
_ROWS = frozenset({"builds", "wheels"})
_BY_ENTRY = "companions"
# What is written for people, not told by an index.
_OURS = frozenset({"src", "note"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact, by its place in the matrix: what is `held` and what the index `told`, None for nothing."""

    where: tuple[str, ...]
    held: Any
    told: Any
    source: str

    def __str__(self) -> str:
        held, told = _shown(self.held, self.told)
        return f"{'.'.join(self.where)}: the matrix has {held}, the index {told} [{self.source}]"

    def to_dict(self) -> dict[str, Any]:
        """Give the fact as a plain document."""
        return {
            "fact": ".".join(self.where),
            "matrix": self.held,
            "index": self.told,
            "source": self.source,
        }


@dataclass(slots=True)
class Comparison:
    """What came out: how many facts are equal, which are new, and which the index contradicts."""

    equal: int = 0
    new: list[Fact] = field(default_factory=list)
    contradictions: list[Fact] = field(default_factory=list)


def lay_over(held: Row, told: Row, where: tuple[str, ...], out: Comparison) -> Row:
    """Give a held row with the facts that it lacks; what is held is never changed."""
    merged = dict(held)
    src = dict(held.get("src", {}))
    for fact, value in told.items():
        place = (*where, fact)
        if fact in _ROWS:
            merged[fact] = _rows(held.get(fact, {}), value, place, out)
        elif fact == _BY_ENTRY:
            merged[fact] = _entries(held, told, src, place, out)
        elif fact not in _OURS:
            _one(merged, src, fact, told, place, out)
    _gone(held, told, where, out)
    return {**merged, "src": src} if src else merged


def count(value: Any) -> int:
    """Count the single facts of a told value as `matrix validate` does: a list is one."""
    if isinstance(value, dict):
        return sum(count(one) for name, one in value.items() if name not in _OURS)
    return 1


def added(told: Row, where: tuple[str, ...], out: Comparison) -> Row:
    """Note every fact of a row that the matrix lacks, and give the row."""
    for fact, value in told.items():
        if fact in _ROWS:
            for name, row in value.items():
                added(row, (*where, fact, name), out)
        elif fact not in _OURS:
            source = _source(told.get("src", {}), fact) or "A"
            out.new.append(Fact(where=(*where, fact), held=None, told=value, source=source))
    return told


def _rows(held: Row, told: Row, where: tuple[str, ...], out: Comparison) -> Row:
    rows = dict(held)
    for name, row in told.items():
        place = (*where, name)
        rows[name] = lay_over(rows[name], row, place, out) if name in rows else added(row, place, out)
    return rows


def _one(merged: Row, src: Row, fact: str, told: Row, where: tuple[str, ...], out: Comparison) -> None:
    value, source = told[fact], _source(told.get("src", {}), fact)
    if fact not in merged:
        merged[fact] = value
        src.update({name: text for name, text in told.get("src", {}).items() if _root(name) == fact})
        out.new.append(Fact(where=where, held=None, told=value, source=source or "A"))
    elif merged[fact] == value:
        out.equal += count(value)
    else:
        out.contradictions.append(Fact(where=where, held=merged[fact], told=value, source=source or "A"))


def _entries(held: Row, told: Row, src: Row, where: tuple[str, ...], out: Comparison) -> Row:
    """Compare a table entry by entry: one that is kept by hand may hold more than the index tells."""
    table = where[-1]
    merged = dict(held.get(table, {}))
    for name, value in told[table].items():
        key = f"{table}.{name}"
        source = told["src"][key]
        if name not in merged:
            merged[name], src[key] = value, source
            out.new.append(Fact(where=(*where, name), held=None, told=value, source=source))
        elif merged[name] == value:
            out.equal += 1
        elif _of_index(_source(src, key)) or not set(merged[name]) >= set(value):
            out.contradictions.append(
                Fact(where=(*where, name), held=merged[name], told=value, source=source)
            )
    return merged


def _gone(held: Row, told: Row, where: tuple[str, ...], out: Comparison) -> None:
    """Find facts that were read of an index, and that it no longer tells."""
    for key, source in held.get("src", {}).items():
        fact, _, name = key.partition(".")
        value = held.get(fact)
        if fact in _ROWS or fact in _OPTIONAL or not _of_index(source) or value is None:
            continue
        if fact == _BY_ENTRY:
            if name not in told.get(fact, {}):
                place = (*where, fact, name)
                out.contradictions.append(Fact(where=place, held=value.get(name), told=None, source=source))
        elif fact not in told:
            out.contradictions.append(Fact(where=(*where, fact), held=value, told=None, source=source))
    for table in _ROWS & held.keys():
        for name, row in held[table].items():
            source = _source(row.get("src", {}), "source" if table == "builds" else "python")
            ours = _of_index(source) and row.get("source", "pypi") == "pypi"
            if ours and name not in told.get(table, {}):
                place = (*where, table, name)
                out.contradictions.append(Fact(where=place, held="a row", told=None, source=source or ""))


def _source(src: Row, fact: str) -> str | None:
    found: str | None = src.get(fact, src.get(_root(fact)))
    return found


def _root(fact: str) -> str:
    return fact.partition(".")[0]


def _of_index(source: str | None) -> bool:
    return source is not None and source.partition(" ")[0].rstrip(",") in INDEX_SOURCES


def _shown(held: Any, told: Any) -> tuple[str, str]:
    """Write two values; of two tables the entries that differ."""
    if isinstance(held, dict) and isinstance(told, dict):
        names = [name for name in {**held, **told} if held.get(name) != told.get(name)]
        held, told = ({name: one[name] for name in names if name in one} for one in (held, told))
    return _text(held), _text(told)


def _text(value: Any) -> str:
    if value is None or value == {}:
        return "nothing"
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
