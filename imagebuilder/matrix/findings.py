"""What a check of the facts finds, and the questions that several checks ask."""

from __future__ import annotations

import re
from datetime import date
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from imagebuilder.matrix.words import Python

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from imagebuilder.matrix.read import Where


class Finding(NamedTuple):
    """One thing that cannot be: where in the tree, and what is wrong with it.

    `missing` is the row that it misses; where that row is written, but broken itself, there is nothing
    more to say.
    """

    where: Where
    message: str
    missing: Where | None = None


def dangling(
    where: Where, kind: str, name: object, known: Collection[str], table: Where | None = None
) -> Iterator[Finding]:
    """Find a reference to a row that does not exist in the table at `table`."""
    text = str(name)
    if text not in known:
        near = get_close_matches(text, list(known), n=1)
        nearest = f"; did you mean `{near[0]}`?" if near else ""
        missing = None if table is None else (*table, text)
        yield Finding(where, f"names an unknown {kind} `{text}`{nearest}", missing)


def out_of_order(where: Where, texts: Sequence[Any], values: Sequence[Any] | None) -> Iterator[Finding]:
    """Find repeated items and, where the items have `values` to order them by, items out of order."""
    seen: set[Any] = set()
    for number, text in enumerate(texts):
        value = text if values is None else values[number]
        place = (*where, number) if isinstance(texts, list) else (*where, text)
        if value in seen:
            yield Finding(place, f"`{text}` is there twice")
        elif values is not None and number and value < values[number - 1]:
            yield Finding(place, f"`{text}` is out of order behind `{texts[number - 1]}`")
        seen.add(value)


def odd_name(where: Where, text: str, parse: Callable[[str], Any]) -> Iterator[Finding]:
    """Find a key that is not of the kind that its table is keyed by."""
    try:
        parse(text)
    except ValueError as error:
        yield Finding(where, str(error))


def odd_tags(where: Where, tags: Sequence[str]) -> Iterator[Finding]:
    """Find Python tags that are none, repeated or out of order."""
    odd = [tag for tag in tags if not re.fullmatch(r"cp3\d{1,2}t?", tag)]
    if odd:
        for tag in odd:
            yield Finding(where, f"`{tag}` is not a Python tag such as `cp311` or `cp313t`")
    else:
        yield from out_of_order(where, list(tags), [tag_order(tag) for tag in tags])


def tag_order(tag: str) -> tuple[Python, bool]:
    """Give what Python tags are ordered by: the version, ordinary builds before free-threaded ones."""
    return Python.parse(f"3.{tag[3:].removesuffix('t')}"), tag.endswith("t")


def odd_date(where: Where, text: str) -> Iterator[Finding]:
    """Find a date that does not exist; a month alone will do."""
    full = text if len(text) != 7 else f"{text}-01"
    try:
        date.fromisoformat(full if re.fullmatch(r"\d{4}-\d\d-\d\d", full) else "")
    except ValueError:
        yield Finding(where, f"`{text}` is not a date such as `2024-09-04` or `2026-06`")
