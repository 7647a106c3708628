"""Requirements of installed packages, against the reference implementation of PEP 440 and PEP 508."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from imagebuilder.checks import requirements
from imagebuilder.checks.specifiers import NotEvaluated, contains

if TYPE_CHECKING:
    from pathlib import Path

numbers = st.integers(0, 12)
release = st.lists(numbers, min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
suffix = st.sampled_from(
    ["", "", "", "a1", "b2", "rc1", ".post1", ".dev3", "rc1.dev2", "+cu121", "+local.5", "-1"]
)
versions = st.builds(lambda r, s: r + s, release, suffix)
operators = st.sampled_from(["==", "!=", "~=", "<=", ">=", "<", ">"])


@given(versions, operators, versions, st.booleans())
def test_specifiers_agree_with_packaging(version: str, operator: str, wanted: str, star: bool) -> None:
    """Every clause that packaging accepts is judged as packaging judges it."""
    clause = operator + (wanted.split("+")[0] + ".*" if star and operator in ("==", "!=") else wanted)
    try:
        expected = SpecifierSet(clause).contains(Version(version), prereleases=True)
    except InvalidSpecifier:
        return
    assert contains(clause, version) == expected


@pytest.mark.parametrize(
    "marker",
    [
        'platform_system == "Linux" and platform_machine == "x86_64"',
        'python_version < "3.13" or python_version >= "4"',
        '(python_version >= "3.8") and not_a == "x"',
        "sys_platform in 'linux darwin'",
        "platform_machine not in 'aarch64 arm64'",
        'python_full_version != "3.14.1"',
        '"3.9" <= python_version',
        'implementation_name == "cpython" and (os_name == "nt" or os_name == "posix")',
        'extra == "cuda"',
    ],
)
def test_markers_agree_with_packaging(marker: str) -> None:
    """Markers that torch and its companions use are judged alike; an unknown variable is said to be one."""
    if "not_a" in marker:
        with pytest.raises(NotEvaluated, match="not_a"):
            requirements.applies(marker)
        return
    for extra in ("", "cuda"):
        assert requirements.applies(marker, extra) == Marker(marker).evaluate({"extra": extra})


@pytest.mark.parametrize(
    "text", ["pkg (>=1,<2)", "pkg>=1,<2", "Pkg >= 1, <2 ; python_version > '3'", "pkg[a,B]>=1,<2"]
)
def test_requirement_lines_of_all_ages_are_parsed(text: str) -> None:
    """Brackets, spaces, extras and markers come apart."""
    found = requirements.parse(text)
    assert found.name == "pkg"
    assert contains(found.specifier, "1.5")
    assert not contains(found.specifier, "2.0")


@pytest.mark.parametrize("text", ["", "==1", "a b", "pkg ==1 ==2 ;", "pkg[", "pkg;marker"])
def test_what_is_not_understood_is_said_not_guessed(text: str) -> None:
    """A broken line is NotEvaluated, whether it breaks in the line, the specifier or the marker."""
    with pytest.raises(NotEvaluated):
        found = requirements.parse(text)
        requirements.applies(found.marker)
        contains(found.specifier, "1")


def distribution(folder: Path, name: str, version: str, *requires: str) -> metadata.Distribution:
    """Write the metadata of an installed package."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (info / "METADATA").write_text(
        "\n".join([*lines, *(f"Requires-Dist: {line}" for line in requires)]) + "\n"
    )
    return metadata.PathDistribution(info)


def test_missing_and_wrong_packages_are_named(tmp_path: Path) -> None:
    """Both lines of a clash are named; markers and unasked extras do not count; asked extras do."""
    rows = [
        distribution(
            tmp_path,
            "torch",
            "2.4.1",
            "nccl ==2.20.5 ; platform_system == 'Linux'",
            "absent",
            "windows ; sys_platform == 'win32'",
            "opt ; extra == 'more'",
            "odd ; moon_phase == 'full'",
        ),
        distribution(tmp_path, "nccl", "2.18.1"),
        distribution(tmp_path, "user", "1", "torch[more]<3"),
    ]
    verdict = requirements.check({row.metadata["Name"]: row for row in rows})
    assert sorted(verdict.problems) == [
        "torch 2.4.1 requires absent, which is not installed",
        "torch 2.4.1 requires nccl==2.20.5, but 2.18.1 is installed",
        "torch 2.4.1 requires opt, which is not installed",
    ]
    assert [line for line in verdict.not_evaluated if "moon_phase" in line]


def test_a_local_version_satisfies_a_plain_pin(tmp_path: Path) -> None:
    """Torchvision's `torch==2.4.1` is met by 2.4.1+cu121."""
    rows = [
        distribution(tmp_path, "torch", "2.4.1+cu121"),
        distribution(tmp_path, "torchvision", "0.19.1", "torch==2.4.1"),
    ]
    assert requirements.check({row.metadata["Name"]: row for row in rows}).problems == ()


def test_this_environment_is_judged_without_doubt() -> None:
    """Every requirement of the packages that run these tests can be evaluated."""
    assert requirements.check(requirements.installed()).not_evaluated == ()
