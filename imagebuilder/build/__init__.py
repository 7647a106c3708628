"""BuildContext -> Image: one build on a real engine, read back before anything is tagged."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imagebuilder.build.folder import refuse_taken as refuse_taken
from imagebuilder.build.folder import temporary_context
from imagebuilder.build.folder import write_context as write_context
from imagebuilder.buildx import Invocation, Listener
from imagebuilder.buildx import build as run_buildx
from imagebuilder.engine import Engine, Run
from imagebuilder.errors import BuildError, UsageError
from imagebuilder.render import COMPRESSION, LABEL, BuildContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagebuilder.network import Network

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

    @property
    def origin(self) -> str:
        """Where it comes from, in a few words."""
        return "there already, nothing changed" if self.reused else "built and read back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a build starts from: the context, the tar of a bootstrapped base, how the build reaches out.

    `reference` is the name that the image gets once its checks passed.
    """

    reference: str
    context: BuildContext
    base_tar: Path | None
    network: Network

    @property
    def name(self) -> str:
        """Its name in a bake file, which takes no dots, slashes and colons there."""
        return re.sub(r"[^A-Za-z0-9_-]", "_", self.reference)


def build(
    target: Target, engine: Engine, *, listener: Listener, builder: str | None = None, no_cache: bool = False
) -> Image:
    """Build a context and read the result back; the image has no tag of the stack yet.

    Raises BuildError where the build fails or the image does not hold what the lock says, OutsideError
    where the engine does not answer.
    """
    context = target.context
    known = None if no_cache else known_image(context, engine)
    if known is not None:
        return known
    output = f"type=image,name={candidate(context)},{COMPRESSION}"
    return accepted(context, engine, _run(target, output, listener, builder, no_cache))


def candidate(context: BuildContext) -> str:
    """Give the name that an image has until its checks passed, a function of all that decides it."""
    return f"imgbuild-candidate:{context.key.removeprefix('sha256:')[:16]}"


def known_image(context: BuildContext, engine: Engine) -> Image | None:
    """Give the image of this build key that the engine has already, if any.

    An image that somebody made from it inherits the label, but not the time that the lock decides.
    """
    for known in engine.images_labelled(f"{LABEL}.build-key", context.key):
        if known.tags and known.created == context.created:
            return Image(
                identifier=context.lock.stack.identifier,
                digest=known.digest,
                reference=known.tags[0],
                size=known.size,
                tags=known.tags,
                reused=True,
            )
    return None


def accepted(context: BuildContext, engine: Engine, metadata: Mapping[str, Any]) -> Image:
    """Read back what buildx says it built; raises BuildError, and removes it, where it is not the lock's."""
    identifier, reference = context.lock.stack.identifier, candidate(context)
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


def export_oci(target: Target, path: Path, *, listener: Listener, builder: str | None = None) -> str:
    """Write the image of a context as an OCI archive, whole or not at all, and give its manifest digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as beside:
        archive = Path(beside, "image.tar")
        metadata = _run(target, f"type=oci,dest={archive},{COMPRESSION}", listener, builder, False)
        archive.replace(path)
    return str(metadata.get("containerimage.digest", ""))


def _run(
    target: Target, output: str, listener: Listener, builder: str | None, no_cache: bool
) -> dict[str, Any]:
    context, network = target.context, target.network
    with temporary_context(context, target.base_tar) as folder:
        invocation = Invocation(
            context=folder,
            output=output,
            arguments={"SOURCE_DATE_EPOCH": str(context.created), **network.arguments},
            secrets=network.secrets,
            contexts=network.contexts,
            platform=f"linux/{context.lock.stack.arch}",
            builder=builder,
            no_cache=no_cache,
        )
        return run_buildx(invocation, listener)


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
    wanted = {str(wheel.name): str(wheel.version) for wheel in lock.all_wheels}
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
