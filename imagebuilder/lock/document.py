"""One object of image.json with the path it stands at: every value is read with its type and its grammar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LONGEST = 4000
_MOST_BYTES = 2**40


class Node:
    """Reads one object; every error is a UsageError that names the path of the bad value and `hint`."""

    def __init__(self, doc: object, path: str, hint: str) -> None:
        self.path, self.hint = path, hint
        if not isinstance(doc, dict):
            raise UsageError(f"{path} is not an object", hint=hint)
        self.doc: Mapping[str, Any] = doc

    def wrong(self, key: str, why: str) -> UsageError:
        """Give the error for the value of a key."""
        return UsageError(f"{self.path}: `{key[:80]}` is not valid", why=why, hint=self.hint)

    def only(self, keys: Collection[str]) -> None:
        """See that there are just these keys."""
        for key in keys:
            self.value(key)
        for key in self.doc:
            if key not in keys:
                raise self.wrong(key, "there is no such key")

    def value(self, key: str) -> Any:
        """Give whatever stands under a key."""
        if key not in self.doc:
            raise UsageError(f"{self.path} lacks `{key}`", hint=self.hint)
        return self.doc[key]

    def text(self, key: str, form: str) -> str:
        """Give a text that has this form as a whole."""
        return self._formed(key, self.value(key), form)

    def maybe(self, key: str, form: str) -> str | None:
        """Give a text of this form, or null."""
        return None if self.value(key) is None else self.text(key, form)

    def number(self, key: str) -> int:
        """Give a number of bytes, or another that is not negative."""
        value = self.value(key)
        if type(value) is not int or not 0 <= value < _MOST_BYTES:
            raise self.wrong(key, f"a whole number belongs there, not {str(value)[:40]!a}")
        return value

    def names(self, key: str) -> list[str]:
        """Give a list of printable texts."""
        return [self._formed(f"{key}[{i}]", one, r".*") for i, one in enumerate(self._list(key))]

    def table(self, key: str, form: str) -> dict[str, str]:
        """Give an object of texts of this form."""
        inner = self.node(key)
        return {self._formed(key, name, r".+"): inner.text(name, form) for name in inner.doc}

    def node(self, key: str) -> Node:
        """Give an object."""
        return Node(self.value(key), f"{self.path}: {key}", self.hint)

    def nodes(self, key: str) -> list[Node]:
        """Give a list of objects."""
        return [Node(one, f"{self.path}: {key}[{i}]", self.hint) for i, one in enumerate(self._list(key))]

    def _list(self, key: str) -> list[Any]:
        value = self.value(key)
        if not isinstance(value, list):
            raise self.wrong(key, f"a list belongs there, not {type(value).__name__}")
        return value

    def _formed(self, key: str, value: object, form: str) -> str:
        if not isinstance(value, str):
            raise self.wrong(key, f"a text belongs there, not {type(value).__name__}")
        if len(value) > LONGEST or not value.isprintable() or not re.fullmatch(form, value):
            raise self.wrong(key, f"{value[:80]!a} does not have the form of such a value")
        return value
