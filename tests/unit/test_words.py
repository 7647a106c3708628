"""The small values: what they read, what they refuse, how they order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.matrix.words import Capability, Cuda, Driver, Glibc, Python, Target


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Driver, "abc"), (Driver, "52"), (Driver, "525."), (Driver, "0525.1"), (Driver, "525.60.13.1"),
        (Cuda, "12"), (Cuda, "12.1.1"), (Cuda, "v12.1"), (Cuda, "0.1"), (Cuda, ""),
        (Python, "3"), (Python, "2.7"), (Python, "3.11.2"), (Python, "3.11 "),
        (Glibc, "3.1"), (Capability, "8"), (Capability, "8.66"), (Target, "sm80"), (Target, "sm_9"),
        (Target, "lto_90"), (Target, "sm_90b"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_is_wanted(kind: type[Driver], text: str) -> None:
    """Text of another form is a ValueError that quotes it and shows the form."""
    with pytest.raises(ValueError, match=f"`{text}` is not a"):
        kind.parse(text)


def test_a_branch_is_its_lowest_driver() -> None:
    """A branch alone stands before every driver of it."""
    assert Driver.parse("580") < Driver.parse("580.65.06") < Driver.parse("590")
    assert Driver.parse("525.60.13").branch == 525


def test_leading_zeros_do_not_matter_but_stay() -> None:
    """Drivers compare by number and print as they were written."""
    assert Driver.parse("450.80.02") == Driver.parse("450.80.2")
    assert str(Driver.parse("450.80.02")) == "450.80.02"


def test_targets_of_one_number_differ() -> None:
    """sm_90, sm_90a and compute_90 are three targets of one capability."""
    targets = {Target.parse("sm_90"), Target.parse("sm_90a"), Target.parse("compute_90")}
    assert len(targets) == 3
    assert {target.capability for target in targets} == {Capability.parse("9.0")}
    assert [target.is_ptx for target in map(Target.parse, ("sm_120", "compute_120"))] == [False, True]


def test_capability_and_target_name_each_other() -> None:
    """12.0 is sm_120 and sm_120 is 12.0."""
    assert Capability.parse("12.0").target.text == "sm_120"
    assert Target.parse("sm_86").capability == Capability.parse("8.6")


def test_python_gives_its_wheel_tag() -> None:
    """3.11 is cp311."""
    assert Python.parse("3.11").tag == "cp311"


@given(st.tuples(st.integers(1, 99), st.integers(0, 99)), st.tuples(st.integers(1, 99), st.integers(0, 99)))
def test_order_is_the_order_of_the_numbers(one: tuple[int, int], two: tuple[int, int]) -> None:
    """Comparison goes number by number, never by text: 12.10 is newer than 12.9."""
    left, right = (Cuda.parse(f"{major}.{minor}") for major, minor in (one, two))
    assert (left < right, left <= right, left == right, left >= right, left > right) == (
        one < two, one <= two, one == two, one >= two, one > two,
    )  # fmt: skip
    assert (hash(left) == hash(right)) >= (left == right)


def test_different_kinds_are_never_equal() -> None:
    """A CUDA version is no capability, whatever the text."""
    assert Cuda.parse("9.0") != Capability.parse("9.0")
