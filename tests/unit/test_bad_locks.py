"""Spoiled locks and stacks: every value of them replaced, removed, renamed, and none gets into an image."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bad_locks import (
    GLIBC,
    MARK,
    PAYLOADS,
    WRONG,
    at,
    on_a_registry,
    on_disk,
    places,
    put,
    renamed,
    spoiled,
    without,
)
from bad_run import assert_clear, content, imgbuild
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from locks import rendered

from imagebuilder.errors import UsageError
from imagebuilder.lock.files import IMAGE, PYLOCK, lock_to_dict, read_lock
from imagebuilder.resolve.stack import stack_from_dict, stack_to_dict

DOCUMENT = lock_to_dict(on_a_registry(), GLIBC)
PLACES = list(places(DOCUMENT))
STACK = stack_to_dict(on_a_registry().stack)
STACK_PLACES = list(places(STACK))
PYLOCK_TEXT = on_a_registry().pylock
# Where a text of any words may stand: only people read it, in the manifest inside the image.
MANIFEST = "metadata/stack.json"


def named(where: tuple[str | int, ...]) -> str:
    """Give a path as one text."""
    return ".".join(map(str, where))


def assert_harmless(folder: Path) -> None:
    """See that a lock is refused, or that nothing of the attack is in what it renders."""
    try:
        context = rendered(read_lock(folder))
    except UsageError as error:
        assert error.what
        assert "\n" not in error.what
        assert not error.what.endswith(".")
        return
    assert {name for name, held in context.files.items() if MARK.encode() in held} <= {MANIFEST}
    assert MARK not in "".join((*context.files, *context.labels, *context.labels.values()))
    stack_from_dict(json.loads(context.files[MANIFEST]))


@pytest.mark.parametrize("where", PLACES, ids=named)
def test_no_value_of_a_lock_gets_into_a_dockerfile_or_a_shell(
    where: tuple[str | int, ...], tmp_path: Path
) -> None:
    """Whatever stands in place of a value, or of its name."""
    folder = tmp_path / "x.lock"
    document, _ = on_disk(folder)
    for value in (*PAYLOADS, *WRONG):
        put(folder, spoiled(document, where, value))
        assert_harmless(folder)
    put(folder, without(document, where))
    assert_harmless(folder)
    for name in PAYLOADS if isinstance(where[-1], str) else ():
        put(folder, renamed(document, where, name))
        assert_harmless(folder)


@pytest.mark.parametrize("where", [one for one in PLACES if isinstance(at(DOCUMENT, one), str)], ids=named)
def test_a_value_with_syntax_is_refused_by_the_command(where: tuple[str | int, ...], place: Path) -> None:
    """`render --lock` ends with exit code 2, or with a context that holds nothing of the attack."""
    document, _ = on_disk(Path("x.lock"))
    for payload in (PAYLOADS[0], PAYLOADS[2]):
        put(Path("x.lock"), spoiled(document, where, payload))
        before = content(place)
        outcome = imgbuild("render", "--lock", "x.lock", "-o", "context", "--format", "json", within=place)
        if outcome.code:
            assert_clear(outcome, (2,), ("x.lock",))
            assert content(place) == before
            continue
        files = {path for path in Path("context").rglob("*") if path.is_file()}
        found = {path for path in files if MARK.encode() in path.read_bytes()}
        assert found <= {Path("context", MANIFEST)}
        return


# What is wrong with the wheels: a text in pylock.toml and what stands there instead.
WHEELS: dict[str, tuple[str, str]] = {
    "no toml": ('lock-version = "1.0"', "lock-version = "),
    "another version": ('lock-version = "1.0"', 'lock-version = "9.9"'),
    "a version that is a number": ('lock-version = "1.0"', "lock-version = 1.0"),
    "packages of a text": ('lock-version = "1.0"', 'lock-version = "1.0"\npackages = "x"'),
    "a name in capitals": ('name = "torch"', 'name = "Torch"'),
    "a name of a path": ('name = "torch"', f'name = "../{MARK}"'),
    "a name with shell": ('name = "torch"', f'name = "torch;{MARK}"'),
    "a name of a line": ('name = "torch"', f'name = "torch\\nRUN {MARK}"'),
    "a name of an option": ('name = "torch"', f'name = "--{MARK}"'),
    "another name": ('name = "torch"', 'name = "torch2"'),
    "another package's name": ('name = "torch"', 'name = "triton"'),
    "a name of a number": ('name = "torch"', "name = 1"),
    "no name": ('name = "torch"\n', ""),
    "another version of a wheel": ('version = "2.4.1"', 'version = "2.4.2"'),
    "a version with shell": ('version = "2.4.1"', f'version = "2.4.1;{MARK}"'),
    "a version of a line": ('version = "2.4.1"', f'version = "2.4.1\\n{MARK}"'),
    "a version not in normal form": ('version = "2.4.1"', 'version = "v2.4.1"'),
    "a version of a list": ('version = "2.4.1"', "version = []"),
    "a long version": ('version = "2.4.1"', f'version = "{"1." * 3000}1"'),
    "an address of a file on this host": ("https://example.org/torch", "file:///etc/passwd#torch"),
    "an address with a user": ("https://example.org/torch", "https://user:pass@example.org/torch"),
    "an address with shell": ("https://example.org/torch", f"https://example.org/$({MARK})/torch"),
    "an address of a line": ("https://example.org/torch", f"https://example.org/\\n{MARK}/torch"),
    "an address of another scheme": ("https://example.org/torch", "ftp://example.org/torch"),
    "an address without a file": ("torch-2.4.1-py3-none-any.whl", ""),
    "a source instead of a wheel": ("torch-2.4.1-py3-none-any.whl", "torch-2.4.1.tar.gz"),
    "a wheel of another package": ("torch-2.4.1-py3-none-any.whl", "evil-2.4.1-py3-none-any.whl"),
    "a wheel of another Python": ("torch-2.4.1-py3-none-any.whl", "torch-2.4.1-cp39-cp39-linux_x86_64.whl"),
    "a wheel of Windows": ("torch-2.4.1-py3-none-any.whl", "torch-2.4.1-cp311-cp311-win_amd64.whl"),
    "a hash in capitals": ("sha256 = ", 'md5 = "0", SHA256 = '),
    "a short hash": ('hashes = { sha256 = "', 'hashes = { sha256 = "0'),
    "a hash of another kind": ("hashes = { sha256", "hashes = { md5"),
    "hashes of a text": ("hashes = {", 'hashes = "x", h = {'),
    "a size of a text": ("size = ", 'size = "1", s = '),
    "a size below nothing": ("size = ", "size = -"),
    "a size without end": ("size = ", "size = 9999999999999999"),
    "a time of a text": ("upload-time = 2024-09-04T19:00:00+00:00", f'upload-time = "{MARK}"'),
    "a time of a number": ("upload-time = 2024-09-04T19:00:00+00:00", "upload-time = 5"),
    "a time before all time": (
        "upload-time = 2024-09-04T19:00:00+00:00",
        "upload-time = 0001-01-01T00:00:00+14:00",
    ),
    "wheels of a text": ("wheels = [", 'wheels = "x"\nw = ['),
    "no wheels": ("wheels = [", "w = ["),
    "a wheel of a text": ("wheels = [{", 'wheels = ["x", {'),
    "deep": ('lock-version = "1.0"', 'lock-version = "1.0"\nx = ' + "[" * 3000 + "]" * 3000),
    "a nul": ('lock-version = "1.0"', 'lock-version = "1.0"\0'),
}


TORCH = 'name = "torch"'


@pytest.mark.parametrize(("old", "new"), WHEELS.values(), ids=WHEELS)
def test_a_spoiled_pylock_is_refused(old: str, new: str, place: Path) -> None:
    """Also where its digest was made to fit."""
    document, text = on_disk(Path("x.lock"))
    # the last table with the text: the one of torch, or the only one
    start = text.index(TORCH) if old in text[text.index(TORCH) :] else 0
    put(Path("x.lock"), document, text[:start] + text[start:].replace(old, new, 1))
    before = content(place)
    outcome = imgbuild("render", "--lock", "x.lock", "-o", "context", within=place)
    assert_clear(outcome, (2,), ("x.lock/", "imgbuild lock"))
    assert content(place) == before


BROKEN: dict[str, tuple[str, bytes | None]] = {
    "no image.json": (IMAGE, None),
    "no pylock.toml": (PYLOCK, None),
    "an empty image.json": (IMAGE, b""),
    "an empty pylock.toml": (PYLOCK, b""),
    "half an image.json": (IMAGE, json.dumps(DOCUMENT).encode()[:900]),
    "half a pylock.toml": (PYLOCK, PYLOCK_TEXT.encode()[:300]),
    "a pylock.toml with one more line": (PYLOCK, PYLOCK_TEXT.encode() + b"\n"),
    "another text as image.json": (IMAGE, PYLOCK_TEXT.encode()),
    "a list as image.json": (IMAGE, b"[]"),
    "a number as image.json": (IMAGE, b"1e999"),
    "no number as image.json": (IMAGE, b"NaN"),
    "deep image.json": (IMAGE, b"[" * 100_000),
    "giant image.json": (IMAGE, b" " * (16 * 2**20 + 1)),
    "binary image.json": (IMAGE, bytes(range(256))),
    "image.json in UTF-16": (IMAGE, json.dumps(DOCUMENT).encode("utf-16")),
    "a mark before image.json": (IMAGE, b"\xef\xbb\xbf" + json.dumps(DOCUMENT).encode()),
    "a nul in image.json": (IMAGE, b'{"schema": 1}\0'),
    "a number of many digits": (IMAGE, b'{"schema": ' + b"9" * 10_000 + b"}"),
    "a key twice": (IMAGE, b'{"schema": 2, ' + json.dumps(DOCUMENT).encode()[1:-1] + b', "schema": 7}'),
}


@pytest.mark.parametrize("command", [("render", "-o", "context"), ("build",)], ids=["render", "build"])
@pytest.mark.parametrize(("name", "held"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_of_a_lock_is_refused(
    command: tuple[str, ...], name: str, held: bytes | None, place: Path
) -> None:
    """Before an engine is asked."""
    on_disk(Path("x.lock"))
    if held is None:
        Path("x.lock", name).unlink()
    else:
        Path("x.lock", name).write_bytes(held)
    before = content(place)
    assert_clear(imgbuild(*command, "--lock", "x.lock", within=place), (2,), ("x.lock",))
    assert content(place) == before


@pytest.mark.parametrize("where", STACK_PLACES, ids=named)
def test_a_spoiled_stack_is_refused_or_harmless(where: tuple[str | int, ...]) -> None:
    """Every value of a stack.json is read with its type and its form."""
    for value in (*PAYLOADS, *WRONG):
        try:
            stack = stack_from_dict(spoiled(STACK, where, value), "s.json")
        except UsageError as error:
            assert "s.json" in error.what
            continue
        shown = (stack.identifier, stack.tag, *stack.packages, *stack.packages.values(), *stack.constraints)
        assert MARK not in "".join((*shown, *stack.constraints.values()))
    if len(where) == 1:
        with pytest.raises(UsageError, match=rf"s\.json lacks `{where[0]}`"):
            stack_from_dict(without(STACK, where), "s.json")


# Stacks that are well formed and that no matrix has.
STRANGE: dict[str, dict[str, Any]] = {
    "another cuda": {"cuda": "13.0"},
    "an old cuda": {"cuda": "9.0"},
    "a Python that has no wheel": {"python": "3.99"},
    "a base of the wrong Python": {"os": "ubuntu-24.04"},
    "an unknown base": {"os": "debian-99"},
    "another architecture": {"arch": "arm64"},
    "an unknown source": {"source": "nowhere"},
    "the framework's own index": {"source": "pytorch"},
    "no cudnn": {"cudnn": None},
    "no capabilities": {"compute_capabilities": []},
    "a matrix of another day": {"matrix": "sha256:" + "1" * 64},
}


@pytest.mark.parametrize("changes", STRANGE.values(), ids=STRANGE)
def test_a_stack_that_does_not_exist_is_refused(changes: dict[str, Any], place: Path) -> None:
    """`lock --stack` says what the matrix does not know, or goes on to the index."""
    document = {**STACK, "source": "pypi", **changes}
    del document["identifier"]
    made = stack_from_dict({**document, "identifier": _identifier(document)})
    Path("stack.json").write_text(json.dumps(stack_to_dict(made)))
    before = content(place)
    outcome = imgbuild("lock", "--stack", "stack.json", "--format", "json", within=place)
    assert_clear(outcome, (2, 3))
    assert content(place) == before


def _identifier(document: dict[str, Any]) -> str:
    """Give the identifier that a stack with these values has."""
    from imagebuilder.matrix.words import Cuda, Python

    cudnn = on_a_registry().stack.cudnn if document["cudnn"] else None
    stack = replace(
        on_a_registry().stack,
        cuda=Cuda.parse(document["cuda"]),
        cudnn=cudnn,
        python=Python.parse(document["python"]),
        os=document["os"],
        arch=document["arch"],
    )
    return stack.identifier


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(PAYLOADS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.sampled_from(PLACES), value=JSON)
def test_any_json_in_a_lock_is_harmless(where: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    """Whatever JSON has stands in place of a value."""
    folder = tmp_path / "x.lock"
    document, _ = on_disk(folder)
    put(folder, spoiled(document, where, value))
    assert_harmless(folder)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([IMAGE, PYLOCK]),
    at_part=st.floats(0, 1),
    removed=st.integers(0, 40),
    put_in=st.binary(max_size=12),
)
def test_any_bytes_in_a_lock_are_harmless(
    name: str, at_part: float, removed: int, put_in: bytes, tmp_path: Path
) -> None:
    """Bytes cut out of a file of a lock and others put in, the digest made to fit."""
    folder = tmp_path / "x.lock"
    document, _ = on_disk(folder)
    held = (folder / name).read_bytes()
    start = int(at_part * len(held))
    changed = held[:start] + put_in + held[start + removed :]
    if name == PYLOCK:
        put(folder, document, changed.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode())
    else:
        (folder / name).write_bytes(changed)
    assert_harmless(folder)
