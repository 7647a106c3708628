"""What a matrix as a whole must hold: no dangling reference, no impossible value, everything in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from imagebuilder.matrix import sources
from imagebuilder.matrix.check_builds import check_framework, check_set
from imagebuilder.matrix.check_extras import check_extras
from imagebuilder.matrix.facts import Base, Gpu, LibraryRelease, Matrix, Toolkit
from imagebuilder.matrix.findings import Finding, dangling, odd_date, odd_name, odd_tags, out_of_order
from imagebuilder.matrix.gpus import plain_name
from imagebuilder.matrix.shape import WORDS, Items, Record, Scalar, Shape, Table, facts_of, parser
from imagebuilder.matrix.words import Cuda, Driver, Target

if TYPE_CHECKING:
    from imagebuilder.matrix.read import Where

SCHEMA = 1
_DATES = ("released", "eol", "read")
# Values that become a part of a command, a file's name or a Dockerfile.
_IMAGE = re.compile(
    r"[a-z0-9][a-z0-9.-]*(:\d{1,5})?(/[a-z0-9][a-z0-9._-]*)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
)
_NAME = re.compile(r"[a-z]+-[a-z0-9.]+")
_SUITE = re.compile(r"[a-z]+")
_DISTRIBUTIONS = ("debian", "ubuntu")
# What the keys of a table are, by the section and the names on the way to it.
_KEYS: Mapping[tuple[str, ...], Any] = {
    ("cuda_majors",): int,
    ("toolkits",): Cuda.parse,
    ("toolkits", "releases"): Version,
    ("code_runs_on",): Target.parse,
    ("driver_branches",): int,
    ("cudnn",): Version,
    ("nccl",): Version,
    ("cuda_sets",): Cuda.parse,
    ("packages",): Version,
    ("frameworks", "releases"): Version,
}


def check(matrix: Matrix, plain: Mapping[str, Any]) -> Iterator[Finding]:
    """Find everything that is wrong with a matrix whose rows fit the schema; `plain` is its document."""
    if matrix.schema != SCHEMA:
        yield Finding(("schema",), f"this imgbuild reads schema {SCHEMA}, not {matrix.schema}")
    yield from _walk(plain, Record(Matrix), (), matrix)
    for name, toolkit in matrix.toolkits.items():
        yield from _toolkit(matrix, name, toolkit)
    yield from _gpus(matrix)
    for section, releases in (("cudnn", matrix.cudnn), ("nccl", matrix.nccl)):
        for version, release in releases.items():
            yield from _library(matrix, (section, version), release)
    yield from _bases(matrix.bases)
    for package, rows in matrix.packages.items():
        for version, row in rows.items():
            yield from odd_tags(("packages", package, version, "python"), row.python)
    for number, clash in enumerate(matrix.clashes):
        yield from dangling(
            ("clashes", number, "framework"), "framework", clash.framework, matrix.frameworks, ("frameworks",)
        )
    yield from check_extras(matrix)
    for name, row_of_set in matrix.cuda_sets.items():
        yield from check_set(matrix, name, row_of_set)
    for name, framework in matrix.frameworks.items():
        yield from check_framework(matrix, name, framework)


def _walk(plain: Any, shape: Shape, where: Where, matrix: Matrix) -> Iterator[Finding]:
    """Check what every list, every table and every `src` must hold."""
    if isinstance(shape, Items):
        item = shape.item
        if isinstance(item, Scalar):
            ordered = item.kind in (int, Version, *WORDS)
            values = (
                [one if item.kind is int else parser(item.kind)(one) for one in plain] if ordered else None
            )
            yield from out_of_order(where, plain, values)
        for number, one in enumerate(plain):
            yield from _walk(one, item, (*where, number), matrix)
    elif isinstance(shape, Table):
        yield from _keys(plain, where)
        for name, one in plain.items():
            yield from _walk(one, shape.value, (*where, name), matrix)
    elif isinstance(shape, Record):
        facts = facts_of(shape.cls)
        for name, one in plain.items():
            if name == "src":
                yield from _src(one, (*where, "src"), facts, matrix)
            elif name in _DATES:
                yield from odd_date((*where, name), one)
            else:
                yield from _walk(one, facts[name].shape, (*where, name), matrix)


def _keys(plain: Mapping[str, Any], where: Where) -> Iterator[Finding]:
    way = tuple(str(one) for one in where[:1] + where[2:])
    parse = _KEYS.get(way)
    if parse is None or (where[0] == "packages" and len(where) == 1):
        return
    odd = [finding for name in plain for finding in odd_name((*where, name), name, parse)]
    yield from odd or out_of_order(where, tuple(plain), [parse(name) for name in plain])


def _src(src: Any, where: Where, facts: Mapping[str, Any], matrix: Matrix) -> Iterator[Finding]:
    """Check that sources can be read, exist, and stand for facts that the row can have."""
    for name, text in src.items() if isinstance(src, Mapping) else [(None, src)]:
        place = where if name is None else (*where, name)
        if name is not None and name.split(".")[0] not in facts:
            yield from dangling(place, "fact", name, facts)
        try:
            refs = sources.parse(text)
        except ValueError as error:
            yield Finding(place, str(error))
            continue
        for ref in refs:
            if ref.kind == "source":
                yield from dangling(place, "source", ref.name, matrix.sources, ("sources",))


def _toolkit(matrix: Matrix, name: str, toolkit: Toolkit) -> Iterator[Finding]:
    where: Where = ("toolkits", name)
    yield from dangling(where, "CUDA major", name.split(".")[0], matrix.cuda_majors, ("cuda_majors",))
    major = matrix.cuda_majors.get(name.split(".")[0])
    if major and toolkit.driver_min < major.driver_min:
        yield Finding(
            (*where, "driver_min"),
            f"`{toolkit.driver_min}` is below the floor of its major, `{major.driver_min}`",
        )
    if toolkit.driver_min.branch > toolkit.driver_branch:
        yield Finding(
            (*where, "driver_min"),
            f"`{toolkit.driver_min}` is above the packaged driver, R{toolkit.driver_branch}",
        )
    yield from _of_branch((*where, "driver_packaged"), toolkit.driver_packaged, toolkit.driver_branch)
    for fact in ("driver_packaged_of", "compat_from_image"):
        if (release := getattr(toolkit, fact)) is not None:
            yield from dangling(
                (*where, fact), "release of the toolkit", release, toolkit.releases, (*where, "releases")
            )
    for branch in toolkit.compat_branches:
        if branch >= toolkit.driver_branch:
            yield Finding(
                (*where, "compat_branches"),
                f"`{branch}` is not older than the toolkit's own R{toolkit.driver_branch}",
            )
    for target in toolkit.capabilities_specific:
        if target.capability not in toolkit.capabilities:
            yield Finding(
                (*where, "capabilities_specific"), f"`{target}` is of a capability that the toolkit lacks"
            )
    yield from _toolkit_releases(where, toolkit)


def _toolkit_releases(where: Where, toolkit: Toolkit) -> Iterator[Finding]:
    for version, release in toolkit.releases.items():
        if not version.startswith(f"{where[1]}."):
            yield Finding((*where, "releases", version), f"is not a release of CUDA {where[1]}")
        yield from _of_branch((*where, "releases", version, "driver"), release.driver, toolkit.driver_branch)


def _of_branch(where: Where, driver: Driver | None, branch: int) -> Iterator[Finding]:
    if driver is not None and driver.branch != branch:
        yield Finding(where, f"`{driver}` is not of the toolkit's driver branch R{branch}")


def _gpus(matrix: Matrix) -> Iterator[Finding]:
    names: dict[str, str] = {}
    for name, gpu in matrix.gpus.items():
        for number, called in enumerate((name, *gpu.aliases)):
            place = ("gpus", name) if number == 0 else ("gpus", name, "aliases", number - 1)
            other = names.setdefault(plain_name(called), name)
            if other != name:
                yield Finding(place, f"`{called}` already names the GPU `{other}`")
        yield from _gpu(matrix, ("gpus", name), gpu)


def _gpu(matrix: Matrix, where: Where, gpu: Gpu) -> Iterator[Finding]:
    last, cuda_last = gpu.driver_branch_last, gpu.cuda_last
    if cuda_last is not None and cuda_last < gpu.cuda_first:
        yield Finding((*where, "cuda_last"), f"`{cuda_last}` is before `cuda_first`, `{gpu.cuda_first}`")
    if last is not None and last < (gpu.driver_branch_first or 0):
        yield Finding(
            (*where, "driver_branch_last"),
            f"`{last}` is before `driver_branch_first`, `{gpu.driver_branch_first}`",
        )
    if last is not None and gpu.driver_min is not None and gpu.driver_min.branch > last:
        yield Finding((*where, "driver_min"), f"`{gpu.driver_min}` is behind `driver_branch_last`, `{last}`")
    if not any(gpu.capability in runs_on for runs_on in matrix.code_runs_on.values()):
        message = f"no row of `code_runs_on` has code for `{gpu.capability}`"
        yield Finding((*where, "capability"), message, ("code_runs_on", ""))
    for name, toolkit in matrix.toolkits.items():
        between = gpu.cuda_first <= _cuda(name) and (cuda_last is None or _cuda(name) <= cuda_last)
        # Thor changed its number: 10.1 up to CUDA 12.9, 11.0 from 13.0 on; its row says 11.0 and 13.0.
        if between and gpu.capability not in toolkit.capabilities:
            yield Finding(
                (*where, "capability"),
                f"CUDA {name} has no `{gpu.capability}`, though it lies in the GPU's range",
            )


def _cuda(name: str) -> Cuda:
    try:
        return Cuda.parse(name)
    except ValueError:
        return Cuda.parse("1.0")


def _library(matrix: Matrix, where: Where, release: LibraryRelease) -> Iterator[Finding]:
    for fact in ("cuda_majors", "aarch64", "yanked"):
        for major in getattr(release, fact):
            yield from dangling((*where, fact), "CUDA major", major, matrix.cuda_majors, ("cuda_majors",))
            if major not in release.cuda_majors:
                yield Finding((*where, fact), f"`{major}` is not among its `cuda_majors`")
    suffixes = [f"cu{major}" for major in release.cuda_majors]
    for suffix, code in release.code.items():
        yield from dangling((*where, "code", suffix), "CUDA suffix", suffix, suffixes)
        for target in code.sass:
            yield from dangling(
                (*where, "code", suffix, "sass"),
                "target of `code_runs_on`",
                target,
                matrix.code_runs_on,
                ("code_runs_on",),
            )
        for target in code.ptx:
            if not target.is_ptx:
                yield Finding((*where, "code", suffix, "ptx"), f"`{target}` is not PTX")


def _bases(bases: Mapping[str, Base]) -> Iterator[Finding]:
    defaults = [name for name, base in bases.items() if base.default]
    for name in defaults[1:]:
        yield Finding(
            ("bases", name, "default"), f"there can be one default base; `{defaults[0]}` is one already"
        )
    if bases and not defaults:
        yield Finding(("bases",), "has no default base")
    for name, base in bases.items():
        where = ("bases", name)
        if not name.startswith(f"{base.distribution}-"):
            yield Finding((*where, "distribution"), f"`{base.distribution}` does not begin the name `{name}`")
        if not _NAME.fullmatch(name):
            yield Finding(where, f"`{name}` is not the name of a base such as `debian-12`")
        if base.distribution not in _DISTRIBUTIONS:
            yield from dangling((*where, "distribution"), "distribution", base.distribution, _DISTRIBUTIONS)
        if not _SUITE.fullmatch(base.suite):
            yield Finding(
                (*where, "suite"), f"`{base.suite}` is not the name of a release such as `bookworm`"
            )
        if not _IMAGE.fullmatch(base.image):
            yield Finding(
                (*where, "image"), f"`{base.image}` is not a reference such as `docker.io/library/debian:12`"
            )
