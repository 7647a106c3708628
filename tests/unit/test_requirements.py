"""What a requirements file may say, and that everything else is refused with its file and line."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.errors import UsageError
from imagebuilder.lock.requirements import DEEPEST, LARGEST_FILE, LONGEST_LINE, read_requirements

SHA = "a" * 64


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str | bytes, name: str = "req.txt") -> list[str]:
    """Write a file and give its requirements as texts."""
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return [one.text for one in read_requirements([Path(name)])]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("# only a comment\n\n", []),
        ("numpy", ["numpy"]),
        ("\ufeffnumpy\r\n", ["numpy"]),
        ("numpy>=1.26,<2 # ABI\n", ["numpy<2,>=1.26"]),
        ("numpy>=1.26, \\\n  <2\nrequests\n", ["numpy<2,>=1.26", "requests"]),
        ("torch[opt-einsum]==2.4.1", ["torch[opt-einsum]==2.4.1"]),
        ('tomli; python_version < "3.11"', ['tomli; python_version < "3.11"']),
        ("numpy (>=1.26)", ["numpy>=1.26"]),
        ("a\n\tb\n", ["a", "b"]),
        (f"numpy==1.26.4 --hash=sha256:{SHA}", ["numpy==1.26.4"]),
    ],
)
def test_plain_requirements_are_read(text: str, wanted: list[str]) -> None:
    """Comments, continuations, extras, markers and hashes are what a requirements file may hold."""
    assert read(text) == wanted


def test_hashes_are_kept() -> None:
    """Every sha256 of a line is kept, over continuation lines too."""
    Path("req.txt").write_text(f"numpy==1 \\\n --hash=sha256:{SHA} \\\n --hash=sha256:{'b' * 64}\n")
    assert read_requirements([Path("req.txt")])[0].hashes == (SHA, "b" * 64)


def test_a_requirement_knows_its_lines() -> None:
    """The place of a requirement is the file as it was named, with its first and last line."""
    Path("req.txt").write_text("# one\nnumpy \\\n  <2\n")
    one = read_requirements([Path("req.txt")])[0]
    assert (one.place, one.first, one.last) == ("req.txt:2", 2, 3)


def test_includes_are_relative_to_the_file_that_includes() -> None:
    """`-r` and `-c` are followed from the folder of their file; below `-c` all are constraints."""
    Path("sub").mkdir()
    Path("sub/more.txt").write_text("pandas\n-c bounds.txt\n")
    Path("sub/bounds.txt").write_text("numpy<2\n-r bounds2.txt\n")
    Path("sub/bounds2.txt").write_text("scipy<1.14\n")
    Path("req.txt").write_text("--requirement=sub/more.txt\n-rsub/more.txt\n")
    found = read_requirements([Path("req.txt")])
    expected = [("pandas", False), ("numpy<2", True), ("scipy<1.14", True)]
    assert [(one.text, one.constraint) for one in found] == expected * 2
    assert {one.root for one in found} == {Path("req.txt")}
    assert found[1].place == "sub/bounds.txt:1"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--index-url https://user:secret@example.org/simple", "IMGBUILD_INDEX_PYPI"),
        ("--extra-index-url=https://example.org/whl/cu121", "--source"),
        ("-i https://example.org/simple", "IMGBUILD_INDEX_PYPI"),
        ("-f wheels", "IMGBUILD_INDEX_PYPI"),
        ("--find-links ./wheels", "IMGBUILD_INDEX_PYPI"),
        ("--no-index", "IMGBUILD_INDEX_PYPI"),
        ("--trusted-host example.org", "IMGBUILD_INDEX_PYPI"),
        ("-e .", "wheel"),
        ("--editable git+https://example.org/a.git#egg=a", "wheel"),
        ("--pre", "NAME>=1.0rc1"),
        ("--no-binary :all:", "remove the line"),
        ("--config-settings x=y", "remove the line"),
        ("git+https://example.org/a.git", "publish"),
        ("a @ https://example.org/a-1-py3-none-any.whl", "publish"),
        ("a@file:///tmp/a-1-py3-none-any.whl", "publish"),
        ("https://example.org/a-1.tar.gz", "publish"),
        ("./local", "publish"),
        ("../up", "publish"),
        ("/abs/path", "publish"),
        ("~/home", "publish"),
        ("a-1.0-py3-none-any.whl", "publish"),
        ("a.tar.gz", "publish"),
        ("numpy===1.26", "`==`"),
        ("numpy==${VERSION}", "not expanded"),
        ("numpy==", "PEP 508"),
        ("numpy>=1;rm -rf /", "PEP 508"),
        ("numpy; os.system('id')", "PEP 508"),
        ("numpy$(id)", "PEP 508"),
        ("numpy`id`", "PEP 508"),
        ("numpy|sh", "PEP 508"),
        ("numpy && id", "PEP 508"),
        ("=1.0", "PEP 508"),
        ("[extra]", "PEP 508"),
        ("numpy==1 --hash=md5:abc", "sha256"),
        ("numpy==1 --hash=sha256:xyz", "sha256"),
        ("numpy==1 --hash", "PEP 508"),
        ("-r https://example.org/req.txt", "`-r NAME`"),
        ("-r /etc/passwd", "`-r NAME`"),
        ("-r missing.txt", "no such file"),
        ("-r .", "folder"),
        ("-r", "remove the line"),
        ("num\x1b[31mpy", "no requirement has"),
        ("num\x00py", "no requirement has"),
        ("nümpy", "no requirement has"),
        ("numpy\u202e", "no requirement has"),
        ("numpy\x0b", "no requirement has"),
        ("numpy \\", "backslash"),
    ],
)
def test_what_a_file_may_not_say(line: str, said: str) -> None:
    """Each is a usage error that says what to do; where the line is the fault it names file and line."""
    with pytest.raises(UsageError) as caught:
        read(f"ok\n{line}\n" if not line.endswith("\\") else f"ok\n{line}")
    error = caught.value
    assert said in f"{error.what} {error.why} {error.hint}"
    assert "secret" not in f"{error.what} {error.why} {error.hint}"
    if "missing" not in line and line != "-r .":
        assert error.what.startswith("req.txt:2: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"ok\n\xff\xfe", "req.txt:2: not UTF-8"),
        (b"n" * (LARGEST_FILE + 1), "larger than"),
        (b"ok\n" + b"n" * (LONGEST_LINE + 1), "req.txt:2: the line is longer"),
        (b"ok\n" + b"a\\\n" * LONGEST_LINE, "req.txt:2: the line is longer"),
        ("numpy".encode("utf-16"), "not UTF-8"),
        (b"a\n" * 10_001, "more than"),
    ],
)
def test_files_that_cannot_be_meant(content: bytes, said: str) -> None:
    """Not UTF-8, too large, too long lines, too many of them: refused before anything is parsed."""
    with pytest.raises(UsageError, match=said):
        read(content)


def test_missing_folder_and_special_files() -> None:
    """A path that is no readable file is a usage error; a pipe is never opened."""
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    for name in ("missing", ".", "pipe", "loop", "n" * 300):
        with pytest.raises(UsageError):
            read_requirements([Path(name)])


def test_a_circle_of_includes_is_named() -> None:
    """Files that include each other are refused with the way round."""
    Path("a.txt").write_text("-r b.txt\n")
    Path("b.txt").write_text("-c a.txt\n")
    with pytest.raises(UsageError, match="includes itself") as caught:
        read_requirements([Path("a.txt")])
    assert "b.txt" in str(caught.value.why)


def test_includes_end_somewhere() -> None:
    """Neither a deep chain of includes nor a wide tree of them is followed without bound."""
    for depth in range(DEEPEST + 1):
        Path(f"{depth}.txt").write_text(f"-r {depth + 1}.txt\n")
    with pytest.raises(UsageError, match="files deep"):
        read_requirements([Path("0.txt")])
    for depth in range(DEEPEST - 1):
        Path(f"{depth}.txt").write_text(f"-r {depth + 1}.txt\n" * 40)
    Path(f"{DEEPEST - 1}.txt").write_text("")
    with pytest.raises(UsageError, match="more than"):
        read_requirements([Path("0.txt")])


@given(st.text(max_size=60) | st.text(alphabet="nump\\ \n\t-rc=<>.1#;'\"[]@:/", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text gives another failure than a usage error, and what is read is plain ASCII on one line."""
    try:
        found = read(text)
    except UsageError:
        return
    assert all(one.isascii() and one.isprintable() for one in found)
