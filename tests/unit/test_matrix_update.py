"""`imgbuild matrix update` against an index of our own with small wheels."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from index_server import Index, serve
from small_matrix import SMALL

from imagebuilder.cli.matrix import command
from imagebuilder.errors import DifferenceError, ImgbuildError, OutsideError, UsageError
from imagebuilder.matrix.validate import validate
from imagebuilder.remote import client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What was read of the index in the small matrix is said as the packaged one says it.
SOURCES = "".join(
    f"  {name}: {{grade: A, what: read}}\n"
    for name in ("pypi-index", "pypi-meta", "wheel-version", "wheel-elf", "wheel-arch")
)
MATRIX = SMALL.replace("  notes: {grade: B", SOURCES + "  notes: {grade: B").replace(
    "src: {released: index, companions.torchvision: index}",
    "src: {released: pypi-index, requires: pypi-meta, companions.torchvision: pypi-meta}",
)
CUDA = ("nvidia-cudnn-cu12==8.9.2.26", "nvidia-nccl-cu12==2.18.1", 'triton==2.2.0; python_version < "3.12"')
# Larger than what is read at once, and no smaller when it is compressed.
NOISE = b"".join(sha256(bytes(divmod(number, 256))).digest() for number in range(20_000))
LIBRARY = NOISE + b"\x00sm_50 sm_70 sm_90 compute_90\x00" + NOISE


def torch(index: Index, version: str, *, tag: str = "cp311-cp311-manylinux1_x86_64", **facts: Any) -> None:
    """Add a wheel of torch for CUDA 12.1 as it is built upstream, in small."""
    cuda = facts.pop("cuda", "12.1")
    stated = f"__version__ = '{version}+cu121'\ncuda: Optional[str] = {cuda!r}\ngit_version = 'abc123'\n"
    members = {
        "torch/version.py": stated.encode(),
        "torch/lib/libtorch_python.so": LIBRARY,
        "torch/lib/libc10.so": b"\x00GLIBC_2.2.5\x00GLIBC_2.17\x00GLIBCXX_3.4.19\x00",
    }
    requires = facts.pop("requires", (*CUDA, "sympy", "networkx>=2.5"))
    index.add("torch", version, tag=tag, requires=requires, python=">=3.8", members=members)


@pytest.fixture
def index(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Serve releases 2.1.0, which the matrix has, and 2.2.0, which it lacks; `matrix.yaml` is the matrix."""
    monkeypatch.setattr(client, "PAUSE", 0.01)
    (place / "work" / "matrix.yaml").write_text(MATRIX)
    made = Index()
    for python in ("cp38", "cp310", "cp311"):
        tag = f"{python}-{python}-manylinux1_x86_64"
        torch(made, "2.1.0", tag=tag, requires=(*CUDA[:2], "triton==2.1.0", "sympy>=1.0"))
    torch(made, "2.2.0")
    torch(made, "2.2.0", tag="cp312-cp312-manylinux1_x86_64")
    torch(made, "2.2.0", tag="cp311-cp311-manylinux2014_aarch64", cuda=None)
    torch(made, "2.3.0rc1")
    made.add("torchvision", "0.16.0", requires=("torch==2.1.0",))
    made.add("torchvision", "0.17.0", requires=("torch==2.2.0",))
    made.add("torchaudio", "2.9.0", requires=("torch>=2.2",))
    with serve(made):
        monkeypatch.setenv("IMGBUILD_INDEX_PYPI", made.url)
        yield made


def run(*words: str) -> tuple[Result, ImgbuildError | None]:
    """Run the command on `matrix.yaml`; gives what it printed and the error that it ended with."""
    result = CliRunner().invoke(command, ["update", "matrix.yaml", *words])
    error = result.exception
    if error is not None and not isinstance(error, ImgbuildError):
        raise error
    return result, error


def report(*words: str) -> dict[str, Any]:
    """Run it for its report; contradictions and differences are in it either way."""
    result, error = run("--format", "json", *words)
    if error is None:
        found: dict[str, Any] = json.loads(result.stdout)
        return found
    assert isinstance(error, DifferenceError)
    return error.to_dict()


@pytest.mark.usefixtures("index")
def test_a_new_release_is_added_with_its_facts_and_sources(place: Path) -> None:
    """A release that the matrix lacks is derived, written in canonical form, and passes every check."""
    result, error = run("--release", "2.2.0")
    assert error is None
    text = (place / "work" / "matrix.yaml").read_text()
    validate(place / "work" / "matrix.yaml")
    gone = [line for line in result.stdout.splitlines() if line.startswith("-") and line[:3] != "---"]
    assert gone == []
    release = text[text.index("'2.2.0':") :]
    for fact in (
        "released: '2026-01-02'", "requires_python: '>=3.8'", "requires: {networkx: '>=2.5'}",
        "triton: '2.2.0'",
        "triton_python_below: '3.12'", "companions: {torchvision: ['0.17.0'], torchaudio: ['2.9.0']}",
        "cuda: '12.1'",
        "cudnn: '8.9.2.26'", "nccl: '2.18.1'", "commit: abc123", "local_version: '2.2.0+cu121'",
        "python: [cp311, cp312]", "glibc: '2.5'", "glibc_measured: '2.17'", "glibcxx: '3.4.19'",
        "cubin: [sm_50, sm_70, sm_90]", "ptx: [compute_90]", "grade: A", "cpu-aarch64:",
        "cubin: wheel-arch (torch-2.2.0-cp311-cp311-manylinux1_x86_64.whl)", "cuda: wheel-version",
        "companions.torchaudio: 'pypi-meta (companion wheel asks for torch>=2.2)'",
    ):  # fmt: skip
        assert fact in release, fact


@pytest.mark.usefixtures("index")
def test_contradictions_are_reported_and_stay(place: Path) -> None:
    """What the index tells otherwise is named with both values; the matrix keeps its own, exit code 7."""
    broken = MATRIX.replace("python: [cp38, cp310, cp311]", "python: [cp38, cp39]")
    broken = broken.replace("companions: {torchvision: ['0.16.0']}", "companions: {torchvision: ['0.15.0']}")
    (place / "work" / "matrix.yaml").write_text(broken)
    found = report("--release", "2.1.0")
    where = "frameworks.pytorch.releases.2.1.0"
    contradicted = {one["fact"]: (one["matrix"], one["index"]) for one in found["contradictions"]}
    assert contradicted[f"{where}.companions.torchvision"] == (["0.15.0"], ["0.16.0"])
    wheels = f"{where}.builds.cu121.wheels.x86_64"
    assert contradicted[f"{wheels}.python"] == (["cp38", "cp39"], ["cp38", "cp310", "cp311"])
    text = (place / "work" / "matrix.yaml").read_text()
    assert "python: [cp38, cp39]" in text
    assert "torchvision: ['0.15.0']" in text
    _, error = run("--release", "2.1.0")
    assert error is not None
    assert error.exit_code == 7
    assert "the matrix has 0.15.0, the index 0.16.0 [pypi-meta" in (error.why or "")


@pytest.mark.usefixtures("index")
def test_hand_kept_facts_stay(place: Path) -> None:
    """Ceilings, other indexes, notes and builds of other indexes are not the default index's affair."""
    report()
    text = (place / "work" / "matrix.yaml").read_text()
    for kept in ("why: NumPy 1 ABI", "also_on: [own]", "version: '2.1.0+cu118'", "# A small matrix."):
        assert kept in text


@pytest.mark.usefixtures("index")
def test_check_writes_nothing(place: Path) -> None:
    """With `--check` a new fact is a difference: exit code 7 and an unchanged file."""
    _, error = run("--check", "--release", "2.2.0")
    assert isinstance(error, DifferenceError)
    assert (place / "work" / "matrix.yaml").read_text() == MATRIX


@pytest.mark.usefixtures("index")
def test_a_second_run_finds_nothing_more(place: Path) -> None:
    """What was written agrees with the index, and `-o` leaves the file itself alone."""
    run("--release", "2.2.0", "-o", "new.yaml")
    assert (place / "work" / "matrix.yaml").read_text() == MATRIX
    (place / "work" / "new.yaml").replace(place / "work" / "matrix.yaml")
    found = report("--check", "--release", "2.2.0")
    assert (found["new"], found["contradictions"]) == ([], [])
    assert found["equal"] > 20


def test_a_second_run_asks_for_pages_alone(index: Index) -> None:
    """Files are read once: again only pages are asked for, and those that did not change are not sent."""
    first = report("--check")
    index.asked.clear()
    second = report("--check")
    assert [path for path in index.asked if path.startswith("/files/")] == []
    assert second["bytes"] == 0
    assert second["equal"] == first["equal"]


def test_a_broken_run_goes_on_where_it_was(index: Index) -> None:
    """An index that falls ill ends the run with exit code 4; the next one does not read again what it has."""
    report("--check", "--release", "2.1.0")
    read = {path for path in index.asked if path.startswith("/files/")}
    index.asked.clear()
    index.status = 500
    _, error = run("--release", "2.2.0")
    assert isinstance(error, OutsideError)
    index.status = None
    index.asked.clear()
    assert run("--release", "2.2.0")[1] is None
    assert not read & set(index.asked)


def test_an_overloaded_index_is_asked_again(index: Index) -> None:
    """Statuses 429 and 503 are followed by a pause and another try."""
    index.faults = [503, 429, 503]
    assert run("--release", "2.2.0")[1] is None
    assert index.faults == []


def test_an_index_without_json_tells_less(index: Index) -> None:
    """A page of PEP 503 has no dates and sizes: those facts are not told, and not held against the matrix."""
    index.html = True
    assert run("--release", "2.2.0", "-o", "new.yaml")[1] is None
    found = report("--check", "--release", "2.2.0")
    facts = {one["fact"].rpartition("2.2.0.")[2]: one["index"] for one in found["new"]}
    assert "released" not in facts
    assert facts["builds.cu121.wheels.x86_64.python"] == ["cp311", "cp312"]


def test_credentials_are_sent_and_never_shown(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """User and password of the address reach pages and files of its host, and no message."""
    index.password = "secret-word"
    monkeypatch.setenv("IMGBUILD_INDEX_PYPI", index.with_password)
    result, error = run("--check", "--release", "2.2.0", "--format", "json")
    assert isinstance(error, DifferenceError)
    assert "secret-word" not in result.output + str(error.to_dict())
    monkeypatch.setenv("IMGBUILD_INDEX_PYPI", index.url)
    _, error = run("--release", "2.2.0")
    assert isinstance(error, OutsideError)
    assert "401" in (error.why or "")


def test_an_index_without_ranges_is_refused(index: Index) -> None:
    """Wheels are never fetched whole: an index that answers a range with everything is named."""
    index.ranges = False
    _, error = run("--release", "2.2.0")
    assert isinstance(error, OutsideError)
    assert "gives no parts of files" in error.what


def test_a_damaged_wheel_is_refused(index: Index, place: Path) -> None:
    """A wheel that cannot be read is an error that names it, and nothing is written."""
    name = next(one for one in index.files if one.startswith("torch-2.2.0-cp311-cp311-manylinux1"))
    at = index.files[name].index(b"torch/version.py") + len("torch/version.py") + 4
    index.files[name] = index.files[name][:at] + b"xxxx" + index.files[name][at + 4 :]
    _, error = run("--release", "2.2.0")
    assert isinstance(error, OutsideError)
    assert name in error.what
    assert (place / "work" / "matrix.yaml").read_text() == MATRIX


def test_a_release_that_needs_more_is_left_out(index: Index, place: Path) -> None:
    """A release for a CUDA that the matrix has no toolkit of is not added, and the reason is told."""
    torch(index, "2.4.0", cuda="12.9")
    found = report("--release", "2.4.0")
    assert found["new"] == []
    assert "12.9" in " ".join(found["blocked"]["2.4.0"])
    assert "2.4.0" not in (place / "work" / "matrix.yaml").read_text()


def test_what_no_matrix_can_hold_is_left_out(index: Index) -> None:
    """Texts of an index are anybody's: a release with one that does not fit is not added, and told."""
    torch(index, "2.4.0", cuda="12.1; rm -rf")
    assert "`12.1; rm -rf` is not a CUDA version" in " ".join(
        report("--release", "2.4.0")["blocked"]["2.4.0"]
    )


def test_a_library_release_that_is_pinned_comes_along(index: Index, place: Path) -> None:
    """A cuDNN that a new release pins and the matrix lacks gets its row from the index."""
    index.add("nvidia-cudnn-cu12", "9.1.0.70", tag="py3-none-manylinux2014_x86_64")
    torch(index, "2.4.0", requires=("nvidia-cudnn-cu12==9.1.0.70", "nvidia-nccl-cu12==2.18.1"))
    assert run("--release", "2.4.0")[1] is None
    text = (place / "work" / "matrix.yaml").read_text()
    assert "'9.1.0.70':\n    released: '2026-01-02'\n    cuda_majors: [12]\n    glibc: '2.17'\n" in text


def test_a_release_that_vanished_is_reported(index: Index) -> None:
    """A release of the matrix that the index has no wheel of any more is a contradiction."""
    for name in [one for one in index.files if one.startswith("torch-2.1.0-")]:
        del index.files[name]
    facts = [one["fact"] for one in report("--framework", "pytorch>=2.1")["contradictions"]]
    assert facts == ["frameworks.pytorch.releases.2.1.0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--release", "9.9.9"), "no wheel of torch 9.9.9"),
        (("--release", "newest"), "Invalid version"),
        (("--framework", "pytroch"), "pytroch"),
    ],
)
@pytest.mark.usefixtures("index")
def test_bad_requests_are_named(words: tuple[str, ...], said: str) -> None:
    """A release or framework that is not known is a usage error."""
    _, error = run(*words)
    assert isinstance(error, UsageError)
    assert said in error.what


def test_a_folder_is_no_index(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index in a folder is refused in a sentence: parts of wheels are read over HTTP."""
    (place / "work" / "matrix.yaml").write_text(MATRIX)
    monkeypatch.setenv("IMGBUILD_INDEX_PYPI", place.as_uri())
    _, error = run()
    assert isinstance(error, UsageError)
    assert "not read over HTTP" in error.what
