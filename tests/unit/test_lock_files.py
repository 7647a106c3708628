"""A lock on disk: the same bytes for the same lock, read back whole, and every wrong value refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from locks import make_base, make_lock, make_wheel

from imagebuilder.errors import UsageError
from imagebuilder.lock import Lock
from imagebuilder.lock.files import IMAGE, PYLOCK, read_lock, write_lock
from imagebuilder.lock.pylock import write_pylock
from imagebuilder.matrix.words import Glibc, Python

GLIBC = Glibc.parse("2.36")


def complete(**changes: Any) -> Lock:
    """Give a lock with a wheel of an extra, one of the user, one of another index, a note, a requirement."""
    lock = make_lock(
        extra_wheels=(make_wheel("ipykernel", "7.0"),),
        user_wheels=(make_wheel("timm", "1.0", uploaded="2026-01-02T03:04:05+00:00"),),
        requirements=("timm>=1",),
        sources={"pytorch": "https://example.org/whl/cu121"},
        notes=("worth knowing",),
        **changes,
    )
    wheels = lock.all_wheels
    ours = tuple(
        replace(wheel, source="pytorch") if wheel.name == "torch" else wheel
        for wheel in sorted(lock.wheels, key=lambda one: one.name)
    )
    return replace(lock, wheels=ours, pylock=write_pylock(wheels, lock.stack.python))


def on_disk(folder: Path, lock: Lock | None = None) -> Path:
    """Write a lock and give its folder."""
    write_lock(lock or complete(), GLIBC, folder)
    return folder


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the document of image.json."""
    document = json.loads((folder / IMAGE).read_text())
    change(document)
    (folder / IMAGE).write_text(json.dumps(document))


def edit_pylock(folder: Path, old: str, new: str) -> None:
    """Change pylock.toml and the digest that image.json has of it."""
    text = (folder / PYLOCK).read_text()
    assert old in text
    changed = text.replace(old, new, 1)
    (folder / PYLOCK).write_text(changed)
    edit(folder, lambda doc: doc.update(pylock_sha256=sha256(changed.encode()).hexdigest()))


def test_a_lock_is_read_back_as_it_was(tmp_path: Path) -> None:
    """Writing and reading gives an equal lock; a base from a registry too."""
    assert read_lock(on_disk(tmp_path / "a.lock")) == complete()
    base = make_base(
        origin="registry",
        image="docker.io/library/debian:bookworm-slim",
        environment={"PATH": "/bin:/usr/bin", "X": "$(id) `id`"},
        note="found",
    )
    assert read_lock(on_disk(tmp_path / "b.lock", complete(base=base))) == complete(base=base)


def test_the_same_lock_gives_the_same_bytes(tmp_path: Path) -> None:
    """No time, no path and no order of this run is in the files."""
    one, other = on_disk(tmp_path / "one.lock"), on_disk(tmp_path / "deeper" / "other.lock")
    for name in (IMAGE, PYLOCK):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    assert sorted(path.name for path in one.iterdir()) == [IMAGE, PYLOCK]


def test_pylock_is_valid_by_the_standard(tmp_path: Path) -> None:
    """`packaging` takes the file for PEP 751, with every wheel and hash."""
    import tomllib

    from packaging.pylock import Pylock

    document = tomllib.loads((on_disk(tmp_path / "a.lock") / PYLOCK).read_text())
    parsed = Pylock.from_dict(document)
    parsed.validate()
    assert {package.name for package in parsed.packages} >= {"torch", "timm"}
    assert all(wheel.hashes["sha256"] for package in parsed.packages for wheel in package.wheels or ())


def test_a_lock_replaces_a_lock_and_nothing_else(tmp_path: Path) -> None:
    """An older lock goes, a folder or a file that is none stays, and nothing is left beside them."""
    folder = on_disk(tmp_path / "a.lock")
    (folder / "extra").touch()
    on_disk(folder)
    assert not (folder / "extra").exists()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine").touch()
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("notes", "file", "dangling"):
        with pytest.raises(UsageError, match="is not a lock"):
            on_disk(tmp_path / name)
    with pytest.raises(UsageError, match="cannot write"):
        on_disk(tmp_path / "file" / "below.lock")
    assert {path.name for path in tmp_path.iterdir()} == {"a.lock", "notes", "file", "dangling"}


def test_a_changed_pylock_is_noticed(tmp_path: Path) -> None:
    """One other byte in pylock.toml is enough, and the file is named."""
    folder = on_disk(tmp_path / "a.lock")
    (folder / PYLOCK).write_text((folder / PYLOCK).read_text() + "\n")
    with pytest.raises(UsageError, match=r"pylock\.toml") as caught:
        read_lock(folder)
    assert "SHA-256" in str(caught.value.why)


def test_a_newer_schema_is_said_to_be_newer(tmp_path: Path) -> None:
    """The schema is looked at before anything that it may have changed."""
    folder = on_disk(tmp_path / "a.lock")
    (folder / IMAGE).write_text('{"schema": 99, "what": "ever"}')
    with pytest.raises(UsageError) as caught:
        read_lock(folder)
    assert "newer" in str(caught.value.why)


@pytest.mark.parametrize("name", [IMAGE, PYLOCK])
@pytest.mark.parametrize("content", [None, b"", b"\xff", b"{", b"[]", b"[" * 100_000, b"a = 1"])
def test_files_that_are_no_lock(tmp_path: Path, name: str, content: bytes | None) -> None:
    """A missing, empty, binary or foreign file is a usage error."""
    folder = on_disk(tmp_path / "a.lock")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
        if name == PYLOCK:
            edit(folder, lambda doc: doc.update(pylock_sha256=sha256(content).hexdigest()))
    with pytest.raises(UsageError):
        read_lock(folder)


def test_no_folder(tmp_path: Path) -> None:
    """A path that is not there, or is a file, is a usage error that names it."""
    (tmp_path / "file").touch()
    for name in ("missing.lock", "file"):
        with pytest.raises(UsageError, match=name):
            read_lock(tmp_path / name)


EVIL = [
    "x;rm -rf /",
    "$(id)",
    "`id`",
    "a\nRUN id",
    "a b",
    "\"'",
    "a\\",
    "${X}",
    "a|b",
    "a&b",
    "<a>",
    "\x1b[0m",
    "",
]
BASE_TEXTS = ["name", "origin", "image", "digest"]
DEB_TEXTS = ["name", "version", "arch", "filename", "sha256"]


@pytest.mark.parametrize("evil", EVIL)
def test_nothing_in_image_json_reaches_a_shell(tmp_path: Path, evil: str) -> None:
    """Every text that enters a Dockerfile or a command has a grammar without shell syntax."""
    folder = on_disk(tmp_path / "a.lock", complete(base=make_base(image="docker.io/library/debian:12")))
    good = (folder / IMAGE).read_text()
    changes: list[Callable[[dict[str, Any]], object]] = [
        *(lambda doc, key=key: doc["base"].update({key: evil}) for key in BASE_TEXTS),
        *(lambda doc, key=key: doc["base"]["debs"][0].update({key: evil}) for key in DEB_TEXTS),
        lambda doc: doc.update(tool=evil),
        lambda doc: doc.update(glibc=evil),
        lambda doc: doc.update(pylock_sha256=evil),
        lambda doc: doc.update(installer=evil),
        lambda doc: doc.update(sources={"pytorch": evil}),
        lambda doc: doc.update(sources={"pytorch": f"https://example.org/{evil}?"}),
        lambda doc: doc.update(sources={evil: "https://example.org"}),
        lambda doc: doc.update(own_wheels={"torch": evil}),
        lambda doc: doc.update(user_wheels=[evil]),
        lambda doc: doc["stack"].update(os=evil),
        lambda doc: doc["stack"]["framework"].update(version=evil),
        lambda doc: doc["stack"]["packages"].update({evil: "1.0"}),
    ]
    for change in changes:
        (folder / IMAGE).write_text(good)
        edit(folder, change)
        with pytest.raises(UsageError) as caught:
            read_lock(folder)
        assert "\x1b" not in f"{caught.value.what}{caught.value.why}"


@pytest.mark.parametrize("evil", [one for one in EVIL if one])
@pytest.mark.parametrize("old", ["torch", "2.4.1", "example.org", "torch-2.4.1-py3-none-any.whl"])
def test_nothing_in_pylock_reaches_a_shell(tmp_path: Path, old: str, evil: str) -> None:
    """Names, versions, file names and addresses of wheels have a grammar; quoting cannot get round it."""
    folder = on_disk(tmp_path / "a.lock")
    edit_pylock(folder, old, json.dumps(evil)[1:-1].replace("\\u001b", "\\u001B"))
    with pytest.raises(UsageError):
        read_lock(folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('lock-version = "1.0"', 'lock-version = "2.0"', "lock-version"),
        ('name = "torch"', 'name = "Torch"', "normalised"),
        ('name = "torch"', 'name = "numpy"', "not a wheel of numpy"),
        ('name = "torch"', 'nome = "torch"', r"packages\[\d\].name"),
        ('version = "2.4.1"', 'version = "2.4.01"', "normal form"),
        ('version = "2.4.1"', 'version = "2.5.0"', "not a wheel of torch"),
        ('version = "2.4.1"', "version = 2.4", "normal form"),
        ('url = "https://example.org/torch', 'url = "ftp://example.org/torch', "url"),
        ('url = "https://example.org/torch', 'url = "https://u:p@example.org/torch', "url"),
        ('url = "https://example.org/torch', 'url = "//example.org/torch', "url"),
        ("torch-2.4.1-py3-none-any.whl", "torch-2.4.1.tar.gz", "wheel"),
        ("torch-2.4.1-py3-none-any.whl", "torch-2.4.1-cp311-cp311-win_amd64.whl", "fits"),
        ("torch-2.4.1-py3-none-any.whl", "torch-2.4.1-cp312-cp312-manylinux_2_17_x86_64.whl", "fits"),
        ("torch-2.4.1-py3-none-any.whl", "torch-2.4.1-cp311-cp311-manylinux_2_39_x86_64.whl", "fits"),
        ("torch-2.4.1-py3-none-any.whl", "torch-2.4.1-cp311-cp311-manylinux_2_17_aarch64.whl", "fits"),
        ("sha256 = ", "md5 = ", "SHA-256"),
        ('sha256 = "', 'sha256 = "0', "SHA-256"),
        ("size = ", "size = -", "size"),
        ("size = ", "size = 1.", "size"),
        ("upload-time = 2024", 'upload-time = "2024', "pylock"),
        ("[[packages]]", "[packages]", "pylock"),
        ("wheels = [", "sdist = [", "wheels"),
        ("wheels = [{", "wheels = [1, {", "table"),
    ],
)
def test_wrong_values_in_pylock(tmp_path: Path, old: str, new: str, said: str) -> None:
    """The path of the value or what it should be is in the message."""
    folder = on_disk(tmp_path / "a.lock")
    edit_pylock(folder, old, new)
    with pytest.raises(UsageError) as caught:
        read_lock(folder)
    import re

    assert re.search(said, f"{caught.value.what}: {caught.value.why}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda doc: doc.pop("base"), "lacks `base`"),
        (lambda doc: doc.update(extra=1), "`extra`"),
        (lambda doc: doc.update(schema="1"), "`schema`"),
        (lambda doc: doc.update(schema=True), "`schema`"),
        (lambda doc: doc.update(stack=None), "stack is not an object"),
        (lambda doc: doc.update(base=[]), "base is not an object"),
        (lambda doc: doc.update(user_wheels="timm"), "`user_wheels`"),
        (lambda doc: doc.update(user_wheels=["other"]), "`user_wheels`"),
        (lambda doc: doc.update(user_wheels=["torch"]), "`user_wheels`"),
        (lambda doc: doc.update(own_wheels={"torch": "other"}), "`own_wheels`"),
        (lambda doc: doc.update(own_wheels={"other": "pytorch"}), "`own_wheels`"),
        (lambda doc: doc.update(installer=write_pylock([make_wheel("pip", "1")], Python.parse("3.11"))),
         "`installer`"),
        (lambda doc: doc.update(installer=7), "`installer`"),
        (lambda doc: doc.update(requirements=[1]), r"`requirements\[0\]`"),
        (lambda doc: doc["base"].update(origin="registry", image=None), "`image`"),
        (lambda doc: doc["base"].update(more=1), "`more`"),
        (lambda doc: doc["base"].update(environment={"A": 1}), "`A`"),
        (lambda doc: doc["base"]["debs"].append({}), "lacks `name`"),
        (lambda doc: doc["base"]["debs"].append(1), r"debs\[2\] is not an object"),
        (lambda doc: doc["base"]["debs"][0].update(size=-1), "`size`"),
        (lambda doc: doc["base"]["debs"][0].update(size=1.5), "`size`"),
        (lambda doc: doc["stack"]["packages"].update(numpy="1.26.4"), "`stack.packages`"),
    ],
)  # fmt: skip
def test_wrong_values_in_image_json(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    """The file and the path of the value are in the message."""
    folder = on_disk(tmp_path / "a.lock")
    edit(folder, change)
    with pytest.raises(UsageError, match=said):
        read_lock(folder)


def leaves(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Give the path of every value of a document."""
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    return [path, *(leaf for key, value in items for leaf in leaves(value, (*path, key)))]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_change_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever stands in place of a value: a usage error, or a lock; never another failure."""
    folder = on_disk(tmp_path_factory.mktemp("lock") / "a.lock")
    document = json.loads((folder / IMAGE).read_text())
    path = data.draw(st.sampled_from(leaves(document)))
    value = data.draw(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=20)
        | st.just([])
        | st.just({})
    )
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    if path:
        holder[path[-1]] = value
    else:
        document = value
    (folder / IMAGE).write_text(json.dumps(document))
    try:
        assert isinstance(read_lock(folder), Lock)
    except UsageError as error:
        assert error.exit_code == 2
