"""From the bytes of a matrix file to a plain document that fits the schema, or to all its problems at once.

Problems read `path:line: where.in.the.tree: message`. A row with a problem is left out of the document, so
that the checks behind this one still run over the rest.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from imagebuilder.matrix.facts import Matrix
from imagebuilder.matrix.shape import Items, Record, Scalar, Shape, Table, facts_of, parser

if TYPE_CHECKING:
    from pathlib import Path

Where = tuple[str | int, ...]

_BROKEN: Any = object()
_TAG = "tag:yaml.org,2002:"
_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "`true` or `false`"}


class Reader:
    """Reads one file: `plain` is its document, `lines` the line of every key, `problems` what is wrong.

    With `partial` the file adds to another: sections may be missing, and a framework may have nothing but
    `releases`.
    """

    def __init__(self, path: Path, content: bytes, *, partial: bool) -> None:
        self.path = path
        self.partial = partial
        self.problems: list[str] = []
        self.lines: dict[Where, int] = {}
        self._seen: set[int] = set()
        root = self._compose(content)
        plain = _BROKEN if root is None else self._value(root, Record(Matrix), ())
        self.plain: dict[str, Any] = {} if plain is _BROKEN else plain

    def problem(self, line: int, where: Where, message: str) -> None:
        """Note a problem at a line (counted from 1)."""
        place = f"{self.path}:{line}: " + (".".join(map(str, where)) + ": " if where else "")
        self.problems.append(place + message)

    def _compose(self, content: bytes) -> Any:
        import yaml

        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            self.problem(content.count(b"\n", 0, error.start) + 1, (), "is not UTF-8")
            return None
        try:
            root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.problem(mark.line + 1 if mark else 1, (), f"is not YAML: {error.problem or error.context}")
        except (yaml.YAMLError, RecursionError) as error:
            at = text.count("\n", 0, getattr(error, "position", 0)) + 1
            self.problem(at, (), f"is not YAML: {getattr(error, 'reason', None) or 'nested too deeply'}")
        else:
            if root is None:
                self.problem(1, (), "is empty")
            return root
        return None

    def _value(self, node: Any, shape: Shape, where: Where) -> Any:
        """Check one node; gives its plain value, or _BROKEN with a problem noted."""
        if id(node) in self._seen:
            return self._broken(node, where, "aliases are not allowed; write the value out")
        self._seen.add(id(node))
        self.lines.setdefault(where, node.start_mark.line + 1)
        if isinstance(shape, Scalar):
            return self._scalar(node, shape, where)
        if isinstance(shape, Items):
            return self._items(node, shape, where)
        if node.id != "mapping":
            return self._broken(node, where, f"wants a mapping, not {_named(node)}")
        return (
            self._record(node, shape, where) if isinstance(shape, Record) else self._table(node, shape, where)
        )

    def _broken(self, node: Any, where: Where, message: str) -> Any:
        self.problem(self.lines.get(where, node.start_mark.line + 1), where, message)
        return _BROKEN

    def _scalar(self, node: Any, shape: Scalar, where: Where) -> Any:
        if node.id != "scalar":
            return self._broken(node, where, f"wants {_wanted(shape)}, not {_named(node)}")
        kind = "str" if shape.kind not in (int, float, bool) else shape.kind.__name__
        tag = node.tag.removeprefix(_TAG)
        if tag == "null":
            return self._broken(node, where, "is empty; a fact that is not known is left out")
        if tag != kind and not (kind == "float" and tag == "int"):
            quote = f"; quote it: '{node.value}'" if kind == "str" else ""
            return self._broken(node, where, f"wants {_wanted(shape)}, not `{node.value}`{quote}")
        message, plain = _number(node.value, kind) if kind != "str" else _text(node.value, shape)
        return self._broken(node, where, message) if message else plain

    def _items(self, node: Any, shape: Items, where: Where) -> Any:
        if node.id != "sequence":
            return self._broken(node, where, f"wants a list, not {_named(node)}")
        plain = [self._value(one, shape.item, (*where, number)) for number, one in enumerate(node.value)]
        return _BROKEN if any(one is _BROKEN for one in plain) else plain

    def _pairs(self, node: Any, where: Where) -> dict[str, Any]:
        """Give the values of a mapping by key and note their lines; odd and repeated keys are problems."""
        pairs: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.id != "scalar" or key.tag != f"{_TAG}str":
                shown = (
                    f"`{key.value}` as a key; quote it: '{key.value}'" if key.id == "scalar" else _named(key)
                )
                self.problem(line, where, f"wants texts as keys, not {shown}")
            elif not key.value or not key.value.isprintable():
                self.problem(line, where, "has a key without printable characters")
            elif key.value in pairs:
                first = self.lines[*where, key.value]
                self.problem(line, (*where, key.value), f"is there twice, first in line {first}")
            else:
                pairs[key.value] = value
                self.lines[*where, key.value] = line
        return pairs

    def _record(self, node: Any, shape: Record, where: Where) -> Any:
        facts = facts_of(shape.cls)
        pairs = self._pairs(node, where)
        plain = {}
        for name, value in pairs.items():
            if name in facts:
                plain[name] = self._value(value, facts[name].shape, (*where, name))
            else:
                self.problem(self.lines[*where, name], where, f"knows no `{name}`{_near(name, facts)}")
        partial = self.partial and _may_be_partial(where, pairs)
        needed = [name for name, fact in facts.items() if fact.required and not partial]
        if self.partial and not where:
            needed = ["schema"]
        missing = [name for name in needed if name not in pairs]
        for name in missing:
            self._broken(node, where, f"lacks `{name}`")
        sound = {name: value for name, value in plain.items() if value is not _BROKEN}
        return sound if not where or (len(sound) == len(pairs) and not missing) else _BROKEN

    def _table(self, node: Any, shape: Table, where: Where) -> Any:
        plain: dict[str, Any] = {}
        sound = True
        for name, value in self._pairs(node, where).items():
            if shape.choices and name not in shape.choices:
                self.problem(
                    self.lines[*where, name], where, f"knows no `{name}`{_near(name, shape.choices)}"
                )
                continue
            one = self._value(value, shape.value, (*where, name))
            if one is not _BROKEN:
                plain[name] = one
            sound = sound and (one is not _BROKEN or isinstance(shape.value, Record))
        return plain if sound else _BROKEN


def _may_be_partial(where: Where, pairs: dict[str, Any]) -> bool:
    return len(where) == 2 and where[0] == "frameworks" and set(pairs) == {"releases"}


def _number(text: str, kind: str) -> tuple[str | None, Any]:
    if kind == "bool":
        return (
            (None, text == "true")
            if text in ("true", "false")
            else (f"wants `true` or `false`, not `{text}`", None)
        )
    try:
        value = int(text) if kind == "int" else float(text)
    except ValueError:
        return f"wants a plain decimal number, not `{text}`", None
    return (None, value) if 0 < value < 2**31 else (f"wants a number above 0, not `{text}`", None)


def _text(text: str, shape: Scalar) -> tuple[str | None, str]:
    """Check a text against its kind; gives a message or None, and the text."""
    if not text.strip() or not text.isprintable():
        return f"wants {_wanted(shape)} in one line of printable characters", text
    if shape.choices and text not in shape.choices:
        return f"wants {_wanted(shape)}, not `{text}`{_near(text, shape.choices)}", text
    if shape.kind is str:
        return (None, text) if text == text.strip() else (f"`{text}` begins or ends with a space", text)
    try:
        canonical = str(parser(shape.kind)(text))
    except ValueError as error:
        says = str(error) if hasattr(shape.kind, "wanted") else f"`{text}` is not {_wanted(shape)}"
        return says, text
    return (None, text) if canonical == text else (f"write `{canonical}` instead of `{text}`", text)


def _wanted(shape: Scalar) -> str:
    if shape.choices:
        return "one of " + ", ".join(f"`{one}`" for one in shape.choices)
    if hasattr(shape.kind, "wanted"):
        return str(shape.kind.wanted)
    named = (
        "a version range such as `>=2.1,<2.4`" if shape.kind is SpecifierSet else "a version such as `2.4.1`"
    )
    return _KINDS.get(shape.kind, named)


def _named(node: Any) -> str:
    if node.id == "scalar":
        return f"`{node.value}`" if node.value else "nothing"
    return "a list" if node.id == "sequence" else "a mapping"


def _near(name: str, known: Any) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
