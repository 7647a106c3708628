"""The canonical text of a matrix: loading it and dumping it again gives the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from imagebuilder.matrix.facts import Matrix
from imagebuilder.matrix.shape import Record, plain_of

WIDTH = 110
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+()-]+)*")
_WORDS_OF_YAML = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"}


def dump(matrix: Matrix, header: str = "") -> str:
    """Write a matrix as YAML, behind the comment block that heads its file."""
    return dump_plain(plain_of(matrix, Record(Matrix)), header)


def dump_plain(document: Mapping[str, Any], header: str = "") -> str:
    """Write a plain document as YAML: sections apart by an empty line, small collections on one line."""
    sections = ("\n".join(_entry(key, value, 0)) for key, value in document.items())
    return header + "\n\n".join(sections) + "\n"


def header_of(text: str) -> str:
    """Give the comment block at the head of a matrix file, with the empty lines in and behind it."""
    taken = re.match(r"(?:#[^\n]*\n|[ \t]*\n)*", text)
    return taken.group() if taken else ""


def _entry(key: str, value: Any, depth: int) -> Iterator[str]:
    """Write `key: value`, on one line where that fits and reads well."""
    head = " " * depth + _text(key) + ":"
    yield from _value(head, value, depth)


def _value(head: str, value: Any, depth: int) -> Iterator[str]:
    if not isinstance(value, (Mapping, list)) or _fits(head, value):
        yield f"{head} {_flow(value)}"
    elif isinstance(value, Mapping):
        yield head
        for key, one in value.items():
            yield from _entry(key, one, depth + 2)
    elif _is_leaf(value):
        yield from _filled(head, value, depth + 2)
    else:
        yield head
        for one in value:
            yield from _item(one, depth + 2)


def _item(value: Any, depth: int) -> Iterator[str]:
    """Write one item of a list of mappings: the first fact behind the dash, the others below it."""
    if _fits(" " * depth + "-", value):
        yield " " * depth + f"- {_flow(value)}"
        return
    lines = [line for key, one in value.items() for line in _entry(key, one, depth + 2)]
    yield " " * depth + "- " + lines[0][depth + 2 :]
    yield from lines[1:]


def _filled(head: str, values: Sequence[Any], depth: int) -> Iterator[str]:
    """Write a long list of scalars in flow style, as many on a line as fit."""
    line = head + " ["
    for number, value in enumerate(values):
        piece = _flow(value) + ("," if number < len(values) - 1 else "]")
        if len(line) + 1 + len(piece) > WIDTH:
            yield line.rstrip()
            line = " " * depth + piece
        else:
            line += ("" if line.endswith("[") else " ") + piece
    yield line


def _fits(head: str, value: Any) -> bool:
    """Tell whether a collection may stand on one line: short, and no deeper than a leaf within a row.

    Whole sections do not.
    """
    inner = value.values() if isinstance(value, Mapping) else value
    shallow = (head.startswith(" ") or _is_leaf(value)) and all(
        not isinstance(one, (Mapping, list)) or _is_leaf(one) for one in inner
    )
    return shallow and len(head) + 1 + len(_flow(value)) <= WIDTH


def _is_leaf(value: Mapping[str, Any] | list[Any]) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value
    return not any(isinstance(one, (Mapping, list)) for one in inner)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    """Quote a text unless it is plainly a word or words: whatever starts with a digit is quoted.

    Nothing needs an escape: `read` accepts texts of printable characters only.
    """
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS_OF_YAML:
        return text
    return "'" + text.replace("'", "''") + "'"
