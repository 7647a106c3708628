"""The stages that several commands run in a row, each told on stderr in one line."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from imagebuilder.cli.output import say, styled, visible
from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagebuilder.build import Target
    from imagebuilder.cli.progress import Mode
    from imagebuilder.cli.reporting import Tests
    from imagebuilder.lock import Lock
    from imagebuilder.matrix import Matrix
    from imagebuilder.render import BuildContext
    from imagebuilder.render.templating import Templates
    from imagebuilder.request import Request
    from imagebuilder.resolve.stack import Stack


LARGEST_STACK = 2**20


@dataclass(frozen=True, slots=True)
class How:
    """How images are made: all options that say nothing of which image."""

    matrices: Sequence[Path]
    templates: Sequence[Path]
    base: str
    user: str
    builder: str | None = None
    no_cache: bool = False
    progress: Mode = "auto"
    tests: Tests | None = None


def tell(stage: str, text: str) -> None:
    """Print what a stage decided."""
    say(f"{styled(stage.ljust(8), 'bold')}{visible(text)}")


def cache_folder() -> Path:
    """Give the folder for bootstrapped bases and test reports."""
    import os

    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "imgbuild"


def read_input(
    request: Request | None, matrices: Sequence[Path], path: Path | None, templates: Sequence[Path]
) -> tuple[Matrix, Templates]:
    """Find what is wrong with the input before an engine or an index is asked; raises as `locked` does."""
    from imagebuilder.lock.files import read_lock
    from imagebuilder.lock.requirements import read_requirements, requirements_of
    from imagebuilder.matrix import load
    from imagebuilder.render.templating import load_templates
    from imagebuilder.resolve import resolve
    from imagebuilder.resources import templates_path

    matrix = load(matrices)
    _check_one(request, path)
    if path is not None:
        read_lock(path)
    elif request is not None:
        resolve(request, matrix, requirements_of(read_requirements(request.requirements)))
    return matrix, load_templates(templates_path(), templates)


def _check_one(request: Request | None, path: Path | None) -> None:
    if path is not None and request is not None:
        raise UsageError(
            "`--lock` and `--framework` exclude each other",
            why="a lock already says what the image is",
            hint=f"imgbuild build --lock {shlex.quote(str(path))}",
        )
    if path is None and request is None:
        raise UsageError("`--framework` is missing", hint="imgbuild build --framework pytorch --cuda 12.1")


def locked(request: Request | None, matrices: Sequence[Path], path: Path | None, base: str) -> Lock:
    """Give the lock of `--lock PATH`, or resolve the request and take or make its lock beside the user."""
    from imagebuilder.lock.files import read_lock
    from imagebuilder.matrix import load

    _check_one(request, path)
    if request is None:
        lock = read_lock(path or Path())
        tell("lock", f"{path}: {lock.stack.identifier}")
        return lock
    matrix = load(matrices)
    stack = resolved(request, matrix)
    folder = lock_folder(stack, request.requirements)
    return kept_or_made(stack, matrix, request.requirements, base, folder)


def lock_folder(stack: Stack, requirements: Sequence[Path]) -> Path:
    """Give the folder beside the user that the lock of a stack lies in."""
    from imagebuilder.lock import user_suffix

    return Path(f"{stack.identifier}{user_suffix(requirements)}.lock")


def kept_or_made(stack: Stack, matrix: Matrix, requirements: Sequence[Path], base: str, folder: Path) -> Lock:
    """Take the lock in a folder when it answers this request, else make it, keeping what still fits."""
    from imagebuilder.lock import lines
    from imagebuilder.lock.files import read_lock
    from imagebuilder.lock.requirements import read_requirements

    before = read_lock(folder) if folder.exists() else None
    if (
        before is not None
        and before.stack == stack
        and before.requirements == lines(read_requirements(requirements))
        and base in ("auto", before.base.origin)
    ):
        tell("lock", f"{folder}, as it was")
        return before
    return make_lock(stack, matrix, requirements, base, folder, before=before)


def make_lock(
    stack: Stack,
    matrix: Matrix,
    requirements: Sequence[Path],
    base: str,
    folder: Path,
    *,
    before: Lock | None,
) -> Lock:
    """Lock a stack and write the lock; the base and the versions of an earlier lock stay where they fit."""
    from imagebuilder.base import PACKAGES, LockedBase, lock_base
    from imagebuilder.lock import lock
    from imagebuilder.lock.files import write_lock
    from imagebuilder.lock.requirements import read_requirements
    from imagebuilder.resolve.extras import debs

    def base_of() -> LockedBase:
        if (
            before is not None
            and (before.stack.os, before.stack.arch) == (stack.os, stack.arch)
            and before.stack.extras == stack.extras
            and base in ("auto", before.base.origin)
        ):
            return before.base
        tell("lock", f"finding the base {stack.os}")
        return lock_base(
            stack.os,
            matrix.bases[stack.os],
            stack.arch,
            (*PACKAGES, *debs(matrix, stack.extras)),
            origin="registry" if base == "registry" else "bootstrap" if base == "bootstrap" else "auto",
            cache=cache_folder(),
        )

    older = before.pylock if before is not None else None
    made = lock(stack, matrix, read_requirements(requirements), base_of, before=older)
    write_lock(made, matrix.bases[stack.os].glibc, folder)
    tell(
        "lock",
        f"{folder}: {len(made.all_wheels)} wheels and {len(made.base.debs)} packages, "
        f"{made.size / 2**30:.2f} GiB; base {made.base.name} {made.base.note or ''}",
    )
    for note in made.notes:
        say(f"        note: {note}")
    return made


def read_stack(path: Path, matrix: Matrix) -> Stack:
    """Read a stack.json and see that the matrix still knows what it names; raises UsageError."""
    import json

    from imagebuilder.resolve.stack import stack_from_dict

    try:
        if path.exists() and not path.is_file():
            raise UsageError(
                f"`{path}` is not a file", hint="imgbuild resolve --framework pytorch -o stack.json"
            )
        with path.open("rb") as file:
            text = file.read(LARGEST_STACK + 1)
        if len(text) > LARGEST_STACK:
            raise UsageError(f"`{path}` is larger than {LARGEST_STACK} bytes")
        stack = stack_from_dict(json.loads(text), str(path))
    except OSError as error:
        raise UsageError(f"cannot read `{path}`", why=error.strerror) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"`{path}` is not a stack",
            why=str(error),
            hint="imgbuild resolve --framework pytorch -o stack.json",
        ) from error
    known = matrix.frameworks.get(stack.framework)
    if known is None or str(stack.version) not in known.releases or stack.os not in matrix.bases:
        raise UsageError(f"the matrix does not know {stack.identifier}", hint="imgbuild matrix show")
    return stack


def resolved(request: Request, matrix: Matrix) -> Stack:
    """Resolve a request and say what was chosen."""
    from imagebuilder.lock.requirements import read_requirements, requirements_of
    from imagebuilder.resolve import resolve

    stack = resolve(request, matrix, requirements_of(read_requirements(request.requirements)))
    tell(
        "resolve",
        f"{stack.identifier}: driver {stack.driver_min} or newer, compute capabilities "
        f"{', '.join(map(str, stack.compute_capabilities)) or 'unknown'}",
    )
    for note in stack.notes:
        say(f"        note: {note}")
    return stack


def base_tar(lock: Lock, matrix: Matrix) -> Path | None:
    """Give the tar of a bootstrapped base, from the cache or made again; None for a base from a registry."""
    from imagebuilder.base import ensure_base

    return ensure_base(lock.base, matrix.bases[lock.base.name], lock.stack.arch, cache_folder())


def rendered(lock: Lock, matrix: Matrix, templates: Templates, user: str) -> BuildContext:
    """Render a lock with the packaged templates and the user's, and lint what came out."""
    from imagebuilder.cli.reporting import packaged_checks
    from imagebuilder.lint import check, lint_facts
    from imagebuilder.render import render

    if lock.base.name not in matrix.bases:
        raise UsageError(
            f"the matrix has no base `{lock.base.name}`",
            hint="give `--matrix FILE` as it was given when the lock was made",
        )
    context = render(
        lock,
        templates,
        packaged_checks(),
        user="root" if user == "root" else "trainer",
    )
    facts = lint_facts(lock, root=user == "root", gone=matrix.gone, library_paths=library_paths(matrix))
    for warning in check(context.dockerfile, facts):
        say(f"        warning: {warning}")
    tell("render", f"{len(context.layers)} layers of wheels")
    return context


@contextmanager
def target(lock: Lock, matrix: Matrix, templates: Templates, user: str, reference: str) -> Iterator[Target]:
    """Render a lock and give all that its build needs; secrets are gone afterwards."""
    from imagebuilder.base.apt import mirror_sources
    from imagebuilder.build import Target
    from imagebuilder.index import default_index
    from imagebuilder.network import network
    from imagebuilder.registry import build_contexts

    context = rendered(lock, matrix, templates, user)
    tar = base_tar(lock, matrix)
    base = lock.base
    contexts = build_contexts(base.image, base.digest) if base.image else {}
    apt = mirror_sources(matrix.bases[base.name])
    with network(index=default_index().address, apt=apt, contexts=contexts) as reach:
        yield Target(reference=reference, context=context, base_tar=tar, network=reach)


def library_paths(matrix: Matrix) -> dict[str, str]:
    """Give the toolkit folder that each nvidia/cuda release puts on LD_LIBRARY_PATH, by its version."""
    return {
        version: release.images.library_path
        for toolkit in matrix.toolkits.values()
        for version, release in toolkit.releases.items()
        if release.images is not None and release.images.library_path is not None
    }
