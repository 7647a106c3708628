"""BuildContext -> Image: one build on a real engine, read back before anything is tagged."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from imagebuilder.buildx import Invocation, Listener
from imagebuilder.buildx import build as run_buildx
from imagebuilder.engine import Engine, Run
from imagebuilder.errors import BuildError, UsageError
from imagebuilder.render import COMPRESSION, LABEL, BuildContext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagebuilder.network import Network

# What a context has at its top; a folder with anything else is somebody's own and is never replaced.
HELD = frozenset(
    {".dockerignore", "Dockerfile", "base.tar", "debs.txt", "metadata", "scripts", "uv.txt", "wheels"}
)
READ_BACK_TIMEOUT = 120
READ_BACK = (
    "import importlib.metadata as m, json, sys;"
    "print('IMGBUILD' + json.dumps({'python': '%d.%d' % sys.version_info[:2],"
    " 'packages': {d.metadata['Name']: d.version for d in m.distributions()}}))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image in the engine: `digest` names its manifest, `size` is its bytes as stored.

    `reference` is a name that this build alone uses until the image is tagged; `reused` tells that an
    image of the same build key was there already.
    """

    identifier: str
    digest: str
    reference: str
    size: int
    tags: tuple[str, ...]
    reused: bool


def write_context(context: BuildContext, folder: Path, base_tar: Path | None) -> None:
    """Write a build context as a folder that appears whole or not at all.

    Raises UsageError where the place is taken by something that is not a context, or cannot be written.
    """
    refuse_taken(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            staged = Path(beside, "context")
            _fill(context, staged, base_tar)
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


def _entries(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise UsageError(f"`{folder}` is not a folder")
    return folder.iterdir()


def _fill(context: BuildContext, folder: Path, base_tar: Path | None) -> None:
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
def _temporary_context(context: BuildContext, base_tar: Path | None) -> Iterator[Path]:
    """Lay the context out beside the base's tar, so that a link does where the file system allows it."""
    parent = base_tar.parent if base_tar is not None else None
    with tempfile.TemporaryDirectory(prefix="context-", dir=parent) as folder:
        _fill(context, Path(folder), base_tar)
        yield Path(folder)


def build(
    context: BuildContext,
    engine: Engine,
    *,
    base_tar: Path | None,
    network: Network,
    listener: Listener,
    builder: str | None = None,
    no_cache: bool = False,
) -> Image:
    """Build a context and read the result back; the image has no tag of the stack yet.

    Raises BuildError where the build fails or the image does not hold what the lock says, OutsideError
    where the engine does not answer.
    """
    identifier = context.lock.stack.identifier
    reference = f"imgbuild-candidate:{context.key.removeprefix('sha256:')[:16]}"
    if not no_cache:
        for known in engine.images_labelled(f"{LABEL}.build-key", context.key):
            if known.tags:
                return Image(
                    identifier=identifier,
                    digest=known.digest,
                    reference=known.tags[0],
                    size=known.size,
                    tags=known.tags,
                    reused=True,
                )
    with _temporary_context(context, base_tar) as folder:
        metadata = run_buildx(
            _invocation(
                context, folder, f"type=image,name={reference},{COMPRESSION}", network, builder, no_cache
            ),
            listener,
        )
    digest = str(metadata.get("containerimage.digest", ""))
    built = engine.image(digest) if digest else None
    if built is None:
        engine.remove(reference)
        raise BuildError(
            "the build ended well, but its image is not in the engine",
            why=f"buildx named the digest `{digest}`",
            hint="use a builder that exports to this engine: `docker buildx ls`",
        )
    image = Image(
        identifier=identifier, digest=digest, reference=reference, size=built.size, tags=(), reused=False
    )
    try:
        read_back(context, engine, image)
    except BaseException:
        engine.remove(reference)
        raise
    return image


def check_archive(path: Path) -> None:
    """See before a long build that an archive can be written; raises UsageError."""
    place = next((one for one in path.absolute().parents if one.exists()), Path("/"))
    if path.is_dir() or not place.is_dir() or not os.access(place, os.W_OK):
        why = "it is a folder" if path.is_dir() else f"`{place}` is no folder that can be written"
        raise UsageError(f"cannot write the archive `{path}`", why=why, hint="--output oci:image.tar")


def export_oci(
    context: BuildContext,
    path: Path,
    *,
    base_tar: Path | None,
    network: Network,
    listener: Listener,
    builder: str | None = None,
) -> str:
    """Write the image of a context as an OCI archive, whole or not at all, and give its manifest digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as beside:
        archive = Path(beside, "image.tar")
        with _temporary_context(context, base_tar) as folder:
            output = f"type=oci,dest={archive},{COMPRESSION}"
            metadata = run_buildx(_invocation(context, folder, output, network, builder, False), listener)
        archive.replace(path)
    return str(metadata.get("containerimage.digest", ""))


def _invocation(
    context: BuildContext,
    folder: Path,
    output: str,
    network: Network,
    builder: str | None,
    no_cache: bool,
) -> Invocation:
    return Invocation(
        context=folder,
        output=output,
        arguments={"SOURCE_DATE_EPOCH": str(context.created), **network.arguments},
        secrets=network.secrets,
        contexts=network.contexts,
        platform=f"linux/{context.lock.stack.arch}",
        builder=builder,
        no_cache=no_cache,
    )


def read_back(context: BuildContext, engine: Engine, image: Image) -> None:
    """Ask the built image which distributions it holds; raises BuildError unless they equal the lock."""
    outcome = engine.run(
        Run(
            image=image.digest,
            command=["-c", READ_BACK],
            entrypoint=["/opt/venv/bin/python", "-I"],
            timeout=READ_BACK_TIMEOUT,
        )
    )
    answer = next((line for line in outcome.logs.splitlines() if line.startswith("IMGBUILD")), None)
    if outcome.exit_code != 0 or answer is None:
        raise BuildError(
            "the built image cannot run its Python", why=outcome.logs.strip()[-400:] or "no answer"
        )
    found = json.loads(answer.removeprefix("IMGBUILD"))
    differences = _differences(context, found)
    if differences:
        raise BuildError("the built image does not hold what the lock says", why="\n".join(differences))


def _differences(context: BuildContext, found: Mapping[str, Any]) -> list[str]:
    from packaging.utils import canonicalize_name

    lock = context.lock
    wanted = {str(wheel.name): str(wheel.version) for wheel in (*lock.wheels, *lock.user_wheels)}
    actual = {str(canonicalize_name(name)): str(version) for name, version in found["packages"].items()}
    lines = [
        f"{name}: locked {wanted.get(name, 'not at all')}, in the image {actual.get(name, 'not at all')}"
        for name in sorted(wanted.keys() | actual.keys())
        if wanted.get(name) != actual.get(name)
    ]
    if found["python"] != str(lock.stack.python):
        lines.append(f"Python: locked {lock.stack.python}, in the image {found['python']}")
    return lines


def tag(engine: Engine, image: Image, references: tuple[str, ...]) -> Image:
    """Give a checked image its tags, drop the name it had while it was a candidate, and say what it has."""
    for reference in references:
        engine.tag(image.digest, reference)
    if image.reference not in references and image.reference.startswith("imgbuild-candidate:"):
        engine.remove(image.reference)
    return Image(
        identifier=image.identifier,
        digest=image.digest,
        reference=references[0],
        size=image.size,
        tags=references,
        reused=image.reused,
    )
