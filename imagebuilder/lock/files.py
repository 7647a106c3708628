"""A lock on disk: a folder `NAME.lock/` with image.json and pylock.toml, whole or not at all."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from imagebuilder.base import Deb, LockedBase
from imagebuilder.errors import UsageError
from imagebuilder.lock import MACHINES, Lock, Wheel
from imagebuilder.lock.document import Node
from imagebuilder.lock.pylock import address as wheel_address
from imagebuilder.lock.pylock import read_wheels, write_pylock
from imagebuilder.matrix.words import Glibc
from imagebuilder.resolve.stack import stack_from_dict, stack_to_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagebuilder.resolve.stack import Stack

SCHEMA = 1
IMAGE, PYLOCK = "image.json", "pylock.toml"
LARGEST = 16 * 2**20
AGAIN = "imgbuild lock --framework NAME writes it anew"
# The names of Debian packages, versions and files, as Debian policy has them.
DEB_FORMS = {
    "name": r"[a-z0-9][a-z0-9+.-]+",
    "version": r"[0-9][A-Za-z0-9.+:~-]*",
    "arch": r"[a-z0-9-]+",
    "filename": r"[a-z0-9][A-Za-z0-9.+%~_-]*\.deb",
    "sha256": r"[0-9a-f]{64}",
}
NAME = r"[a-z][a-z0-9.-]*"
LINE = r".*"
KEYS = (
    "schema", "tool", "stack", "glibc", "base", "pylock_sha256", "extra_wheels", "user_wheels", "own_wheels",
    "installer", "requirements", "sources", "notes",
)  # fmt: skip


def write_lock(lock: Lock, glibc: Glibc, folder: Path) -> None:
    """Write a lock; an older one in its place is replaced in one step. Raises UsageError where it cannot be.

    `glibc` is the one of the base, by which a reader judges whether the wheels fit.
    """
    refuse_taken(folder)
    image = json.dumps(lock_to_dict(lock, glibc), indent=2, ensure_ascii=False) + "\n"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            staged = Path(beside, "lock")
            staged.mkdir(mode=0o755)
            (staged / PYLOCK).write_text(lock.pylock, encoding="utf-8")
            (staged / IMAGE).write_text(image, encoding="utf-8")
            _put(staged, folder, Path(beside, "old"))
    except OSError as error:
        raise UsageError(f"cannot write the lock `{folder}`", why=error.strerror) from None


def refuse_taken(folder: Path) -> None:
    """See that a lock may be written in this place; raises UsageError where something else is there."""
    try:
        held = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
        ours = held == {IMAGE} or held >= {IMAGE, PYLOCK}
        taken = (folder.exists() or folder.is_symlink()) and not ours
        above = next(parent for parent in (folder.parent, *folder.parent.parents) if parent.exists())
    except OSError as error:
        raise UsageError(f"cannot write the lock `{folder}`", why=error.strerror) from None
    if not above.is_dir():
        raise UsageError(f"cannot write the lock `{folder}`", why=f"`{above}` is not a folder")
    if taken:
        raise UsageError(
            f"`{folder}` is there already and is not a lock",
            hint=f"imgbuild lock ... -o {quote(f'{folder}.new')}",
        )


def _put(staged: Path, folder: Path, old: Path) -> None:
    """Put a finished folder in its place; where that fails the old one is there again."""
    replaced = folder.exists()
    if replaced:
        folder.rename(old)
    try:
        staged.rename(folder)
    except BaseException:
        if replaced:
            old.rename(folder)
        raise


def lock_to_dict(lock: Lock, glibc: Glibc) -> dict[str, Any]:
    """Give the document of image.json; the wheels are in pylock.toml, of which it holds the digest."""
    return {
        "schema": lock.schema,
        "tool": lock.tool,
        "stack": stack_to_dict(lock.stack),
        "glibc": str(glibc),
        "base": {**asdict(lock.base), "environment": dict(lock.base.environment)},
        "pylock_sha256": sha256(lock.pylock.encode()).hexdigest(),
        "extra_wheels": sorted(wheel.name for wheel in lock.extra_wheels),
        "user_wheels": sorted(wheel.name for wheel in lock.user_wheels),
        "own_wheels": {wheel.name: wheel.source for wheel in lock.all_wheels if wheel.source != "pypi"},
        "installer": write_pylock((lock.installer,), lock.stack.python),
        "requirements": list(lock.requirements),
        "sources": dict(lock.sources),
        "notes": list(lock.notes),
    }


def read_lock(folder: Path) -> Lock:
    """Read a lock and check every field; raises UsageError naming the file and the path of a wrong value."""
    top = Node(_load(folder / IMAGE), str(folder / IMAGE), AGAIN)
    schema = top.number("schema")
    if schema != SCHEMA:
        why = f"this imgbuild reads schema {SCHEMA}"
        raise top.wrong("schema", f"{why}; a newer one wrote it" if schema > SCHEMA else why)
    top.only(KEYS)
    pylock = _text(folder / PYLOCK)
    if top.text("pylock_sha256", r"[0-9a-f]{64}") != sha256(pylock.encode()).hexdigest():
        raise UsageError(
            f"`{folder / PYLOCK}` is not the file that `{IMAGE}` was written with",
            why="its SHA-256 differs",
            hint=AGAIN,
        )
    stack = stack_from_dict(top.value("stack"), f"{folder / IMAGE}: stack")
    wheels = _wheels(top, stack, pylock)
    extra, user = set(top.names("extra_wheels")), set(top.names("user_wheels"))
    _check_names(top, stack, {wheel.name for wheel in wheels}, extra, user)
    return Lock(
        stack=stack,
        base=_base(top.node("base")),
        wheels=tuple(wheel for wheel in wheels if wheel.name not in extra | user),
        extra_wheels=tuple(wheel for wheel in wheels if wheel.name in extra),
        user_wheels=tuple(wheel for wheel in wheels if wheel.name in user),
        installer=_installer(top, stack),
        requirements=tuple(top.names("requirements")),
        sources=_sources(top),
        notes=tuple(top.names("notes")),
        pylock=pylock,
        tool=top.text("tool", r"[0-9][0-9a-z.+]*"),
    )


def _wheels(top: Node, stack: Stack, pylock: str) -> tuple[Wheel, ...]:
    own = top.table("own_wheels", NAME)
    glibc = Glibc.parse(top.text("glibc", r"2\.\d{1,2}"))
    wheels = _read_wheels(pylock, stack, glibc, own, str(Path(top.path).with_name(PYLOCK)))
    sources = top.node("sources").doc
    for name, source in own.items():
        if source not in sources or name not in {wheel.name for wheel in wheels}:
            raise top.wrong("own_wheels", f"no wheel `{name}`, or `sources` has no index `{source}`")
    return wheels


def _read_wheels(
    text: str, stack: Stack, glibc: Glibc, own: Mapping[str, str], where: str
) -> tuple[Wheel, ...]:
    """Read a pylock.toml of a lock; an error names the place `where` it stands."""
    try:
        return read_wheels(text, stack.python, MACHINES[stack.arch], glibc, own=own)
    except UsageError as error:
        what = error.what.removeprefix(PYLOCK)
        raise UsageError(f"{where}{what}", why=error.why, hint=error.hint) from None


def _check_names(top: Node, stack: Stack, have: set[str], extra: set[str], user: set[str]) -> None:
    """Every package of the stack must be among the stack's wheels, every other name among all, once."""
    for key, missing in (
        ("user_wheels", user - have),
        ("extra_wheels", extra - have),
        ("extra_wheels", extra & user),
        ("extra_wheels", extra & set(stack.packages)),
        ("stack.packages", set(stack.packages) - have),
        ("user_wheels", user & set(stack.packages)),
    ):
        if missing:
            names = ", ".join(sorted(missing))[:200]
            raise top.wrong(key, f"{names}: not among the wheels of {PYLOCK}, or on the wrong side")


def _sources(top: Node) -> Mapping[str, str]:
    sources = top.table("sources", LINE)
    for name, value in sources.items():
        if wheel_address(value) is None or not re.fullmatch(NAME, name):
            raise top.wrong("sources", f"{value[:80]!r} is not an address that a lock may hold")
    return sources


def _load(path: Path) -> object:
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` is not JSON", why=str(error)[:200], hint=AGAIN) from None


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            missing = "there is no such file" if path.parent.is_dir() else "there is no such folder"
            raise UsageError(f"no lock at `{path.parent}`", why=f"`{path.name}`: {missing}", hint=AGAIN)
        if path.stat().st_size > LARGEST:
            raise UsageError(f"`{path}` is larger than {LARGEST} bytes")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read `{path}`", why=error.strerror) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is not UTF-8 text", why=str(error)[:200], hint=AGAIN) from None


def _base(node: Node) -> LockedBase:
    node.only(("name", "origin", "image", "digest", "debs", "packages", "environment", "note"))
    origin = node.text("origin", "registry|bootstrap")
    image = node.maybe("image", r"[a-z0-9][a-z0-9._:/-]*")
    if origin == "registry" and image is None:
        raise node.wrong("image", "a base from a registry has a name there")
    return LockedBase(
        name=node.text("name", NAME),
        origin="registry" if origin == "registry" else "bootstrap",
        image=image,
        digest=node.text("digest", r"sha256:[0-9a-f]{64}"),
        debs=tuple(map(_deb, node.nodes("debs"))),
        packages=tuple(map(_deb, node.nodes("packages"))),
        environment=node.table("environment", LINE),
        note=node.maybe("note", LINE),
    )


def _deb(node: Node) -> Deb:
    node.only((*DEB_FORMS, "size"))
    return Deb(**{key: node.text(key, form) for key, form in DEB_FORMS.items()}, size=node.number("size"))


def _installer(top: Node, stack: Stack) -> Wheel:
    """Read the one wheel of uv, which stands there as a pylock.toml of its own."""
    text = top.value("installer")
    glibc = Glibc.parse(top.text("glibc", r"2\.\d{1,2}"))
    if not isinstance(text, str):
        raise top.wrong("installer", "the text of a pylock.toml belongs there")
    wheels = _read_wheels(text, stack, glibc, {}, f"{top.path}: installer")
    if [wheel.name for wheel in wheels] != ["uv"]:
        raise top.wrong("installer", "it must name one wheel of uv")
    return replace(wheels[0], source="pypi")
