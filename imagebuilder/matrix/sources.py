"""Where a fact comes from: the grammar of `src` values, and how a source is cited.

    src    = ref {", " ref}
    ref    = source-id [" (" detail ")"]     a key of the matrix's `sources`
           | URL [" (" detail ")"]           a page or a thread; counts as grade B, official text or tracker
           | grade [": " why]                A, B, C or D on its own; `why` runs to the end of the text

`source-id` is made of lower-case letters, digits, dots and hyphens. A detail may hold anything but brackets
that do not pair. Of several refs the weakest gives the grade.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from imagebuilder.matrix.facts import Grade, Matrix

_DETAIL = r"(?: \((?P<detail>(?:[^()]|\([^()]*\))*)\))?"
_URL = re.compile(r"(?P<name>https?://[^\s,()]+)" + _DETAIL)
_ID = re.compile(r"(?P<name>[a-z][a-z0-9.-]*)" + _DETAIL)
_GRADE = re.compile(r"(?P<name>[ABCD])(?:: (?P<detail>.+)|(?=, |$))")


class Ref(NamedTuple):
    """One reference: `kind` tells what `name` is; `detail` is what the text says in brackets, or the why."""

    kind: str
    name: str
    detail: str | None


def parse(text: str) -> tuple[Ref, ...]:
    """Read a `src` value; raises ValueError that says what cannot be read."""
    refs: list[Ref] = []
    at = 0
    while True:
        kind, taken = _ref(text, at)
        refs.append(Ref(kind, taken["name"], taken["detail"]))
        at = taken.end()
        if at == len(text):
            return tuple(refs)
        if not text.startswith(", ", at):
            raise ValueError(f"`{text[at:]}` in `{text}` is not a further source; sources are parted by `, `")
        at += 2


def _ref(text: str, at: int) -> tuple[str, re.Match[str]]:
    for kind, form in (("grade", _GRADE), ("url", _URL), ("source", _ID)):
        taken = form.match(text, at)
        if taken:
            return kind, taken
    raise ValueError(f"`{text[at:]}` is neither a source id, a URL nor a grade `A` to `D`")


def cite(matrix: Matrix, src: str) -> tuple[str, Grade]:
    """Give a sentence part that names the sources of a `src` value, and the weakest grade among them.

    Raises ValueError for a text outside the grammar and KeyError for an unknown source id; a matrix that
    `load` gave has neither.
    """
    refs = parse(src)
    texts = [_cited(matrix, ref) for ref in refs]
    return "; ".join(texts), max((_grade(matrix, ref) for ref in refs), key="ABCD".index)


def _grade(matrix: Matrix, ref: Ref) -> Grade:
    if ref.kind == "source":
        return matrix.sources[ref.name].grade
    return cast("Grade", ref.name) if ref.kind == "grade" else "B"


def _cited(matrix: Matrix, ref: Ref) -> str:
    if ref.kind == "grade":
        return ref.detail or {"C": "a third party", "D": "inferred"}.get(ref.name, "an unnamed source")
    if ref.kind == "url":
        return ref.name + (f" ({ref.detail})" if ref.detail else "")
    source = matrix.sources[ref.name]
    what = source.what or source.where
    return ref.name + (f": {what}" if what else "") + (f" ({ref.detail})" if ref.detail else "")
