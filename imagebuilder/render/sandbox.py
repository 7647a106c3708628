"""The renderer of templates: Jinja in its sandbox, pure, and bounded in what one rendering may do."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jinja2 import FunctionLoader, StrictUndefined
from jinja2.compiler import CodeGenerator, optimizeconst
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from jinja2 import nodes
    from jinja2.compiler import Frame

# A packaged template takes a few hundred steps a layer.
MOST_STEPS = 200_000
LONGEST_TEXT = 2**20


# A number of this many bits has some thousand digits.
MOST_BITS = 4096
# Jinja's filters whose result is not much longer than what they are given, and the same every time.
FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items",
    "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "safe",
    "select", "selectattr", "sort", "title", "trim", "unique", "upper", "wordcount",
)  # fmt: skip
TEXT_METHODS = frozenset(
    {
        "capitalize", "count", "endswith", "find", "isdecimal", "isdigit", "lower", "lstrip", "partition",
        "removeprefix", "removesuffix", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
        "strip", "title", "upper",
    }
)  # fmt: skip


class Rendered(str):
    """Text that may enter a Dockerfile as it is: quoted by us, or put together from checked values."""

    __slots__ = ()


def _concat(parts: Iterable[str]) -> Rendered:
    """Join what a block or a macro gave: each value in it was checked when it was put in."""
    text = Rendered("".join(parts))
    if len(text) > LONGEST_TEXT:
        raise SecurityError(f"its text is longer than {LONGEST_TEXT} characters")
    return text


def _text(value: object) -> str:
    """Give the text of a single value; a list of lists of lists can have one without end."""
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        raise SecurityError(f"a {type(value).__name__} has no text; a loop or `join` puts its items together")
    return str(value)


def _joined(parts: Iterable[object], between: str = "") -> str:
    """Join texts, for `~` and the filter `join`; refuses a result that is too long before it is made."""
    texts = [_text(part) for part in parts]
    if sum(map(len, texts)) + len(between) * len(texts) > LONGEST_TEXT:
        raise SecurityError("a joined text is too long")
    return between.join(texts)


def _replaced(text: object, old: str, new: str) -> str:
    whole = _text(text)
    if len(whole) + (whole.count(old) + 1) * len(new) > LONGEST_TEXT:
        raise SecurityError("a text with replacements is too long")
    return whole.replace(old, new)


class _Code(CodeGenerator):
    """Code in which `~` goes through the sandbox."""

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 (Jinja's name)
        self.write("environment.joined((")
        for one in node.nodes:
            self.visit(one, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja with undefined names as errors, without randomness, each printed value given to `check`."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})
    code_generator_class = _Code
    joined = staticmethod(_joined)
    concat = staticmethod(_concat)  # so that `super()` and macros pass `check`

    def __init__(
        self,
        load: Callable[[str], str | None],
        check: Callable[[object], object],
        quote: Callable[[object], Rendered],
    ) -> None:
        super().__init__(
            loader=FunctionLoader(lambda name: _located(name, load(name))),
            undefined=StrictUndefined,
            finalize=lambda value: check(_single(value)),
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.filters = {name: self.filters[name] for name in FILTERS}
        self.filters.update(quoted=quote, join=_joined, replace=_replaced, string=_text)
        # The same lock gives the same bytes: nothing may be left to chance.
        del self.globals["lipsum"]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Take from texts and numbers only methods whose result is no longer than they are."""
        if isinstance(obj, (str, int, float)) and callable(value):
            return isinstance(obj, str) and attr in TEXT_METHODS
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse what would take the memory of the machine."""
        if operator == "%" and isinstance(left, str):
            raise SecurityError("`%` puts no texts together; write them with `~`")
        if operator == "**" and (abs(left) > 1000 or abs(right) > 1000):
            raise SecurityError("a power is too large")
        if operator == "*" and _bits(left) + _bits(right) > MOST_BITS:
            raise SecurityError("a product is too large")
        if operator == "+" and _length(left) + _length(right) > LONGEST_TEXT:
            raise SecurityError("a sum of texts is too long")
        for text, count in ((left, right), (right, left)) if operator == "*" else ():
            if isinstance(text, (str, list, tuple)) and len(text) * count > LONGEST_TEXT:
                raise SecurityError("a repeated text is too long")
        return super().call_binop(context, operator, left, right)


def _single(value: object) -> object:
    """Refuse to print what is not a single value."""
    return value if isinstance(value, str) else _text(value)


def _bits(value: object) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _length(value: object) -> int:
    return len(value) if isinstance(value, (str, list, tuple)) else 0


def _located(name: str, text: str | None) -> tuple[str, str, Callable[[], bool]] | None:
    """Give the name as the file name, so that a traceback tells template and line."""
    return None if text is None else (text, name, lambda: True)


@contextmanager
def bounded(names: Iterable[str]) -> Iterator[None]:
    """Stop a rendering after MOST_STEPS lines of templates: loops in loops and macros without an end.

    Raises SecurityError. Jinja has no such limit of its own; counting lines needs no thread and no clock.
    """
    templates = frozenset(names)
    steps = 0

    def count(_frame: FrameType, _event: str, _arg: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps > MOST_STEPS:
            raise SecurityError(f"it takes more than {MOST_STEPS} steps")
        return count

    def enter(frame: FrameType, _event: str, _arg: Any) -> Any:
        return count if frame.f_code.co_filename in templates else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
