"""Bad surroundings: odd places, files that are none, a broken environment, streams that end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from bad_locks import on_disk
from bad_requests import HOSTILE
from bad_run import assert_clear, content, imgbuild
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MAIN = "from imagebuilder.cli import main; main()"
RESOLVE = ("resolve", "--framework", "pytorch", "--cuda", "12.1")


def start(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own, with a limit in time."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-c", MAIN, *words], text=True, timeout=60, **{"capture_output": True, **options}
    )


def make_odd(kind: str, name: str) -> None:
    """Make something that is not a file: a pipe nobody writes to, a socket, links that lead nowhere."""
    if kind == "pipe":
        os.mkfifo(name)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(name)
    else:
        Path(name).symlink_to(
            {"loop": name, "dangling": "nowhere", "device": "/dev/zero", "folder": "."}[kind]
        )


@pytest.mark.parametrize("kind", ["pipe", "socket", "loop", "dangling", "device", "folder"])
@pytest.mark.parametrize(
    "words",
    [
        ("resolve", "-f", "pytorch", "--matrix", "odd"),
        ("matrix", "validate", "odd"),
        ("lock", "--stack", "odd"),
        ("lock", "-f", "pytorch", "-r", "odd"),
        ("build", "--lock", "odd"),
        ("render", "-f", "pytorch", "--templates", "odd/x"),
    ],
    ids=" ".join,
)
def test_what_is_no_file_is_refused_at_once(words: tuple[str, ...], kind: str, place: Path) -> None:
    """Nothing waits for a pipe, reads a device without end, or follows links in a circle."""
    make_odd(kind, "odd")
    assert_clear(imgbuild(*words, within=place), (2,), ("odd",))


def test_links_in_a_circle_in_a_templates_folder_are_refused(place: Path) -> None:
    """A folder of templates that holds itself is not walked through for ever."""
    Path("mine").mkdir()
    Path("mine/again").symlink_to(".")
    assert_clear(imgbuild("render", "-f", "pytorch", "--templates", "mine", within=place), (2,), ("again",))


@pytest.mark.parametrize("target", ["/dev/null", "pipe", "folder"])
def test_only_a_file_is_replaced_by_a_stack(target: str, place: Path) -> None:
    """`-o /dev/null` by root must not take the device away from everybody."""
    os.mkfifo("pipe")
    assert_clear(imgbuild(*RESOLVE, "-o", target, within=place), (4,), (target,))


@pytest.mark.parametrize("path", ["oci:folder", "oci:/dev/null", "oci:a\nb"])
def test_only_a_file_is_replaced_by_an_archive(path: str, place: Path) -> None:
    """Said before the build, not after it."""
    assert_clear(imgbuild("build", "-f", "pytorch", "--output", path, within=place), (2,), ("--output",))


def test_a_folder_of_somebody_is_never_replaced_by_a_context(place: Path) -> None:
    """A project with a Dockerfile and an image.json of its own stays what it is."""
    on_disk(Path("x.lock"))
    for name in ("Dockerfile", "image.json", "main.py"):
        Path("folder", name).write_text("mine")
    before = content(place)
    outcome = imgbuild("render", "--lock", "x.lock", "-o", "folder", within=place)
    assert_clear(outcome, (2,), ("`main.py`", "would be lost"))
    outcome = imgbuild("lock", "-f", "pytorch", "-o", "folder", within=place)
    assert_clear(outcome, (2,), ("`folder` is there already and is not a lock",))
    assert content(place) == before


@pytest.mark.parametrize("words", [("render", "--lock", "x.lock"), ("lock", "-f", "pytorch")], ids=" ".join)
@pytest.mark.parametrize("target", ["file", "file/below", "link", "x" * 300, "/dev/null"])
def test_an_output_that_cannot_be_is_refused(words: tuple[str, ...], target: str, place: Path) -> None:
    """Before anything is solved."""
    on_disk(Path("x.lock"))
    Path("link").symlink_to("file")
    before = content(place)
    assert_clear(imgbuild(*words, "-o", target, within=place), (2,), ("next: ",))
    assert content(place) == before


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("variable", ["IMGBUILD_MATRIX", "IMGBUILD_TEMPLATES", "IMGBUILD_INDEX_PYPI"])
def test_a_variable_is_refused_as_an_option_is(
    variable: str, value: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one counts as none."""
    monkeypatch.setenv(variable, value)
    outcome = imgbuild("build", "-f", "pytorch", within=place)
    if outcome.code == 2:
        assert_clear(outcome)
    else:  # the index is asked for after the engine
        assert_clear(outcome, (4,), ("engine",))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DOCKER_HOST", "nonsense"),
        ("DOCKER_HOST", "tcp://:::::"),
        ("DOCKER_HOST", "ssh://"),
        ("DOCKER_CERT_PATH", "/nowhere"),
        ("DOCKER_TLS_VERIFY", "yes"),
        ("TMPDIR", "/nowhere"),
    ],
)
def test_a_broken_way_to_the_engine_is_an_outside_error(
    variable: str, value: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the variables of docker hold."""
    monkeypatch.setenv(variable, value)
    assert_clear(imgbuild("test", "image:1", within=place), (4,))


@pytest.mark.parametrize("held", [b"", b"{", b"[]", b"null", b"\x00\xff", b"[" * 100_000, b'{"schema": 1}'])
def test_a_damaged_cache_is_passed_over(held: bytes, place: Path) -> None:
    """The facts are read again from the file that they are from."""
    for file in (place / "cache").rglob("*.json"):
        file.write_bytes(held)
    assert imgbuild(*RESOLVE, within=place).code == 0


@pytest.mark.parametrize("kind", ["file", "none", "loop", "relative"])
def test_a_cache_that_cannot_be_is_no_fault(kind: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache is never needed, and neither is a home."""
    (place / "loop").symlink_to(place / "loop")
    where = {"file": str(place / "work/file"), "none": "", "loop": str(place / "loop"), "relative": "cache"}
    monkeypatch.setenv("XDG_CACHE_HOME", where[kind])
    monkeypatch.delenv("HOME")
    if kind == "none":
        monkeypatch.setenv("HOME", str(place / "work/file"))
    outcome = imgbuild(*RESOLVE, "--format", "json", within=place)
    assert outcome.code == 0
    assert json.loads(outcome.stdout)["framework"]["name"] == "pytorch"


def test_a_current_folder_that_is_gone(place: Path) -> None:
    """What needs none works; what would write into it says so."""
    Path("gone").mkdir()
    os.chdir("gone")
    (place / "work" / "gone").rmdir()
    assert imgbuild(*RESOLVE, within=place).code == 0
    assert_clear(imgbuild(*RESOLVE, "-o", "stack.json", within=place), (4,), ("stack.json",))
    assert_clear(imgbuild("lock", "-f", "pytorch", "-r", "x", within=place), (2,))
    assert_clear(imgbuild("render", "--lock", "x", within=place), (2,))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_that_cannot_be_written(place: Path) -> None:
    """The output is refused, nothing else is tried."""
    Path("folder").chmod(0o500)
    assert_clear(imgbuild(*RESOLVE, "-o", "folder/x", within=place), (4,), ("folder/x",))


@pytest.mark.parametrize("limit", ["bytes", "terminal"])
def test_names_that_are_not_printable_do_not_steer_the_terminal(limit: str, place: Path) -> None:
    """An escape sequence in a name is shown, not sent; bytes that are not UTF-8 are no fault."""
    name = "\udcff.yaml" if limit == "bytes" else "\x1b]0;x\x07.yaml"
    outcome = imgbuild("resolve", "-f", "pytorch", "--matrix", name, "--format", "json", within=place)
    assert_clear(outcome, (2,), (r"\udcff" if limit == "bytes" else r"\x1b]0;x\x07",))


def test_streams_that_are_closed_or_full_are_no_fault(place: Path) -> None:
    """A reader that goes away ends the command quietly, a full disk is said; nobody sees a traceback."""
    with Path("/dev/full").open("w") as full:
        done = start(*RESOLVE, "--format", "json", stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (4, "imgbuild: the output cannot be written")
    for closed in ((1,), (2,), (0, 1, 2)):
        keep = f"import os; [os.close(one) for one in {closed}]; os.execv({sys.executable!r}, "
        code = f"{keep}{[sys.executable, '-c', MAIN, *RESOLVE]!r})"
        done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=60)
        assert done.returncode == 0
        assert "Traceback" not in done.stderr + done.stdout
    reader, writer = os.pipe()
    os.close(reader)
    done = start("matrix", "show", stdout=writer, stderr=subprocess.PIPE, capture_output=False)
    os.close(writer)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}]
)
def test_a_poor_locale_is_no_fault(locale: dict[str, str], place: Path) -> None:
    """JSON is plain ASCII, other text is written as far as the locale can."""
    environment = {**os.environ, **locale, "NO_COLOR": "1"}
    done = start(*RESOLVE, "--format", "json", env=environment)
    assert done.returncode == 0
    assert json.loads(done.stdout)["cuda"] == "12.1"
    assert start(*RESOLVE, "--explain", env=environment).returncode == 0
    done = start("resolve", "-f", "pytorch", "--os", "débian", env=environment)
    assert done.returncode == 2
    assert "imgbuild: `--os` holds a character" in done.stderr


TEXTS = (
    st.text(max_size=40)
    | st.sampled_from(list(HOSTILE.values()))
    | st.from_regex(r"[\d.]{1,9}", fullmatch=True)
)
OPTIONS = ("--framework", "--cuda", "--cudnn", "--python", "--os", "--gpu", "--driver", "--source", "--arch")
FUZZ = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(options=st.lists(st.tuples(st.sampled_from(OPTIONS), TEXTS), min_size=1, max_size=3))
def test_any_text_in_any_option_gives_an_answer(options: list[tuple[str, str]], place: Path) -> None:
    """A stack, or a refusal with one JSON document; an argument cannot hold a zero byte."""
    words = [word.replace("\0", "") for option in options for word in option]
    outcome = imgbuild("resolve", "-f", "pytorch", *words, "--format", "json", within=place)
    if outcome.code:
        assert_clear(outcome, (2, 3))
    assert isinstance(json.loads(outcome.stdout), dict)


@FUZZ
@given(
    held=st.binary(max_size=200)
    | st.text(alphabet="gpus: {}[]'\"&*!|>-#\n\t%@`a1", max_size=80).map(str.encode)
)
def test_any_bytes_as_a_matrix_are_refused(held: bytes, place: Path) -> None:
    """No bytes end in a traceback."""
    Path("ours.yaml").write_bytes(held)
    assert_clear(imgbuild("matrix", "validate", "ours.yaml", within=place), (2,), ("ours.yaml",))


@FUZZ
@given(
    held=st.binary(max_size=120)
    | st.text(alphabet="ab-=<>~!.,;@[]()'\"$`#\\ \n\r\t1/:{}%*&|", max_size=60).map(str.encode)
)
def test_any_bytes_as_requirements_are_read_or_refused(held: bytes, place: Path) -> None:
    """What is read gets as far as the index, which this place has none of."""
    Path("req.txt").write_bytes(held)
    outcome = imgbuild("lock", "-f", "pytorch", "-r", "req.txt", "--format", "json", within=place)
    assert_clear(outcome, (2, 3))
