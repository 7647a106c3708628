"""BuildContexts -> Images: one bake file, and one run of it in which shared stages are built once."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imagebuilder.build import Image, Target, accepted, candidate, known_image
from imagebuilder.build.folder import fill
from imagebuilder.buildx import Bake, Event, Listener, Step
from imagebuilder.buildx import bake as run_buildx
from imagebuilder.errors import BuildError, UsageError
from imagebuilder.render import COMPRESSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagebuilder.engine import Engine

BAKE_FILE = "docker-bake.json"


def write_bake(targets: Sequence[Target], folder: Path) -> None:
    """Write a folder with the contexts and a bake file that works without imgbuild, whole or not at all.

    It holds nothing of this network: who bakes by hand gives secrets with `--set`. Raises UsageError where
    the folder cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            staged = Path(beside, "bake")
            lay_out(targets, staged)
            staged.rename(folder)
    except OSError as error:
        raise UsageError(f"cannot write `{folder}`", why=error.strerror) from error


def lay_out(targets: Sequence[Target], folder: Path) -> Path:
    """Fill a folder with the contexts and a bake file beside them, and give that file."""
    for target in targets:
        fill(target.context, folder / target.name, target.base_tar)
    document = {
        "group": {"default": {"targets": [target.name for target in targets]}},
        "target": {target.name: _described(target) for target in targets},
    }
    path = folder / BAKE_FILE
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def _described(target: Target) -> dict[str, Any]:
    context = target.context
    return {
        "context": target.name,
        "args": {"SOURCE_DATE_EPOCH": str(context.created)},
        "platforms": [f"linux/{context.lock.stack.arch}"],
        "attest": ["type=provenance,disabled=true", "type=sbom,disabled=true"],
        "output": [f"type=image,name={target.reference},{COMPRESSION}"],
    }


def _override(targets: Sequence[Target]) -> dict[str, Any]:
    """Say what only this run knows: the network, and the names of images that are not tested yet."""
    return {
        "target": {
            target.name: {
                "args": dict(target.network.arguments),
                "contexts": dict(target.network.contexts),
                "secret": [f"id={name},src={path}" for name, path in target.network.secrets.items()],
                "output": [f"type=image,name={candidate(target.context)},{COMPRESSION}"],
            }
            for target in targets
        }
    }


def bake(
    targets: Sequence[Target],
    engine: Engine,
    *,
    listener: Listener,
    builder: str | None = None,
    no_cache: bool = False,
) -> dict[str, Image | BuildError]:
    """Build all targets and read them back; give each one's image or why there is none, by target name.

    A target that fails ends a run of buildx, so the others go on in a next one, from the cache. Images
    that are there already are not built. Raises OutsideError where the engine does not answer.
    """
    known = {} if no_cache else {one.name: known_image(one.context, engine) for one in targets}
    done: dict[str, Image | BuildError] = {name: image for name, image in known.items() if image}
    left = {target.name: target for target in targets if target.name not in done}
    if not left:
        return done
    beside = next((one.base_tar.parent for one in left.values() if one.base_tar), None)
    with tempfile.TemporaryDirectory(prefix="bake-", dir=beside) as place:
        folder = Path(place)
        override = folder / "override.json"
        override.touch(mode=0o600)
        override.write_text(json.dumps(_override(list(left.values()))))
        files = (lay_out(list(left.values()), folder), override)
        while left:
            watch = _Watch(tuple(left), listener)
            run = Bake(folder=folder, files=files, targets=tuple(left), builder=builder, no_cache=no_cache)
            try:
                metadata = run_buildx(run, watch)
            except BuildError as error:
                for name in (watch.failed,) if watch.failed else tuple(left):
                    done[name] = error
                    del left[name]
                no_cache = False
                continue
            done |= {name: _read_back(left[name], engine, metadata) for name in left}
            left = {}
    return done


def _read_back(target: Target, engine: Engine, metadata: Mapping[str, Any]) -> Image | BuildError:
    try:
        return accepted(target.context, engine, metadata.get(target.name) or {})
    except BuildError as error:
        return error


class _Watch:
    """Passes events on, and remembers in which target a step failed first."""

    def __init__(self, names: tuple[str, ...], listener: Listener) -> None:
        self._names = names
        self._listener = listener
        self.failed = names[0] if len(names) == 1 else None

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, Step) and event.state == "failed" and "canceled" not in (event.error or ""):
            self.failed = self.failed or target_of(event.name, self._names)
        self._listener(event)


def target_of(step: str, names: Sequence[str]) -> str | None:
    """Give the target that a step of a bake is of, by the name that buildx puts before the stage's."""
    head = step.removeprefix("[").replace("]", " ").partition(" ")[0]
    return head if step.startswith("[") and head in names else None
