"""A lock on disk: a folder `NAME.lock/` with image.json and pylock.toml, whole or not at all."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from imagebuilder.base import Deb, LockedBase
from imagebuilder.errors import UsageError
from imagebuilder.lock import MACHINES, Lock, Wheel
from imagebuilder.matrix.words import Glibc
from imagebuilder.pylock import ADDRESS, SHA256, read_wheels
from imagebuilder.stack import stack_from_dict, stack_to_dict

SCHEMA = 1
IMAGE, PYLOCK = "image.json", "pylock.toml"
LARGEST = 16 * 2**20
AGAIN = "imgbuild lock --framework NAME makes it anew"
# The names of Debian packages, versions and files, as Debian policy has them.
DEB_FORMS = {
    "name": re.compile(r"[a-z0-9][a-z0-9+.-]+"),
    "version": re.compile(r"[0-9][A-Za-z0-9.+:~-]*"),
    "arch": re.compile(r"[a-z0-9-]+"),
    "filename": re.compile(r"[a-z0-9][A-Za-z0-9.+%~_-]*\.deb"),
    "sha256": SHA256,
}
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
IMAGE_NAME = re.compile(r"[a-z0-9][a-z0-9._:/@-]*")
NAME = re.compile(r"[a-z][a-z0-9.-]*")
TOOL = re.compile(r"[0-9][0-9a-z.+]*")
GLIBC = re.compile(r"2\.\d{1,2}")


def write_lock(lock: Lock, glibc: Glibc, folder: Path) -> None:
    """Write a lock; an older one in its place is replaced in one step. Raises UsageError where it cannot be."""
    if folder.exists() and not (folder / IMAGE).is_file():
        raise UsageError(f"`{folder}` is there already and is not a lock", hint=f"imgbuild lock ... -o {folder}.new")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            staged = Path(beside, "lock")
            staged.mkdir()
            (staged / PYLOCK).write_text(lock.pylock)
            (staged / IMAGE).write_text(json.dumps(lock_to_dict(lock, glibc), indent=2, ensure_ascii=False) + "\n")
            if folder.exists():
                folder.rename(Path(beside, "old"))
            staged.rename(folder)
    except OSError as error:
        raise UsageError(f"cannot write the lock `{folder}`", why=error.strerror) from error


def lock_to_dict(lock: Lock, glibc: Glibc) -> dict[str, Any]:
    """Give the document of image.json; the wheels are in pylock.toml, of which it holds the digest."""
    return {
        "schema": lock.schema,
        "tool": lock.tool,
        "stack": stack_to_dict(lock.stack),
        "glibc": str(glibc),
        "base": _plain(lock.base),
        "pylock_sha256": sha256(lock.pylock.encode()).hexdigest(),
        "user_wheels": [wheel.name for wheel in lock.user_wheels],
        "own_wheels": {w.name: w.source for w in (*lock.wheels, *lock.user_wheels) if w.source != "pypi"},
        "installer": {**asdict(lock.installer), "version": str(lock.installer.version)},
        "requirements": list(lock.requirements),
        "sources": dict(lock.sources),
    }


def _plain(base: LockedBase) -> dict[str, Any]:
    return {**asdict(base), "environment": dict(base.environment)}


def read_lock(folder: Path) -> Lock:
    """Read a lock and check every field; raises UsageError naming the file and the path of a wrong value."""
    document, pylock = _load(folder / IMAGE), _text(folder / PYLOCK)
    top = _Reader(document, str(folder / IMAGE))
    if document.get("schema") != SCHEMA:
        raise top.wrong("schema", f"this imgbuild reads schema {SCHEMA}; a newer one may have written it")
    if top.text("pylock_sha256", SHA256) != sha256(pylock.encode()).hexdigest():
        raise UsageError(f"`{folder / PYLOCK}` is not the file that `{IMAGE}` was written with", why="its SHA-256 differs", hint=AGAIN)
    stack = stack_from_dict(document.get("stack"), f"{folder / IMAGE}: stack")
    own = top.table("own_wheels", NAME)
    glibc = Glibc.parse(top.text("glibc", GLIBC))
    wheels = read_wheels(pylock, stack.python, MACHINES[stack.arch], glibc, own=own)
    user = set(top.names("user_wheels"))
    unknown = user - {wheel.name for wheel in wheels}
    if unknown:
        raise top.wrong("user_wheels", f"{PYLOCK} has no {', '.join(sorted(unknown))}")
    _check_pins(top, stack.packages, wheels)
    return Lock(
        stack=stack,
        base=_base(top.inner("base")),
        wheels=tuple(wheel for wheel in wheels if wheel.name not in user),
        user_wheels=tuple(wheel for wheel in wheels if wheel.name in user),
        installer=_installer(top.inner("installer")),
        requirements=tuple(top.names("requirements")),
        sources=top.table("sources", ADDRESS),
        pylock=pylock,
        tool=top.text("tool", TOOL),
    )


def _check_pins(top: _Reader, pins: Mapping[str, str], wheels: tuple[Wheel, ...]) -> None:
    """Every package of the stack must be among the wheels: a lock cannot lose one."""
    have = {wheel.name for wheel in wheels}
    missing = sorted(set(pins) - have)
    if missing:
        raise top.wrong("stack.packages", f"{PYLOCK} has no wheel of {', '.join(missing)}")


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` is not JSON", why=str(error), hint=AGAIN) from error
    if not isinstance(document, dict):
        raise UsageError(f"`{path}` is not a lock", why="an object belongs there", hint=AGAIN)
    return document


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"`{path}` is larger than {LARGEST} bytes")
        return path.read_text()
    except OSError as error:
        raise UsageError(f"no lock at `{path.parent}`", why=f"{path.name}: {error.strerror}", hint=AGAIN) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is not UTF-8 text", why=str(error), hint=AGAIN) from error


class _Reader:
    """One object of the document with the path it stands at."""

    def __init__(self, doc: Mapping[str, Any], path: str) -> None:
        self.doc, self.path = doc, path

    def wrong(self, key: str, why: str) -> UsageError:
        return UsageError(f"{self.path}: `{key}` is not valid", why=why, hint=AGAIN)

    def _get(self, key: str, kind: Callable[[Any], bool], wanted: str) -> Any:
        value = self.doc.get(key)
        if not kind(value):
            raise self.wrong(key, f"{wanted} belongs there")
        return value

    def text(self, key: str, form: re.Pattern[str]) -> str:
        value: str = self._get(key, lambda value: isinstance(value, str), "a text")
        if not form.fullmatch(value):
            raise self.wrong(key, f"{value[:80]!r} is not of the right form")
        return value

    def maybe(self, key: str, form: re.Pattern[str]) -> str | None:
        return None if self.doc.get(key) is None else self.text(key, form)

    def number(self, key: str) -> int:
        value: int = self._get(key, lambda value: type(value) is int and value >= 0, "a number of bytes")
        return value

    def names(self, key: str) -> list[str]:
        value: list[str] = self._get(
            key, lambda value: isinstance(value, list) and all(isinstance(one, str) and one.isprintable() for one in value), "a list of texts"
        )
        return value

    def table(self, key: str, form: re.Pattern[str]) -> dict[str, str]:
        inner = self.inner(key)
        return {name: inner.text(name, form) for name in inner.doc}

    def inner(self, key: str) -> _Reader:
        return _Reader(self._get(key, lambda value: isinstance(value, dict), "an object"), f"{self.path}: {key}")

    def each(self, key: str) -> list[_Reader]:
        value = self._get(key, lambda value: isinstance(value, list), "a list")
        if not all(isinstance(one, dict) for one in value):
            raise self.wrong(key, "it must hold objects alone")
        return [_Reader(one, f"{self.path}: {key}[{position}]") for position, one in enumerate(value)]


def _base(reader: _Reader) -> LockedBase:
    origin = reader.text("origin", re.compile("registry|bootstrap"))
    image = reader.maybe("image", IMAGE_NAME)
    if origin == "registry" and image is None:
        raise reader.wrong("image", "a base from a registry has a name there")
    return LockedBase(
        name=reader.text("name", NAME),
        origin="registry" if origin == "registry" else "bootstrap",
        image=image,
        digest=reader.text("digest", DIGEST),
        debs=tuple(_deb(one) for one in reader.each("debs")),
        packages=tuple(_deb(one) for one in reader.each("packages")),
        environment=reader.table("environment", re.compile(r"[^\x00-\x1f\x7f]*")),
        note=reader.maybe("note", re.compile(r"[^\x00-\x1f\x7f]*")),
    )


def _deb(reader: _Reader) -> Deb:
    return Deb(**{key: reader.text(key, form) for key, form in DEB_FORMS.items()}, size=reader.number("size"))


def _installer(reader: _Reader) -> Wheel:
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(reader.text("version", re.compile(r"[0-9a-z.+!]+")))
    except InvalidVersion as error:
        raise reader.wrong("version", str(error)) from error
    return Wheel(
        name=reader.text("name", re.compile("uv")),
        version=version,
        filename=reader.text("filename", re.compile(r"uv-[A-Za-z0-9._+-]+\.whl")),
        url=reader.text("url", ADDRESS),
        size=reader.number("size"),
        sha256=reader.text("sha256", SHA256),
        uploaded=reader.maybe("uploaded", re.compile(r"[0-9T:+.-]+")),
    )
