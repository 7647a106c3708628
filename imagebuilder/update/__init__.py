"""From an index to the matrix: releases and their facts derived, compared with what is held, laid over it.

What is held is never changed: where an index tells something else, that is reported. Facts that an index
cannot tell, notes and sources stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.errors import MatrixError, OutsideError, UsageError
from imagebuilder.matrix.edit import findings, misfits
from imagebuilder.matrix.words import Python
from imagebuilder.remote.project import wheels_of
from imagebuilder.update.companions import Companion, beside, companions
from imagebuilder.update.compare import Comparison, Fact, added, lay_over
from imagebuilder.update.derive import derive, releases_of
from imagebuilder.update.libraries import LIBRARIES, library_row, missing
from imagebuilder.update.recipes import RECIPES
from imagebuilder.update.wheels import released

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from imagebuilder.remote.client import Client
    from imagebuilder.remote.project import WheelFile

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to look at: a framework, and which of its releases.

    `releases` are named ones; without them it is all from the oldest that the matrix has, or all of `spec`.
    """

    framework: str
    spec: SpecifierSet | None = None
    releases: tuple[Version, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What an index tells beyond the matrix: `plain` is the document with it.

    `releases` is how many were read, `equal` how many facts agree. `blocked` maps releases that cannot be
    taken to the reasons: facts that the matrix must have first and an index cannot tell.
    """

    plain: Row
    releases: int
    equal: int
    new: tuple[Fact, ...]
    contradictions: tuple[Fact, ...]
    blocked: Mapping[str, tuple[str, ...]]


def update(plain: Row, wanted: Wanted, client: Client, tell: Callable[[str], None]) -> Update:
    """Derive what is wanted, and lay it over a document; `tell` is told of each release that is read.

    Raises UsageError for a framework or a release that is not known, OutsideError for an index that cannot
    be read, MatrixError where the document is broken apart from what is added.
    """
    told = _told(plain, wanted, client, tell)
    blocked = _misfits(plain, wanted.framework, told)
    told = {version: row for version, row in told.items() if version not in blocked}
    out = Comparison()
    held: Row = plain["frameworks"][wanted.framework]["releases"]
    where = ("frameworks", wanted.framework, "releases")
    merged = {
        version: lay_over(held[version], row, (*where, version), out)
        if version in held
        else added(row, (*where, version), out)
        for version, row in told.items()
    }
    _vanished(held, {*told, *blocked}, wanted, where, out)
    result = _with_libraries(_with_releases(plain, wanted.framework, merged), plain, merged, client, out)
    unsound = _unsound(result, where, merged)
    if unsound:
        kept = {version: row for version, row in merged.items() if version not in unsound}
        result = _with_releases(result, wanted.framework, {**held, **kept}, replace=True)
    _check(result)
    return Update(
        plain=result,
        releases=len(told),
        equal=out.equal,
        new=tuple(fact for fact in out.new if not _within(fact, where, unsound)),
        contradictions=tuple(out.contradictions),
        blocked={**blocked, **unsound},
    )


def _told(plain: Row, wanted: Wanted, client: Client, tell: Callable[[str], None]) -> dict[str, Row]:
    """Derive the wanted releases that have wheels for Linux, by version."""
    name = wanted.framework
    recipe = RECIPES.get(name)
    if recipe is None:
        raise UsageError(
            f"there is no recipe for `{name}`: its facts are kept by hand",
            why="an index is read for " + ", ".join(RECIPES),
            hint=f"imgbuild matrix update --framework {next(iter(RECIPES))}",
        )
    package = plain["frameworks"][name]["package"]
    python = _python(plain)
    files = _wanted_files(plain, wanted, client, package)
    since = min((date for one in files.values() if (date := released(one))), default=None)
    held: list[Companion] = []
    for companion in recipe.companions:
        tell(f"{companion}: which {package} its releases ask for")
        held += companions(client, companion, package, python, since)
    found: dict[str, Row] = {}
    for version, wheels in files.items():
        tell(f"{package} {version}")
        row = derive(client, recipe, wheels, python)
        if row["builds"]:
            table, src = beside(held, version)
            row = {**row, "companions": table} if table else row
            found[str(version)] = {**row, "src": {**row["src"], **src}}
    return found


def _wanted_files(plain: Row, wanted: Wanted, client: Client, package: str) -> dict[Version, list[WheelFile]]:
    releases = releases_of(wheels_of(client, package))
    if not releases:
        raise OutsideError(
            f"the index `{client.index.name}` has no wheel of `{package}`",
            why=client.index.shown,
            hint=f"imgbuild doctor; a mirror is set with {client.index.variable}",
        )
    if unknown := [one for one in wanted.releases if one not in releases]:
        raise UsageError(
            f"the index `{client.index.name}` has no wheel of {package} {unknown[0]}",
            why=f"the newest on {client.index.shown} is {max(releases)}",
            hint=f"imgbuild matrix update --framework {wanted.framework} --release {max(releases)}",
        )
    spec = wanted.spec
    if spec is None and not wanted.releases:
        oldest = min(map(Version, plain["frameworks"][wanted.framework]["releases"]), default=None)
        spec = SpecifierSet(f">={oldest}" if oldest else "")
    chosen = (spec is None or version in spec for version in releases)
    named = (not wanted.releases or version in wanted.releases for version in releases)
    return {
        version: files
        for (version, files), ours, asked in zip(releases.items(), chosen, named, strict=True)
        if ours and asked
    }


def _python(plain: Row) -> Python:
    """Give the Python of the default base: its wheels are read for those of all Pythons."""
    bases = plain["bases"].values()
    return Python.parse(next(base for base in bases if base.get("default"))["python"])


def _with_releases(plain: Row, name: str, releases: Row, *, replace: bool = False) -> Row:
    framework = plain["frameworks"][name]
    rows = {**({} if replace else framework["releases"]), **releases}
    ordered = dict(sorted(rows.items(), key=lambda pair: Version(pair[0])))
    return {**plain, "frameworks": {**plain["frameworks"], name: {**framework, "releases": ordered}}}


def _with_libraries(result: Row, plain: Row, merged: Row, client: Client, out: Comparison) -> Row:
    majors = [int(major) for major in plain["cuda_majors"]]
    lacking = missing(plain, merged.values())
    for library in LIBRARIES:
        rows = dict(result[library])
        for version in lacking[library]:
            row = library_row(client, library, version, majors)
            if row["cuda_majors"]:
                rows[version] = added(row, (library, version), out)
        result = {**result, library: dict(sorted(rows.items(), key=lambda pair: Version(pair[0])))}
    return result


def _vanished(
    held: Row, told: Collection[str], wanted: Wanted, where: tuple[str, ...], out: Comparison
) -> None:
    """Find releases that the matrix has from this index, and that the index has no wheel of any more."""
    for version, row in held.items():
        asked = wanted.spec is None or Version(version) in wanted.spec
        served = any(build["source"] == "pypi" for build in row["builds"].values())
        if not wanted.releases and asked and served and version not in told:
            place = (*where, version)
            out.contradictions.append(Fact(where=place, held="a release", told=None, source="pypi-index"))


def _misfits(plain: Row, name: str, told: Mapping[str, Row]) -> dict[str, tuple[str, ...]]:
    """Find what an index tells and no matrix can hold: the texts in it are anybody's."""
    package = plain["frameworks"][name]["package"]
    found = {version: misfits(name, package, version, row) for version, row in told.items()}
    return {version: tuple(problems) for version, problems in found.items() if problems}


def _unsound(result: Row, where: tuple[str, ...], merged: Collection[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for finding in findings(result):
        at = tuple(map(str, finding.where))
        if at[: len(where)] == where and at[len(where)] in merged:
            place = ".".join(at[len(where) + 1 :])
            found.setdefault(at[len(where)], []).append(f"{place}: {finding.message}")
    return {version: tuple(reasons) for version, reasons in found.items()}


def _within(fact: Fact, where: tuple[str, ...], blocked: Collection[str]) -> bool:
    return fact.where[: len(where)] == where and fact.where[len(where)] in blocked


def _check(plain: Row) -> None:
    problems = [f"{'.'.join(map(str, one.where))}: {one.message}" for one in findings(plain)]
    if problems:
        raise MatrixError(
            "the matrix would not be sound with what the index tells",
            tuple(problems),
            hint="imgbuild matrix validate",
        )
