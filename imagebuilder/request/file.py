"""Requests in a file: TOML whose keys are the options, `[tool.imgbuild]` of a pyproject.toml included."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imagebuilder.errors import UsageError
from imagebuilder.request import Request, parse_request
from imagebuilder.request.reference import parse_reference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LARGEST = 2**20
HINT = 'a file with [[image]] and framework = "pytorch" works; docs/many.md shows one'


@dataclass(frozen=True, slots=True)
class Wanted:
    """One image of a file: the request, and the reference that it shall have where one is given."""

    request: Request
    tag: str | None = None


# Keys that hold one text, and keys that may hold several; what they are called in a request.
ONE = ("framework", "cuda", "cudnn", "python", "os", "arch", "variant", "driver", "tag")
MANY = {"gpu": "gpus", "source": "sources", "with": "extras", "requirements": "requirements"}


def read_requests(path: Path) -> tuple[Wanted, ...]:
    """Read the requests of a file, in their order; raises UsageError that names the file and the image.

    Paths of requirements are relative to the file's folder.
    """
    images = _images(_document(path), path)
    return tuple(_request(image, f"{path}: image {number}", path) for number, image in enumerate(images, 1))


def _document(path: Path) -> Mapping[str, Any]:
    if path.exists() and not path.is_file():
        raise UsageError(f"`{path}` is not a file", hint=HINT)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UsageError(f"`{path}` is larger than {LARGEST} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"cannot read `{path}`", why=error.strerror, hint=HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` is not TOML", why=str(error), hint=HINT) from error


def _images(document: Mapping[str, Any], path: Path) -> list[Mapping[str, Any]]:
    """Find the tables of images: `[[image]]`, or `[tool.imgbuild]` that is one or holds several."""
    own: Any = document
    if "tool" in document:
        tool = document["tool"]
        own = tool.get("imgbuild") if isinstance(tool, dict) else None
    images = [own] if isinstance(own, dict) and "framework" in own else own
    if isinstance(images, dict):
        unknown = sorted(set(images) - {"image"})
        if unknown:
            raise UsageError(f"{path}: unknown key `{unknown[0]}`", why="`image` is known", hint=HINT)
        images = images.get("image")
    if not isinstance(images, list) or not images or not all(isinstance(one, dict) for one in images):
        raise UsageError(f"{path} asks for no image", hint=HINT)
    return images


def _request(image: Mapping[str, Any], where: str, path: Path) -> Wanted:
    unknown = sorted(set(image) - set(ONE) - set(MANY))
    if unknown:
        known = ", ".join((*ONE, *MANY))
        raise UsageError(f"{where}: unknown key `{unknown[0]}`", why=f"known are {known}", hint=HINT)
    if "framework" not in image:
        raise UsageError(f"{where} has no `framework`", hint=HINT)
    texts: dict[str, Any] = {}
    for key in ONE:
        if key in image:
            texts[key] = _text(image[key], key, where)
    for key, name in MANY.items():
        given = image.get(key, [])
        texts[name] = [_text(one, key, where) for one in (given if isinstance(given, list) else [given])]
    texts["requirements"] = [path.parent / one for one in texts["requirements"]]
    tag = texts.pop("tag", None)
    try:
        return Wanted(parse_request(**texts), None if tag is None else parse_reference(tag))
    except UsageError as error:
        raise UsageError(f"{where}: {error.what}", why=error.why, hint=error.hint) from None


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise UsageError(
            f"{where}: `{key}` must be a text",
            why="a number would lose its zeros (12.10)",
            hint=f'{key} = "{value if isinstance(value, (int, float)) else ""}"',
        )
    return value
