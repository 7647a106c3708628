"""A project's page on an index, as PEP 691 (JSON) or PEP 503 (HTML) writes it: its wheels."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from imagebuilder.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.tags import Tag
    from packaging.version import Version

    from imagebuilder.remote.client import Client, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelFile:
    """A wheel on an index. `size` (bytes) and `uploaded` (a date) are None where the page does not say.

    `yanked` is the reason, None where it is not yanked. `has_metadata` is None where the page is silent.
    """

    name: str
    url: str
    version: Version
    build: tuple[()] | tuple[int, str]
    tags: frozenset[Tag]
    size: int | None
    uploaded: str | None
    yanked: str | None
    has_metadata: bool | None


def wheels_of(client: Client, project: str) -> tuple[WheelFile, ...]:
    """Give the wheels of a project, none where the index has no such project; raises OutsideError."""
    page = client.page(project)
    if page is None:
        return ()
    try:
        entries = _json(page) if "json" in page.headers.get("Content-Type", "") else _html(page)
        return tuple(found for entry in entries if (found := _wheel(entry)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OutsideError(
            f"the index `{client.index.name}` gives a page of `{project}` that cannot be read",
            why=f"{client.index.shown}: {type(error).__name__}: {error}",
            hint="imgbuild doctor",
        ) from None


def _json(page: Reply) -> Iterator[dict[str, Any]]:
    for entry in json.loads(page.body)["files"]:
        told = entry.get("core-metadata", entry.get("dist-info-metadata"))
        yanked = entry.get("yanked", False)
        yield {
            "name": str(entry["filename"]),
            "url": urljoin(page.url, str(entry["url"])),
            "size": int(entry["size"]) if entry.get("size") is not None else None,
            "uploaded": str(entry["upload-time"])[:10] if entry.get("upload-time") else None,
            "yanked": None if yanked is False else _line(yanked if isinstance(yanked, str) else ""),
            "has_metadata": None if told is None else bool(told),
        }


def _html(page: Reply) -> Iterator[dict[str, Any]]:
    links = _Links()
    links.feed(page.body.decode("utf-8"))
    for link in links.found:
        url = urljoin(page.url, link["href"]).partition("#")[0]
        told = link.get("data-core-metadata", link.get("data-dist-info-metadata"))
        yield {
            "name": unquote(urlsplit(url).path.rpartition("/")[2]),
            "url": url,
            "size": None,
            "uploaded": None,
            "yanked": _line(link["data-yanked"]) if "data-yanked" in link else None,
            "has_metadata": None if told is None else told != "false",
        }


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in facts:
            self.found.append(facts)


def _line(reason: str) -> str:
    """Give the reason of a yank as one line that can be printed."""
    return " ".join("".join(one if one.isprintable() else " " for one in reason).split()) or "no reason given"


def _wheel(entry: dict[str, Any]) -> WheelFile | None:
    if not re.search(r"\.whl$", entry["name"]):
        return None
    try:
        _, version, build, tags = parse_wheel_filename(entry["name"])
    except (InvalidWheelFilename, ValueError):
        return None  # names from before the form was fixed
    return WheelFile(version=version, build=build, tags=tags, **entry)
