"""What a wheel itself says of how it was built, read in parts."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from imagebuilder.errors import OutsideError
from imagebuilder.remote.wheel import opened
from imagebuilder.update.recipes import SYMBOLS, TARGETS

if TYPE_CHECKING:
    from imagebuilder.remote.client import Client
    from imagebuilder.remote.project import WheelFile
    from imagebuilder.remote.wheel import RemoteWheel
    from imagebuilder.update.recipes import Recipe

# The list of targets may lie across two pieces of a library.
_OVERLAP = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Facts of one wheel; what it does not say is None or empty. Without `cuda` it is CPU-only."""

    cuda: str | None = None
    commit: str | None = None
    local_version: str | None = None
    targets: tuple[str, ...] = ()
    glibc: str | None = None
    glibcxx: str | None = None
    bundled: tuple[str, ...] = ()


def inside(client: Client, recipe: Recipe, file: WheelFile) -> Inside:
    """Read one wheel, or what was read of it before; raises OutsideError."""
    asked = f"inside {file.url} by {recipe!r}"
    facts: dict[str, Any] = client.remembered(asked, lambda: asdict(_read(client, recipe, file)))
    lists = {name: tuple(facts[name]) for name in ("targets", "bundled")}
    return Inside(**{**facts, **lists})


def _read(client: Client, recipe: Recipe, file: WheelFile) -> Inside:
    with opened(client, file) as wheel:
        stated = wheel.read(recipe.stated) if recipe.stated in wheel.names else b""
        text = stated.decode("utf-8", "replace")
        found = {name: re.search(form, text, re.MULTILINE) for name, form in recipe.facts.items()}
        facts = {name: match[1] for name, match in found.items() if match}
        if "cuda" not in facts:
            raise OutsideError(
                f"`{file.name}` does not say which CUDA it was built for",
                why=f"no `cuda` in `{recipe.stated}` of that wheel, where {client.index.shown} serves it",
                hint="imgbuild matrix update --release another one, and add this one by hand",
            )
        if facts["cuda"] == "None":
            return Inside()
        facts["cuda"] = facts["cuda"].strip("'")
        symbols = _symbols(wheel, recipe)
        return Inside(
            **facts,
            targets=_targets(wheel, recipe.targets_in),
            glibc=_highest(symbols, "GLIBC"),
            glibcxx=_highest(symbols, "GLIBCXX"),
            bundled=tuple(
                sorted({match[1] for name in wheel.names if (match := re.fullmatch(recipe.bundled, name))})
            ),
        )


def _targets(wheel: RemoteWheel, library: str) -> tuple[str, ...]:
    held = b""
    for piece in wheel.pieces(library) if library in wheel.names else ():
        held = held[-_OVERLAP:] + piece
        if match := TARGETS.search(held):
            return tuple(match[0].decode().split())
    return ()


def _symbols(wheel: RemoteWheel, recipe: Recipe) -> set[tuple[bytes, bytes]]:
    libraries = [name for name in recipe.measured if name in wheel.names]
    return {symbol for name in libraries for symbol in SYMBOLS.findall(wheel.read(name))}


def _highest(symbols: set[tuple[bytes, bytes]], library: str) -> str | None:
    versions = [version.decode() for name, version in symbols if name.decode() == library]
    return max(versions, key=Version, default=None)
