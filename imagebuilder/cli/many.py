"""What `build` does for many images: each is resolved, locked and rendered, then one bake, then the checks.

A failed image does not stop the others. What is built and tested already is taken as it is, so that a
second run goes on where the first one stopped.
"""

from __future__ import annotations

import re
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imagebuilder.build import Image, tag
from imagebuilder.build.bake import bake, write_bake
from imagebuilder.build.folder import refuse_filled
from imagebuilder.cli.output import report_error, say, styled, table, visible
from imagebuilder.cli.pipeline import How, kept_or_made, lock_folder, resolved, target, tell
from imagebuilder.cli.progress import listener
from imagebuilder.engine import Engine
from imagebuilder.errors import ImgbuildError, ManyError, UsageError
from imagebuilder.lock.requirements import read_requirements, requirements_of
from imagebuilder.matrix import load
from imagebuilder.render.templating import load_templates
from imagebuilder.request.file import Wanted, read_requests
from imagebuilder.resolve.spread import spread
from imagebuilder.resources import templates_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagebuilder.build import Target
    from imagebuilder.lock import Lock
    from imagebuilder.matrix import Matrix
    from imagebuilder.render.templating import Templates
    from imagebuilder.request import Request
    from imagebuilder.resolve import Stack
    from imagebuilder.smoke import SmokeReport


@dataclass(slots=True, kw_only=True)
class One:
    """One image of many on its way: how far it got, or the error that ended it.

    `same` is the earlier image that another request asked for already.
    """

    wanted: Wanted
    lock: Lock | None = None
    target: Target | None = None
    same: One | None = None
    image: Image | None = None
    smoke: SmokeReport | None = None
    error: ImgbuildError | None = None

    @property
    def name(self) -> str:
        """What people call it: its reference once it has one, before that what was asked for."""
        request = self.wanted.request
        if self.same is not None:
            return self.same.name
        if self.target is not None:
            return self.target.reference
        cuda = f" for CUDA {request.cuda}" if request.cuda else ""
        return self.wanted.tag or f"{request.framework}{request.spec}{cuda}"

    @property
    def state(self) -> str:
        """One word for the table."""
        if self.error is not None:
            return "failed"
        if self.image is None:
            return "same"
        return "reused" if self.image.reused else "built"


def check(request: Request | None, file: Path | None, lock: Path | None) -> None:
    """See that the requests come from one place; raises UsageError."""
    if lock is not None or (request is None) == (file is None):
        raise UsageError(
            "many images come from `--all` with `--framework`, or from `--requests` alone",
            why="each image has a lock of its own" if lock is not None else None,
            hint="imgbuild build --all --framework all",
        )


def build(request: Request | None, file: Path | None, how: How) -> list[One]:
    """Make an image for each request, and print the table of what became of each.

    The requests are those of a file, or what one request leaves open. Raises what concerns all of them:
    a broken file or matrix, an engine that does not answer.
    """
    facts, ones = _wanted(request, file, how)
    engine = Engine.connect()
    with ExitStack() as stack:
        others: dict[Path, One] = {}
        for one in ones:
            _attempt(one, partial(_prepare, one, others, how, facts, stack))
        ready = _ready(ones)
        _bake(engine, ready, how)
    for name, one in ready.items():
        _attempt(one, partial(_finish, engine, one, how, name))
    say("\n" + table(map(_row, ones), header=("image", "state", "verdict", "digest")))
    return ones


def render(request: Request | None, file: Path | None, how: How, folder: Path) -> list[str]:
    """Write the contexts of all requests and their bake file, whole or not at all; give the targets."""
    facts, ones = _wanted(request, file, how)
    refuse_filled(folder)
    with ExitStack() as stack:
        others: dict[Path, One] = {}
        for one in ones:
            _prepare(one, others, how, facts, stack)
        ready = _ready(ones)
        write_bake([one.target for one in ready.values() if one.target], folder)
    place = visible(shlex.quote(str(folder)))
    say(f"wrote {len(ready)} targets; next: cd {place} && docker buildx bake")
    return list(ready)


def _wanted(
    request: Request | None, file: Path | None, how: How
) -> tuple[tuple[Matrix, Templates], list[One]]:
    matrix, templates = load(how.matrices), load_templates(templates_path(), how.templates)
    wanted = read_requests(file) if file is not None else ()
    if request is not None:
        lines = requirements_of(read_requirements(request.requirements))
        wanted = tuple(map(Wanted, spread(request, matrix, lines)))
    return (matrix, templates), [One(wanted=one) for one in wanted]


def _attempt(one: One, step: Callable[[], None]) -> None:
    """Do one step of one image; its failure is that image's own."""
    try:
        step()
    except ImgbuildError as error:
        _fail(one, error)


def _fail(one: One, error: ImgbuildError) -> None:
    one.error = error
    tell("failed", one.name)
    report_error(error)


def _prepare(
    one: One, others: dict[Path, One], how: How, facts: tuple[Matrix, Templates], stack: ExitStack
) -> None:
    """Resolve, lock and render one image; `others` are those before it, by the folder of their lock."""
    matrix, templates = facts
    request, tag_asked = one.wanted.request, one.wanted.tag
    chosen = resolved(request, matrix)
    folder = lock_folder(chosen, request.requirements)
    if tag_asked is not None:
        folder = Path(re.sub(r"[^A-Za-z0-9._-]", "-", tag_asked) + ".lock")
    first = others.setdefault(folder, one)
    if first is not one:
        _see_that_it_is_the_same(one, first, chosen)
        one.same = first
        return
    one.lock = kept_or_made(chosen, matrix, request.requirements, how.base, folder)
    reference = tag_asked or f"{chosen.framework}:{one.lock.tag}"
    one.target = stack.enter_context(target(one.lock, matrix, templates, how.user, reference))


def _see_that_it_is_the_same(one: One, first: One, stack: Stack) -> None:
    """Two requests may have one answer, but two images not one name; raises UsageError."""
    asked, before = one.wanted, first.wanted
    same_names = (asked.tag, asked.request.requirements) == (before.tag, before.request.requirements)
    if same_names and (first.lock is None or first.lock.stack == stack):
        return
    raise UsageError(
        f"two images would be called `{first.name}`",
        why="they have the same stack and other requirements",
        hint=f'give one of them a name in the file: tag = "team/{stack.framework}:1"',
    )


def _ready(ones: list[One]) -> dict[str, One]:
    """Give what can be built, by its name in the bake."""
    return {one.target.name: one for one in ones if one.target is not None}


def _bake(engine: Engine, ready: dict[str, One], how: How) -> None:
    targets = [one.target for one in ready.values() if one.target is not None]
    if not targets:
        return
    tell("bake", f"{len(targets)} images")
    watch = listener(how.progress, tuple(ready))
    made = bake(targets, engine, listener=watch, builder=how.builder, no_cache=how.no_cache)
    for name, result in made.items():
        if isinstance(result, Image):
            ready[name].image = result
            tell("build", f"{ready[name].name}: {result.digest}, {result.origin}")
        else:
            _fail(ready[name], result)


def _finish(engine: Engine, one: One, how: How, name: str) -> None:
    if one.image is None:
        return
    if how.tests is not None:
        tell("test", one.name)
        one.smoke = how.tests.run(engine, one.image, name)
    one.image = tag(engine, one.image, (one.name,))


def _row(one: One) -> tuple[str, str, str, str]:
    state = styled(one.state, "red") if one.error else one.state
    verdict = one.smoke.verdict if one.smoke else "-"
    return (one.name, state, verdict, one.image.digest if one.image and not one.error else "-")


def document(one: One) -> dict[str, Any]:
    """Give what `--format json` says of one image of many."""
    found: dict[str, Any] = {"image": one.name, "state": one.state}
    if one.image is not None:
        found |= {"digest": one.image.digest, "tags": list(one.image.tags), "size": one.image.size}
    if one.smoke is not None:
        found["verdict"] = one.smoke.verdict
    return found if one.error is None else {**found, **one.error.to_dict()}


def finish(ones: list[One]) -> dict[str, Any]:
    """Give what `--format json` says of all; raises ManyError where one failed."""
    images = [document(one) for one in ones]
    failed = [one.error for one in ones if one.error is not None]
    if failed:
        raise ManyError(len(failed), images, failed[0])
    return {"images": images}
