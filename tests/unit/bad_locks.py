"""A sound lock and a sound stack.json, and every way to spoil one value of them."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from locks import make_base, make_deb, make_lock, make_wheel

from imagebuilder.lock.files import IMAGE, PYLOCK, write_lock
from imagebuilder.lock.pylock import write_pylock
from imagebuilder.matrix.words import Glibc
from imagebuilder.resolve.stack import Fallback, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagebuilder.lock import Lock

GLIBC = Glibc.parse("2.36")
MARK = "pwned"
PAYLOADS = (
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    f"a\nRUN touch {MARK}",
    f"a\r\nRUN touch {MARK}",
    f'"; touch {MARK}; "',
    f"'; touch {MARK}; '",
    f"a \\\nRUN touch {MARK}",
    f"a && touch {MARK} #",
    f"../../{MARK}",
    f"--{MARK}=/",
    f"{{{{ {MARK} }}}}",
    f"${{{MARK}}}",
    f"a\u2028{MARK}",
    f"a\0{MARK}",
    f"<<EOF {MARK}",
    f"\x1b]0;{MARK}\x07",
)
WRONG: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    10**400,
    "",
    " ",
    "\ud800",
    "x" * 5000,
    [],
    [[]],
    {},
    {"": ""},
)


def on_a_registry(**changes: Any) -> Lock:
    """Give a lock with every kind of value in it, on a base that needs no bootstrap to be rendered."""
    base = make_base(
        origin="registry",
        image="docker.io/library/debian:bookworm-slim",
        packages=(make_deb("dash", "0.5.12-2"),),
        environment={"PATH": "/usr/bin"},
        note="found in the registry",
    )
    lock = make_lock(
        base=base,
        user_wheels=(make_wheel("timm", "1.0", uploaded="2026-01-02T03:04:05+00:00"),),
        requirements=("timm>=1",),
        sources={"pytorch": "https://example.org/whl/cu121"},
        notes=("worth knowing",),
        **changes,
    )
    ours = tuple(
        replace(wheel, source="pytorch") if wheel.name == "torch" else wheel
        for wheel in sorted(lock.wheels, key=lambda one: one.name)
    )
    stack = replace(
        lock.stack,
        source="pytorch",
        constraints={"numpy": "<2", "jax": "[cuda]>=0.4"},
        fallbacks=(
            Fallback(stack="pytorch-2.3.1", driver_min=lock.stack.driver_min, compute_capabilities=()),
        ),
        reasons=(Reason(fact="cuda", value="12.1", because="asked for", source="B"),),
        notes=("a note",),
    )
    pylock = write_pylock((*lock.wheels, *lock.user_wheels), stack.python)
    return replace(lock, stack=stack, wheels=ours, pylock=pylock)


def on_disk(folder: Path) -> tuple[dict[str, Any], str]:
    """Write the lock; give the document of image.json and the text of pylock.toml."""
    write_lock(on_a_registry(), GLIBC, folder)
    return json.loads((folder / IMAGE).read_text()), (folder / PYLOCK).read_text()


def put(folder: Path, document: Any, pylock: str | None = None) -> None:
    """Write the files of a lock as they are given; the digest of a changed pylock.toml is made to fit."""
    if pylock is not None:
        (folder / PYLOCK).write_text(pylock, encoding="utf-8", errors="surrogatepass")
        document = {**document, "pylock_sha256": sha256((folder / PYLOCK).read_bytes()).hexdigest()}
    (folder / IMAGE).write_text(json.dumps(document))


def places(document: Any, where: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the path of every value in a document."""
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        yield (*where, key)
        yield from places(value, (*where, key))


def at(document: Any, where: tuple[str | int, ...]) -> Any:
    """Give the value at a path."""
    for key in where:
        document = document[key]
    return document


def spoiled(document: Any, where: tuple[str | int, ...], value: Any) -> Any:
    """Give the document with another value at a path."""
    made = deepcopy(document)
    at(made, where[:-1])[where[-1]] = value
    return made


def without(document: Any, where: tuple[str | int, ...]) -> Any:
    """Give the document without the value at a path."""
    made = deepcopy(document)
    del at(made, where[:-1])[where[-1]]
    return made


def renamed(document: Any, where: tuple[str | int, ...], name: str) -> Any:
    """Give the document with another key at a path."""
    made = deepcopy(document)
    holder = at(made, where[:-1])
    holder[name] = holder.pop(where[-1])
    return made
