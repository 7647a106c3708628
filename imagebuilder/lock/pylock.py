"""pylock.toml (PEP 751): the wheels it names, checked field by field, and its canonical text."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from imagebuilder.errors import UsageError
from imagebuilder.lock import Wheel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imagebuilder.matrix.words import Glibc, Python

WHERE = "pylock.toml"
SHA256 = re.compile(r"[0-9a-f]{64}")
FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl")
# What an address in a lock may be: no user, no query, no character that a shell or a Dockerfile acts on.
ADDRESS = re.compile(r"(https?://[A-Za-z0-9._-]+(:[0-9]{1,5})?|file://)(/[A-Za-z0-9._~%+!@=,:-]*)*")
# The characters that may stand in a path beside letters and digits.
PLAIN = "/._~%+!@=,:-"
LONGEST = 2000
_MOST_BYTES = 2**40


def clean(text: str) -> str:
    """Give what uv wrote with tidy addresses: no credentials, no query, nothing but plain characters."""
    return re.sub(r'\burl = "([^"]*)"', lambda found: f'url = "{_tidy(found[1])}"', text)


def _tidy(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{quote(parts.path, safe=PLAIN)}"


def write_pylock(wheels: Iterable[Wheel], python: Python) -> str:
    """Give the canonical text that names exactly these wheels; the same wheels give the same bytes."""
    parts = [f'lock-version = "1.0"\ncreated-by = "imgbuild"\nrequires-python = "=={python}.*"\n']
    for wheel in sorted(wheels, key=lambda one: one.name):
        uploaded = f"upload-time = {wheel.uploaded}, " if wheel.uploaded else ""
        parts.append(
            f'[[packages]]\nname = "{wheel.name}"\nversion = "{wheel.version}"\n'
            f'wheels = [{{ url = "{wheel.url}", {uploaded}size = {wheel.size}, '
            f'hashes = {{ sha256 = "{wheel.sha256}" }} }}]\n'
        )
    return "\n".join(parts)


def read_wheels(
    text: str, python: Python, machine: str, glibc: Glibc, *, own: Mapping[str, str]
) -> tuple[Wheel, ...]:
    """Give one wheel a package, the best one for the target, sorted by name.

    `own` maps names of packages to the index they come from, others come from `pypi`. A size that is not
    given is 0. Raises UsageError naming the path of a value that is missing or wrong.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise _wrong("", str(error)) from None
    if document.get("lock-version") != "1.0":
        raise _wrong("lock-version", "this imgbuild reads version 1.0")
    packages = document.get("packages")
    if not isinstance(packages, list) or not all(isinstance(entry, dict) for entry in packages):
        raise _wrong("packages", "it must be a list of tables")
    order = {str(tag): rank for rank, tag in enumerate(_tags(python, machine, glibc))}
    wheels: dict[str, Wheel] = {}
    for position, entry in enumerate(packages):
        where = f"packages[{position}]"
        best = _best(_candidates(entry, where, own), order)
        if best is None:
            raise _wrong(
                where, f"no wheel of `{entry['name']}` fits Python {python}, {machine} and glibc {glibc}"
            )
        if best.name in wheels:
            raise _wrong("packages", f"`{best.name}` stands there twice")
        wheels[best.name] = best
    return tuple(sorted(wheels.values(), key=lambda wheel: wheel.name))


def _wrong(path: str, why: str) -> UsageError:
    return UsageError(
        f"{WHERE}{': ' + path if path else ''} is not valid",
        why=why[:300],
        hint="imgbuild lock --framework NAME writes it anew",
    )


def _candidates(entry: Mapping[str, Any], where: str, own: Mapping[str, str]) -> list[Wheel]:
    name, version = _name(entry.get("name"), where), _version(entry.get("version"), where)
    items = entry.get("wheels")
    if not isinstance(items, list) or not items:
        raise _wrong(f"{where}.wheels", "only packages with wheels can be locked")
    return [
        _wheel(name, version, item, f"{where}.wheels[{i}]", own.get(name, "pypi"))
        for i, item in enumerate(items)
    ]


def _name(value: object, where: str) -> str:
    form = r"[a-z0-9]+(-[a-z0-9]+)*"
    if not isinstance(value, str) or not re.fullmatch(form, value) or canonicalize_name(value) != value:
        raise _wrong(f"{where}.name", f"{value!r} is not a normalised package name")
    return value


def _version(value: object, where: str) -> Version:
    try:
        version = Version(value) if isinstance(value, str) and len(value) < LONGEST else None
    except InvalidVersion:
        version = None
    if version is None or str(version) != value:
        raise _wrong(f"{where}.version", f"{value!r} is not a version in normal form")
    return version


def _wheel(name: str, version: Version, item: object, where: str, source: str) -> Wheel:
    if not isinstance(item, dict):
        raise _wrong(where, "it must be a table")
    url = address(item.get("url"))
    if url is None:
        raise _wrong(f"{where}.url", f"{item.get('url')!r} is not an address that a lock may hold")
    hashes = item.get("hashes")
    sha256 = hashes.get("sha256") if isinstance(hashes, dict) else None
    if not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
        raise _wrong(f"{where}.hashes.sha256", f"no SHA-256 in lower-case hexadecimal for `{name}`")
    size = item.get("size", 0)
    if type(size) is not int or not 0 <= size < _MOST_BYTES:
        raise _wrong(f"{where}.size", "a number of bytes belongs there")
    return Wheel(
        name=name,
        version=version,
        filename=_filename(item.get("name"), url, name, version, where),
        url=url,
        size=size,
        sha256=sha256,
        uploaded=_uploaded(item.get("upload-time"), where),
        source=source,
    )


def address(value: object) -> str | None:
    """Give an address that a lock may hold, None for anything else."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return None
    return value if ADDRESS.fullmatch(value) else None


def _filename(value: object, url: str, name: str, version: Version, where: str) -> str:
    """Take the file's name, which must say the same name and version as the package it belongs to."""
    filename = value or unquote(urlsplit(url).path.rpartition("/")[2])
    try:
        if not isinstance(filename, str) or not FILENAME.fullmatch(filename):
            raise InvalidWheelFilename(f"{filename!r}")
        named = parse_wheel_filename(filename)[:2]
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise _wrong(f"{where}.name", f"not the name of a wheel: {error}") from None
    if named != (name, version):
        raise _wrong(f"{where}.name", f"`{filename}` is not a wheel of {name} {version}")
    return filename


def _uploaded(value: object, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise _wrong(f"{where}.upload-time", "a time belongs there")
    try:
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (OverflowError, ValueError) as error:
        raise _wrong(f"{where}.upload-time", str(error)) from None


def _tags(python: Python, machine: str, glibc: Glibc) -> Iterator[object]:
    """Give the tags that the target takes, best first."""
    version = python.numbers
    minor = glibc.numbers[1]
    platforms: list[str] = []
    for below in range(minor, 4, -1):
        platforms.append(f"manylinux_2_{below}_{machine}")
        legacy = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}.get(below)
        if legacy:
            platforms.append(f"{legacy}_{machine}")
    platforms.append(f"linux_{machine}")
    yield from cpython_tags(version, platforms=platforms)
    yield from compatible_tags(version, interpreter=python.tag, platforms=platforms)


def _best(wheels: Iterable[Wheel], order: Mapping[str, int]) -> Wheel | None:
    """Give the wheel with the best tag; of files of one tag the newest build (a wheel's build number)."""
    ranked = []
    for wheel in wheels:
        _, _, build, tags = parse_wheel_filename(wheel.filename)
        rank = min((order[str(tag)] for tag in tags if str(tag) in order), default=None)
        if rank is not None:
            ranked.append((rank, [-number for number in build[:1] if isinstance(number, int)], wheel))
    return min(ranked, key=lambda one: one[:2])[2] if ranked else None
