"""Facts that the packaged matrix holds no example of: tried on changed copies of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.errors import UnmetError
from imagebuilder.matrix import Matrix, load
from imagebuilder.matrix.facts import Build, Clash, Release
from imagebuilder.matrix.words import Glibc, Target
from imagebuilder.request import parse_request
from imagebuilder.resolve import Stack, resolve

FACTS = load()


def with_release(version: str, **changes: Any) -> Matrix:
    """Give the matrix with one PyTorch release changed."""
    framework = FACTS.frameworks["pytorch"]
    release = replace(framework.releases[version], **changes)
    return with_releases({**framework.releases, version: release})


def with_releases(releases: dict[str, Release]) -> Matrix:
    """Give the matrix with these PyTorch releases alone."""
    framework = replace(FACTS.frameworks["pytorch"], releases=releases)
    return replace(FACTS, frameworks={"pytorch": framework})


def with_build(version: str, variant: str, **changes: Any) -> Matrix:
    """Give the matrix with one build changed."""
    release = FACTS.frameworks["pytorch"].releases[version]
    return with_release(
        version, builds={**release.builds, variant: replace(release.builds[variant], **changes)}
    )


def with_wheels(version: str, variant: str, **changes: Any) -> Matrix:
    """Give the matrix with the x86-64 wheels of one build changed."""
    build: Build = FACTS.frameworks["pytorch"].releases[version].builds[variant]
    return with_build(version, variant, wheels={"x86_64": replace(build.wheels["x86_64"], **changes)})


def ask(matrix: Matrix, framework: str = "pytorch", **options: Any) -> Stack:
    """Resolve a request on a matrix."""
    return resolve(parse_request(framework=framework, **options), matrix)


def test_yanked_release_is_chosen_only_when_named() -> None:
    """A yanked release gives way to the one before it, unless `==` names it; then a note says so."""
    matrix = with_release("2.15.0", yanked="broken on Tuesdays")
    assert ask(matrix).version == Version("2.14.1")
    named = ask(matrix, "pytorch==2.15.0")
    assert named.version == Version("2.15.0")
    assert any("broken on Tuesdays" in note for note in named.notes)
    with pytest.raises(UnmetError, match=r"2\.15"):
        ask(matrix, "pytorch>=2.15")


def test_prerelease_is_chosen_only_when_named() -> None:
    """A release candidate is newer than every release and still not taken for `newest`."""
    releases = dict(FACTS.frameworks["pytorch"].releases)
    matrix = with_releases({**releases, "3.0.0rc1": releases["2.15.0"]})
    assert ask(matrix).version == Version("2.15.0")
    assert ask(matrix, "pytorch>=2.14").version == Version("2.15.0")
    assert ask(matrix, "pytorch==3.0.0rc1").version == Version("3.0.0rc1")


def test_base_with_an_old_glibc_gets_older_wheels() -> None:
    """A base whose glibc is below a wheel's floor is refused that wheel, and named with both numbers."""
    old = replace(FACTS.bases["debian-12"], glibc=Glibc.parse("2.17"), default=False)
    matrix = replace(FACTS, bases={**FACTS.bases, "old-1": old})
    assert ask(matrix, os="old-1").version == Version("2.6.0")
    with pytest.raises(UnmetError) as caught:
        ask(matrix, "pytorch==2.8.0", os="old-1")
    assert "2.17" in str(caught.value.conflicts)
    assert "2.28" in str(caught.value.conflicts)


def test_ptx_needs_a_driver_of_the_toolkit() -> None:
    """A GPU that a build serves by PTX alone gets it only with a driver that compiles PTX of that toolkit."""
    matrix = with_wheels("2.4.1", "cu121", cubin=(Target.parse("sm_80"),), ptx=(Target.parse("compute_80"),))
    slow = ask(matrix, "pytorch==2.4.1", gpus=["H100"], cuda="12.1", driver="535.104.05")
    assert any("PTX only" in note for note in slow.notes)
    assert "9.0" in map(str, slow.compute_capabilities)
    with pytest.raises(UnmetError) as caught:
        ask(matrix, "pytorch==2.4.1", gpus=["H100"], cuda="12.1", driver="525.60.13", sources=["pypi"])
    assert "R530" in str(caught.value.conflicts)


def test_build_without_known_targets_is_chosen_for_no_gpu() -> None:
    """What a build holds code for is unknown: it is no answer to a request that names a GPU."""
    matrix = with_wheels("2.4.1", "cu121", cubin=(), ptx=())
    assert ask(matrix, "pytorch==2.4.1", cuda="12.1").compute_capabilities == ()
    with pytest.raises(UnmetError):
        ask(matrix, "pytorch==2.4.1", cuda="12.1", gpus=["A100"])


def test_cudnn_without_code_for_the_gpu_is_refused() -> None:
    """A wheel with Volta code whose cuDNN has none (9.11 and newer) does not serve a V100 (gotcha 3)."""
    newer = next(
        Version(text)
        for text, row in FACTS.cudnn.items()
        if "cu12" in row.code and Target.parse("sm_70") not in row.code["cu12"].sass
    )
    matrix = with_build("2.10.0", "cu128", cudnn=newer)
    with pytest.raises(UnmetError) as caught:
        ask(matrix, "pytorch==2.10.0", cuda="12.8", gpus=["V100"])
    assert f"cuDNN {newer}" in str(caught.value.conflicts)


def test_only_cpu_builds_is_an_error_that_says_so() -> None:
    """A framework with CPU-only builds alone has no answer, and no constraint is blamed for it."""
    release = FACTS.frameworks["pytorch"].releases["2.5.1"]
    cpu = {name: build for name, build in release.builds.items() if build.cuda is None}
    with pytest.raises(UnmetError, match="has no GPU build"):
        ask(with_releases({"2.5.1": replace(release, builds=cpu)}))


def test_known_clash_becomes_a_constraint() -> None:
    """A rule that metadata does not hold binds the packages beside the framework."""
    rule = Clash(
        framework="pytorch",
        spec=SpecifierSet(">=2"),
        package="numpy",
        needs=SpecifierSet("<2.1"),
        why="x",
        src="D",
    )
    stack = ask(replace(FACTS, clashes=(rule,)))
    assert Version(stack.packages["numpy"]) in rule.needs
    assert stack.constraints["numpy"] == "<2.1"


def test_package_beside_has_a_wheel_for_the_base() -> None:
    """The newest NumPy without a wheel for the base's Python gives way to the newest that has one."""
    for python, tag in (("3.10", "cp310"), ("3.11", "cp311")):
        chosen = ask(FACTS, python=python, cuda="12.8").packages["numpy"]
        fitting = [text for text, row in FACTS.packages["numpy"].items() if tag in row.python]
        assert chosen == max(fitting, key=Version)
    assert (
        ask(FACTS, python="3.10", cuda="12.8").packages["numpy"] != ask(FACTS, cuda="12.8").packages["numpy"]
    )
