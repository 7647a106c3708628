"""A build context as a folder: laid out whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.render import BuildContext

# What a context has at its top; a folder with anything else is somebody's own and is never replaced.
HELD = frozenset(
    {".dockerignore", "Dockerfile", "base.tar", "debs.txt", "metadata", "scripts", "uv.txt", "wheels"}
)


def write_context(context: BuildContext, folder: Path, base_tar: Path | None) -> None:
    """Write a build context as a folder that appears whole or not at all.

    Raises UsageError where the place is taken by something that is not a context, or cannot be written.
    """
    refuse_taken(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            staged = Path(beside, "context")
            fill(context, staged, base_tar)
            if folder.exists():
                folder.rename(Path(beside, "old"))
            staged.rename(folder)
    except OSError as error:
        raise UsageError(f"cannot write the build context `{folder}`", why=error.strerror) from error


def refuse_taken(folder: Path) -> None:
    """See that a context may be written in this place; raises UsageError where something else is there."""
    try:
        held = {path.name for path in _entries(folder)} if folder.exists() else set()
        if held and ("Dockerfile" not in held or held - HELD):
            foreign = ", ".join(f"`{name}`" for name in sorted(held - HELD)[:3])
            raise UsageError(
                f"`{folder}` is there already and is not a build context",
                why=f"it holds {foreign}, which would be lost" if foreign else "it has no `Dockerfile`",
                hint=f"imgbuild render -o {quote(f'{folder}-context')} ...",
            )
    except OSError as error:
        raise UsageError(f"cannot write the build context `{folder}`", why=error.strerror) from error


def refuse_filled(folder: Path) -> None:
    """See that a folder of many contexts may be written here; raises UsageError where something is there."""
    try:
        taken = folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir())))
    except OSError as error:
        raise UsageError(f"cannot write `{folder}`", why=error.strerror) from error
    if taken:
        raise UsageError(
            f"`{folder}` is there already",
            why="a folder of many contexts replaces nothing",
            hint=f"imgbuild render -o {quote(f'{folder}-new')} ...",
        )


def _entries(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise UsageError(f"`{folder}` is not a folder")
    return folder.iterdir()


def fill(context: BuildContext, folder: Path, base_tar: Path | None) -> None:
    """Write a context into a folder; the tar of a bootstrapped base is a link where that works."""
    for name, content in context.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if name.startswith("scripts/") else 0o644)
    if base_tar is not None:
        try:
            os.link(base_tar, folder / "base.tar")
        except OSError:  # another file system
            shutil.copyfile(base_tar, folder / "base.tar")


@contextmanager
def temporary_context(context: BuildContext, base_tar: Path | None) -> Iterator[Path]:
    """Lay the context out beside the base's tar, so that a link does where the file system allows it."""
    parent = base_tar.parent if base_tar is not None else None
    with tempfile.TemporaryDirectory(prefix="context-", dir=parent) as folder:
        fill(context, Path(folder), base_tar)
        yield Path(folder)
