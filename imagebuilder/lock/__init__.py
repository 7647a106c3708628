"""Stack -> Lock: every byte that goes into an image, named by hash."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from imagebuilder import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from packaging.version import Version

    from imagebuilder.base import LockedBase
    from imagebuilder.lock.clash import Known
    from imagebuilder.lock.requirements import UserRequirement
    from imagebuilder.matrix.facts import Matrix
    from imagebuilder.resolve.stack import Stack
    from imagebuilder.solver import Question, Solution

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One locked wheel; `url` is where the lock saw it, `size` in bytes, `uploaded` in RFC 3339.

    `source` names the index that serves it: `pypi`, or the framework's own.
    """

    name: str
    version: Version
    filename: str
    url: str
    size: int
    sha256: str
    uploaded: str | None = None
    source: str = "pypi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Everything that `build` needs.

    `wheels` belong to the stack, `extra_wheels` came with `--with`, `user_wheels` with `-r` files,
    `installer` is the uv that installs them during the build (for the target platform, not in the image).
    `sources` maps the name of each index that is not the default one to its address. `requirements` are
    the lines of the user's files as they were read, so that a stale lock is noticed. `pylock` is the PEP 751
    text that the wheels are from. `notes` are worth knowing of the wheels that were chosen.
    """

    schema: int = 1
    stack: Stack
    base: LockedBase
    wheels: tuple[Wheel, ...]
    extra_wheels: tuple[Wheel, ...] = ()
    user_wheels: tuple[Wheel, ...] = ()
    installer: Wheel
    requirements: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pylock: str = ""
    tool: str

    @property
    def tag(self) -> str:
        """The default tag: the stack's, marked where the image holds requirements of the user too."""
        return self.stack.tag + user_suffix(self.requirements)

    @property
    def all_wheels(self) -> tuple[Wheel, ...]:
        """Every wheel of the image."""
        return (*self.wheels, *self.extra_wheels, *self.user_wheels)

    @property
    def size(self) -> int:
        """The bytes that a build downloads: wheels and packages."""
        wheels = sum(wheel.size for wheel in self.all_wheels)
        return wheels + sum(deb.size for deb in self.base.debs)


def user_suffix(requirements: Sequence[object]) -> str:
    """Give what tells an image with the user's requirements from the plain stack of the same name."""
    return "-user" if requirements else ""


def lock(
    stack: Stack,
    matrix: Matrix,
    requirements: tuple[UserRequirement, ...],
    make_base: Callable[[], LockedBase],
    *,
    before: str | None = None,
) -> Lock:
    """Lock a stack together with the user's requirements.

    `make_base` is called last, so that a clash costs no base. `before` is the pylock.toml of an earlier
    lock: what still fits keeps its version. Raises UnmetError for a clash, OutsideError for the index.
    """
    from imagebuilder.lock.blame import solve_together
    from imagebuilder.lock.clash import applying, known_of, refuse_known_clashes
    from imagebuilder.lock.mixture import check_hashes, check_pins, refuse_mixtures, remarks
    from imagebuilder.lock.pylock import write_pylock
    from imagebuilder.lock.requirements import of_extras
    from imagebuilder.resolve.extras import requirements as required

    known = known_of(stack, matrix)
    question = _question(known, before)
    extras = of_extras({name: required(matrix, stack.framework, name) for name in stack.extras})
    asked = (*extras, *applying(requirements, known, question.machine))
    refuse_known_clashes(known, asked)
    wheels = _wheels(question, solve_together(known, question, asked))
    check_pins(known, wheels, (question.own or question.default).shown)
    refuse_mixtures(known, wheels, asked)
    check_hashes(asked, wheels)
    ours = _closure(question, wheels, stack.packages) if asked else {wheel.name for wheel in wheels}
    with_extras = _closure(question, wheels, (*stack.packages, *(e.name for e in extras))) if extras else ours
    return Lock(
        stack=stack,
        wheels=tuple(wheel for wheel in wheels if wheel.name in ours),
        extra_wheels=tuple(wheel for wheel in wheels if wheel.name in with_extras - ours),
        user_wheels=tuple(wheel for wheel in wheels if wheel.name not in with_extras | ours),
        installer=_installer(question),
        requirements=lines(requirements),
        sources={question.own.name: question.own.shown} if question.own else {},
        notes=tuple(remarks(known, wheels)),
        pylock=write_pylock(wheels, stack.python),
        tool=__version__,
        base=make_base(),
    )


def lines(requirements: tuple[UserRequirement, ...]) -> tuple[str, ...]:
    """Give requirements as the lines that a lock keeps of them."""
    return tuple(
        " ".join([*(["-c"] if one.constraint else []), one.text, *(f"--hash=sha256:{h}" for h in one.hashes)])
        for one in requirements
    )


def _question(known: Known, before: str | None) -> Question:
    """Ask for the stack alone: its pins as requirements, what it knows of others as constraints."""
    from imagebuilder.index import default_index, own_index
    from imagebuilder.solver import Question

    stack, matrix = known.stack, known.matrix
    own = None
    if stack.source != "pypi":
        own = own_index(stack.source, matrix.frameworks[stack.framework].indexes, known.variant)
    extras = f"[{','.join(known.build.extras)}]" if known.build.extras else ""
    return Question(
        requirements=tuple(
            f"{name}{extras if name == stack.package else ''}=={version}"
            for name, version in stack.packages.items()
        ),
        # A constraint carries no extras: they stand in brackets before the specifier.
        constraints=tuple(f"{name}{text.rpartition(']')[2]}" for name, text in stack.constraints.items()),
        python=stack.python,
        machine=MACHINES[stack.arch],
        glibc=matrix.bases[stack.os].glibc,
        default=default_index(),
        own=own,
        from_own=(stack.package, *known.release.companions) if own else (),
        before=before,
    )


def _wheels(question: Question, solution: Solution) -> tuple[Wheel, ...]:
    """Read the wheels of a solution, and ask for the sizes that an index page does not give."""
    from imagebuilder.errors import OutsideError, UsageError
    from imagebuilder.index import size_of
    from imagebuilder.lock.pylock import clean, read_wheels

    own = dict.fromkeys(solution.from_own, question.own.name) if question.own else {}
    try:
        wheels = read_wheels(
            clean(solution.pylock), question.python, question.machine, question.glibc, own=own
        )
    except UsageError as error:
        raise OutsideError(
            "an index serves what cannot be locked",
            why=f"{error.what}: {error.why}",
            hint=f"use another mirror: {question.default.variable}",
        ) from None
    served = {index.name: index for index in (question.default, question.own) if index}
    return tuple(
        wheel if wheel.size else replace(wheel, size=size_of(wheel.url, served[wheel.source]))
        for wheel in wheels
    )


def _closure(question: Question, wheels: tuple[Wheel, ...], roots: Iterable[str]) -> set[str]:
    """Give the names of the wheels that these packages need, in the versions of the joint solve."""
    from imagebuilder.solver import names_in, solve

    exact = {wheel.name: f"{wheel.name}=={wheel.version}" for wheel in wheels}
    alone = replace(
        question,
        requirements=tuple(dict.fromkeys(exact[name] for name in roots)),
        constraints=tuple(exact.values()),
        before=None,
    )
    return names_in(solve(alone).pylock)


def _installer(question: Question) -> Wheel:
    """Lock the uv of this host's version, built for the target."""
    from importlib.metadata import version

    from imagebuilder.errors import OutsideError
    from imagebuilder.solver import UnsatisfiableError, solve

    wanted = f"uv=={version('uv')}"
    alone = replace(question, requirements=(wanted,), constraints=(), own=None, from_own=(), before=None)
    try:
        return _wheels(alone, solve(alone))[0]
    except UnsatisfiableError as error:
        raise OutsideError(
            f"the index `{question.default.name}` has no wheel of `{wanted}`, which installs the others",
            why=str(error),
            hint="python -m pip install a uv for imgbuild that your index has",
        ) from None
