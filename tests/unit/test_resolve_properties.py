"""What holds for every request: the answer satisfies every fact, a refusal is true, order does not matter.

The checker here is written from the facts alone and shares nothing with the resolver: it walks every
release, build, machine, index and base, and asks each constraint in turn.
"""

from __future__ import annotations

import random
import shlex
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.errors import UnmetError
from imagebuilder.matrix import Matrix, load
from imagebuilder.matrix.gpus import find_gpu
from imagebuilder.request import Request, parse_request
from imagebuilder.resolve import Stack, resolve, stack_from_dict, stack_to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.matrix.facts import Gpu

MATRIX = load()
PYTORCH = MATRIX.frameworks["pytorch"]
RELEASES = sorted(PYTORCH.releases, key=Version)
SPECS = [
    "",
    *(f"=={text}" for text in RELEASES),
    ">=2.1,<2.4",
    "<2",
    ">=2.8",
    "~=2.5.0",
    "==2.7.*",
    "==9.9",
    "!=2.15.0",
]
CUDAS = ["11.6", "11.7", "11.8", "12.1", "12.4", "12.6", "12.7", "12.8", "12.9", "13.0", "13.2", "13.4"]
DRIVERS = [
    "450.80.02",
    "470.57.02",
    "525.60.13",
    "535.104.05",
    "550.54.14",
    "570.133.20",
    "580.65.06",
    "595.10",
]
GPUS = [
    "K80",
    "P100",
    "V100",
    "T4",
    "T4G",
    "A100",
    "RTX 3060",
    "H100",
    "GH200",
    "B200",
    "RTX 5090",
    "sm_75",
    "sm_86",
    "sm_110",
]

Row = tuple[str, str, str, str, str]


def rows(request: Request) -> Iterator[Row]:
    """Give (release, variant, machine, index, base) of everything that may be had, whatever was asked for."""
    for row in existing():
        named = any(one.operator == "==" and one.version == row[0] for one in request.spec)
        if named or not (PYTORCH.releases[row[0]].yanked or Version(row[0]).is_prerelease):
            yield row


@cache
def existing() -> tuple[Row, ...]:
    """Give every row whose wheels are there and run on the base."""
    return tuple(_existing())


def _existing() -> Iterator[Row]:
    for text, release in PYTORCH.releases.items():
        cpu_only = {
            (build.source, machine)
            for build in release.builds.values()
            if build.cuda is None
            for machine in build.wheels
        }
        for variant, build in release.builds.items():
            if build.cuda is None:
                continue
            for machine, wheels in build.wheels.items():
                for index in (build.source, *build.also_on):
                    if (
                        index == build.source
                        and (index, machine) in cpu_only
                        and "+" not in str(build.version)
                    ):
                        continue
                    for os, base in MATRIX.bases.items():
                        tag = f"cp{str(base.python).replace('.', '')}"
                        if (
                            machine in base.machines
                            and tag in wheels.python
                            and base.glibc.numbers >= wheels.glibc.numbers
                        ):
                            yield text, variant, machine, index, os


def holds(request: Request, option: str, row: Row, gpu: str = "") -> bool:
    """Ask one constraint of a request about one row."""
    text, variant, machine, index, os = row
    build = PYTORCH.releases[text].builds[variant]
    cuda = build.cuda
    assert cuda is not None
    if option == "framework":
        return request.spec.contains(text, prereleases=True)
    if option == "cuda":
        return str(cuda) == str(request.cuda)
    if option == "cudnn":
        return build.cudnn is not None and request.cudnn is not None and request.cudnn.contains(build.cudnn)
    if option == "python":
        return str(MATRIX.bases[os].python) == str(request.python)
    if option == "os":
        return os == request.os
    if option == "source":
        return index in request.sources
    if option == "arch":
        return machine == {"amd64": "x86_64", "arm64": "aarch64"}[request.arch]
    if option == "driver":
        assert request.driver is not None
        return request.driver.numbers >= MATRIX.cuda_majors[str(cuda.numbers[0])].driver_min.numbers
    host = row_of(gpu).host
    return host in (None, machine) and code(row, gpu) is not None


@cache
def row_of(gpu: str) -> Gpu:
    """Give the matrix's row of a GPU."""
    return find_gpu(MATRIX, gpu)[1]


@cache
def code(row: Row, gpu: str) -> str | None:
    """Tell how a row runs on a GPU: its wheel and, where it was measured, its cuDNN must have code for it."""
    text, variant, machine, _, _ = row
    build = PYTORCH.releases[text].builds[variant]
    capability = row_of(gpu).capability

    def best(sass: Any, ptx: Any) -> int:
        for target in sass:
            rule = MATRIX.code_runs_on[target.text]
            if rule.same_major_from is None:
                if capability in rule.only:
                    return 2
            elif (
                capability.numbers[0] == rule.same_major_from.numbers[0]
                and capability.numbers >= rule.same_major_from.numbers
                and capability not in rule.excepted
            ):
                return 2
        return int(any(target.capability.numbers <= capability.numbers for target in ptx))

    wheels = build.wheels[machine]  # type: ignore[index]
    level = best(wheels.cubin, wheels.ptx)
    library = MATRIX.cudnn.get(str(build.cudnn)) if machine == "x86_64" else None  # measured there alone
    assert build.cuda is not None
    suffix = f"cu{build.cuda.numbers[0]}"
    if library is not None and suffix in library.code:
        level = min(level, best(library.code[suffix].sass, library.code[suffix].ptx))
    return [None, "ptx", "cubin"][level]


def together(request: Request, row: Row, gpu: str) -> bool:
    """Ask whether the named driver knows a GPU and loads, or compiles, the row's code for it."""
    driver = request.driver
    assert driver is not None
    known = row_of(gpu)
    branch = driver.numbers[0]
    if known.driver_branch_first and branch < known.driver_branch_first:
        return False
    if known.driver_min and driver.numbers < known.driver_min.numbers:
        return False
    if known.driver_branch_last and branch > known.driver_branch_last:
        return False
    cuda = PYTORCH.releases[row[0]].builds[row[1]].cuda
    return code(row, gpu) == "cubin" or branch >= MATRIX.toolkits[str(cuda)].driver_branch


def asked_for(request: Request) -> list[tuple[str, str]]:
    """Give the constraints of a request as (option, GPU)."""
    named = [
        ("framework", bool(len(request.spec))), ("cuda", request.cuda), ("cudnn", request.cudnn),
        ("python", request.python), ("os", request.os), ("source", request.sources),
        ("driver", request.driver),
    ]  # fmt: skip
    return (
        [(option, "") for option, value in named if value]
        + [("gpu", gpu) for gpu in request.gpus]
        + [("arch", "")]
    )


def met(request: Request, constraints: list[tuple[str, str]]) -> list[Row]:
    """Give every row that meets these constraints of a request together."""
    driven = ("driver", "") in constraints
    return [
        row
        for row in rows(request)
        if all(holds(request, option, row, gpu) for option, gpu in constraints)
        and all(together(request, row, gpu) for option, gpu in constraints if option == "gpu" and driven)
    ]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Give requests of every kind, met and unmet."""
    maybe = lambda values: st.one_of(st.none(), st.none(), st.sampled_from(values))  # noqa: E731
    return parse_request(
        framework="pytorch" + draw(st.one_of(st.just(""), st.sampled_from(SPECS))),
        cuda=draw(maybe(CUDAS)),
        cudnn=draw(maybe(["8", "9", ">=9.5", "9.1.0.70"])),
        python=draw(maybe(["3.9", "3.10", "3.11", "3.12", "3.13"])),
        os=draw(maybe(sorted(MATRIX.bases))),
        arch=draw(st.sampled_from(["amd64", "amd64", "amd64", "arm64"])),
        gpus=draw(st.lists(st.sampled_from(GPUS), max_size=2, unique=True)),
        driver=draw(maybe(DRIVERS)),
        sources=draw(st.one_of(st.just(()), st.permutations(["pypi", "pytorch"]), st.just(("pytorch",)))),
    )  # fmt: skip


def rank(request: Request, row: Row) -> tuple[Any, ...]:
    """Give the order of preference of the design: source, newest release, newest CUDA, default base."""
    order = [*request.sources, *(name for name in ("pypi", "pytorch") if name not in request.sources)]
    cuda = PYTORCH.releases[row[0]].builds[row[1]].cuda
    assert cuda is not None
    return (-order.index(row[3]), Version(row[0]), cuda.numbers, MATRIX.bases[row[4]].default)


def answer(request: Request, matrix: Matrix = MATRIX) -> Stack | UnmetError:
    """Give what the resolver says."""
    try:
        return resolve(request, matrix)
    except UnmetError as error:
        return error


@settings(max_examples=200, deadline=None)
@given(request=requests())
def test_answer_is_the_best_that_exists_or_nothing_does(request: Request) -> None:
    """A stack is a row that meets everything and none is preferred to it; a refusal means there is no row."""
    possible = met(request, asked_for(request))
    found = answer(request)
    if isinstance(found, UnmetError):
        assert possible == []
        return
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[found.arch]
    mine = [
        row
        for row in possible
        if (row[0], row[2], row[3], row[4]) == (str(found.version), machine, found.source, found.os)
        and PYTORCH.releases[row[0]].builds[row[1]].cuda == found.cuda
    ]
    assert mine
    assert rank(request, mine[0]) == max(rank(request, row) for row in possible)
    build = PYTORCH.releases[mine[0][0]].builds[mine[0][1]]
    assert (found.cudnn, found.nccl) == (build.cudnn, build.nccl)
    assert found.python == MATRIX.bases[found.os].python
    assert all(row_of(gpu).capability in found.compute_capabilities for gpu in request.gpus)
    ceilings = PYTORCH.releases[mine[0][0]].ceilings
    assert all(found.packages[name] in rule.spec for name, rule in ceilings.items() if name in found.packages)
    assert stack_from_dict(stack_to_dict(found)) == found


@settings(max_examples=120, deadline=None)
@given(request=requests())
def test_clash_is_smallest_and_alternatives_resolve(request: Request) -> None:
    """No row meets the constraints of a clash; without any one of them some row does; alternatives work."""
    found = answer(request)
    if not isinstance(found, UnmetError):
        return
    clash = []
    for conflict in found.conflicts:
        option, value = shlex.split(conflict["constraint"] or "")[:2]
        clash.append((option.removeprefix("--"), value if option == "--gpu" else ""))
    assert met(request, clash) == []
    for one in clash:
        assert met(request, [other for other in clash if other != one])
    assert found.alternatives
    for other in found.alternatives:
        assert isinstance(answer(_parse(other["command"])), Stack), other


@settings(max_examples=40, deadline=None)
@given(request=requests(), seed=st.integers(0, 2**16))
def test_order_of_flags_and_entries_does_not_matter(request: Request, seed: int) -> None:
    """GPUs in another order, and a matrix with every mapping shuffled, give the same answer."""
    mixed = random.Random(seed)  # noqa: S311
    gpus = list(request.gpus)
    mixed.shuffle(gpus)
    first, second = answer(request), answer(replace(request, gpus=tuple(gpus)), shuffled(MATRIX, mixed))
    assert type(first) is type(second)
    if isinstance(first, UnmetError) and isinstance(second, UnmetError):
        assert first.conflicts == second.conflicts
        assert len(first.alternatives) == len(second.alternatives)
    else:
        assert first == second


def shuffled(value: Any, mixed: random.Random) -> Any:
    """Give a row with the entries of all its mappings in another order, down to the builds."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {
            part.name: shuffled(getattr(value, part.name), mixed)
            for part in fields(value)
            if part.name
            in ("frameworks", "releases", "builds", "wheels", "pins", "gpus", "bases", "companions")
        }
        return replace(value, **parts)
    if hasattr(value, "items"):
        entries = [(key, shuffled(one, mixed)) for key, one in value.items()]
        mixed.shuffle(entries)
        return dict(entries)
    return value


def _parse(text: str) -> Request:
    many = {"--gpu": "gpus", "--source": "sources"}
    words = shlex.split(text)[2:]
    options: dict[str, Any] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option in many:
            options.setdefault(many[option], []).append(value)
        else:
            options[option.removeprefix("--")] = value
    return parse_request(**options)


@pytest.mark.parametrize("text", RELEASES)
def test_every_release_resolves_on_some_platform(text: str) -> None:
    """Each release of the matrix can be had, on one of the two architectures."""
    found = [answer(parse_request(framework=f"pytorch=={text}", arch=arch)) for arch in ("amd64", "arm64")]
    stacks = [one for one in found if isinstance(one, Stack)]
    assert stacks
    assert all(one.version in SpecifierSet(f"=={text}") for one in stacks)
