"""`stack.json`: written and read back as the same stack; anything else is refused with its path."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.errors import UsageError
from imagebuilder.matrix import load
from imagebuilder.request import parse_request
from imagebuilder.resolve import resolve, stack_from_dict, stack_to_dict

STACK = resolve(parse_request(framework="pytorch", cuda="12.1", gpus=["T4"]), load())
DOCUMENT = json.loads(json.dumps(stack_to_dict(STACK)))

TAMPERED: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("cuda",), "12", "cuda"),
    (("cuda",), 12.1, "cuda"),
    (("cuda",), "12.4", "identifier"),
    (("framework", "version"), "2.4.1; rm", "version"),
    (("framework", "version"), "02.4.1", "version"),
    (("framework", "name"), "Py Torch", "name"),
    (("framework",), "pytorch", "framework"),
    (("packages", "torch"), "2.4.1\nRUN id", "packages.torch"),
    (("packages", "torch"), None, "packages.torch"),
    (("packages", "Torch"), "2.4.1", "packages"),
    (("packages", "../x"), "1", "packages"),
    (("packages",), ["torch"], "packages"),
    (("packages",), {}, "packages"),
    (("constraints", "torchvision"), "=0.19", "constraints.torchvision"),
    (("constraints", "torchvision"), "[a;b]==1", "constraints.torchvision"),
    (("os",), "debian-12$(id)", "os"),
    (("arch",), "riscv", "arch"),
    (("variant",), "devel", "variant"),
    (("source",), "https://example.org", "source"),
    (("driver_min",), "abc", "driver_min"),
    (("compute_capabilities", 0), "75", "compute_capabilities[0]"),
    (("compute_capabilities",), "7.5", "compute_capabilities"),
    (("fallbacks", 0, "stack"), "a b", "stack"),
    (("fallbacks", 0), None, "fallbacks[0]"),
    (("reasons", 0, "because"), 5, "because"),
    (("reasons", 0, "because"), "x" * 5000, "because"),
    (("notes", 0), "a\x1b[31m", "notes[0]"),
    (("matrix",), "sha256:zz", "matrix"),
    (("identifier",), "pytorch-2.4.1", "identifier"),
    (("extra",), 1, "extra"),
]


def changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """Give the document with one value changed."""
    document = copy.deepcopy(DOCUMENT)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


def test_reads_back_as_written() -> None:
    """The document gives the stack back, and the stack the document."""
    assert stack_from_dict(DOCUMENT) == STACK
    assert stack_to_dict(stack_from_dict(DOCUMENT)) == DOCUMENT


def test_has_the_keys_of_the_contract() -> None:
    """The keys that others read are there, in the shape of the design."""
    assert {
        "framework", "cuda", "cudnn", "nccl", "python", "os", "arch", "variant", "source", "driver_min",
        "compute_capabilities", "packages", "reasons", "notes",
    } <= set(DOCUMENT)  # fmt: skip
    assert DOCUMENT["framework"] == {"name": "pytorch", "version": "2.4.1", "package": "torch"}
    assert set(DOCUMENT["reasons"][0]) == {"fact", "value", "because", "source"}


@pytest.mark.parametrize(("path", "value", "named"), TAMPERED)
def test_tampered_document_is_refused(path: tuple[str | int, ...], value: Any, named: str) -> None:
    """A changed value is a usage error that names the file and where in it."""
    with pytest.raises(UsageError) as caught:
        stack_from_dict(changed(path, value), "my.json")
    assert caught.value.what.startswith("my.json")
    assert named in caught.value.what


@pytest.mark.parametrize("key", sorted(DOCUMENT))
def test_missing_key_is_refused(key: str) -> None:
    """Every key is required."""
    with pytest.raises(UsageError, match=key):
        stack_from_dict({name: value for name, value in DOCUMENT.items() if name != key})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(value=JSON, key=st.sampled_from([*sorted(DOCUMENT), ""]))
def test_no_document_breaks_the_reader(value: Any, key: str) -> None:
    """Any JSON in any place gives a stack or a usage error, never another exception."""
    try:
        stack_from_dict({**DOCUMENT, key: value} if key else value)
    except UsageError:
        return
