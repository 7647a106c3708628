"""The renderer of templates: Jinja in its sandbox, pure, and bounded in what one rendering may do."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jinja2 import FunctionLoader, StrictUndefined
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

# A packaged template takes a few hundred steps a layer.
MOST_STEPS = 200_000
LONGEST_TEXT = 2**20


class Rendered(str):
    """Text that may enter a Dockerfile as it is: quoted by us, or put together from checked values."""

    __slots__ = ()


def _concat(parts: Iterable[str]) -> Rendered:
    """Join what a block or a macro gave: each value in it was checked when it was put in."""
    text = Rendered("".join(parts))
    if len(text) > LONGEST_TEXT:
        raise SecurityError(f"its text is longer than {LONGEST_TEXT} characters")
    return text


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja with undefined names as errors, without randomness, each printed value given to `check`."""

    intercepted_binops = frozenset({"*", "**"})
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
            finalize=check,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.filters["quoted"] = quote
        # The same lock gives the same bytes: nothing may be left to chance.
        del self.filters["random"], self.globals["lipsum"]

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse products and powers that would take the memory of the machine."""
        if operator == "**" and (abs(left) > 1000 or abs(right) > 1000):
            raise SecurityError("a power is too large")
        for text, count in ((left, right), (right, left)):
            if isinstance(text, (str, list, tuple)) and len(text) * count > LONGEST_TEXT:
                raise SecurityError("a repeated text is too long")
        return super().call_binop(context, operator, left, right)


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
