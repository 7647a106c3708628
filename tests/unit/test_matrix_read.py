"""A broken matrix never gets past loading, and every problem is named with its file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_matrix import SMALL

from imagebuilder.errors import MatrixError, UsageError
from imagebuilder.matrix.files import MAX_BYTES, read_bytes
from imagebuilder.matrix.loading import checked, load_over, typed
from imagebuilder.resources import matrix_path

PATH = Path("broken.yaml")


def problems(text: str | bytes) -> tuple[str, ...]:
    """Give the problems of a complete matrix file with this text; none for a sound one."""
    content = text if isinstance(text, bytes) else text.encode()
    try:
        checked((PATH,), (content,))
    except MatrixError as error:
        return error.problems
    return ()


# What is replaced in the small matrix, with what, and what the problem in the first changed line says.
BREAKS = [
    # wrong types
    ("schema: 1", "schema: one", "schema: wants a whole number, not `one`"),
    ("schema: 1", "schema: 2", "schema: this imgbuild reads schema 1, not 2"),
    ("driver_branch: 530", "driver_branch: '530'", "toolkits.12.1.driver_branch: wants a whole number"),
    ("driver_branch: 530", "driver_branch: -530", "wants a number above 0"),
    ("driver_branch: 530", "driver_branch: 0x20", "wants a plain decimal number"),
    ("bootstrap: true", "bootstrap: maybe", "bases.debian-12.bootstrap: wants `true` or `false`"),
    ("bootstrap: true", "bootstrap: yes", "write|wants `true` or `false`"),
    ("glibc: '2.36'", "glibc: 2.36", "wants a glibc version such as `2.28`, not `2.36`; quote it: '2.36'"),
    ("cuda: '12.1'", "cuda: 12.1", r"quote it: '12.1'"),
    ("released: '2023-10-04'", "released: 2023-10-04", "quote it"),
    ("size_mib: 639.1", "size_mib: big", "size_mib: wants a number"),
    ("aliases: [torch]", "aliases: torch", "wants a list, not `torch`"),
    ("aliases: [torch]", "aliases: {torch: 1}", "wants a list, not a mapping"),
    ("arch: Volta", "arch: [Volta]", "gpus.V100.arch: wants a text, not a list"),
    ("arch: Volta", "arch:", "is empty; a fact that is not known is left out"),
    ("arch: Volta", "arch: ''", "in one line of printable characters"),
    ("arch: Volta", 'arch: "Vol\\nta"', "in one line of printable characters"),
    ("arch: Volta", "arch: ' Volta'", "begins or ends with a space"),
    ("  numpy:\n", "  numpy: []\n  nampy:\n", "packages.numpy: wants a mapping, not a list"),
    ("'1.26.4': {", "1.26: {}\n    '1.26.4': {", "wants texts as keys, not `1.26` as a key; quote it"),
    ("'1.26.4': {", "[1]: {}\n    '1.26.4': {", "wants texts as keys, not a list"),
    ("'1.26.4': {", "'': {}\n    '1.26.4': {", "has a key without printable characters"),
    # unknown and missing
    ("arch: Volta", "arch: Volta\n    cudnn: x", "gpus.V100: knows no `cudnn`"),
    ("driver_branch_first: 384", "driver_branch_frist: 384", "did you mean `driver_branch_first`?"),
    ("kind: datacenter", "kind: datacentre", "did you mean `datacenter`?"),
    ("              x86_64:\n", "              x86-64:\n", "knows no `x86-64`; did you mean `x86_64`?"),
    ("\nnccl:\n", "\nnncl:\n", "knows no `nncl`; did you mean `nccl`?"),
    ("    arch: Volta\n", "", "gpus.V100: lacks `arch`"),
    ("            grade: B\n", "", "builds.cu118: lacks `grade`"),
    ("            source: own\n", "", "builds.cu118: lacks `source`"),
    # duplicates
    (
        "    arch: Volta\n",
        "    arch: Volta\n    arch: Volta\n",
        "gpus.V100.arch: is there twice, first in line",
    ),
    (
        "[sm_50, sm_70, sm_90]\n                ptx",
        "[sm_50, sm_50, sm_90]\n                ptx",
        "`sm_50` is there twice",
    ),
    ("python: [cp38, cp310]", "python: [cp38, cp38]", "`cp38` is there twice"),
    ("[x86_64, aarch64]", "[x86_64, x86_64]", "`x86_64` is there twice"),
    ("aliases: [H100 PCIe 80GB Max]", "aliases: [Tesla V100]", "`Tesla V100` already names the GPU `V100`"),
    # out of order
    ("['5.0', '7.0', '7.5', '8.0', '9.0']", "['5.0', '8.0', '7.5', '7.0', '9.0']", "`7.5` is out of order"),
    ("python: [cp38, cp310]", "python: [cp310, cp38]", "`cp38` is out of order behind `cp310`"),
    ("cuda_majors: [11, 12]", "cuda_majors: [12, 11]", "`11` is out of order behind `12`"),
    (
        "  '11.8':\n    driver_branch",
        "  '12.2':\n    driver_branch",
        "toolkits.12.1: `12.1` is out of order|not a release",
    ),
    # impossible values
    ("driver_min: '450.80.02'\n    cap", "driver_min: 'R450'\n    cap", "`R450` is not a driver version"),
    ("cuda: '12.1'", "cuda: '12'", "`12` is not a CUDA version"),
    ("version: '2.1.0'\n            cuda", "version: '2.1.x'\n            cuda", "`2.1.x` is not a version"),
    (
        "version: '2.1.0'\n            cuda",
        "version: '2.2.0'\n            cuda",
        "is not a build of release `2.1.0`",
    ),
    ("version: '2.1.0+cu118'", "version: '2.1.0+cu117'", "is not the variant `cu118`"),
    ("version: '2.1.0+cu118'", "version: 'v2.1.0+cu118'", "write `2.1.0\\+cu118` instead"),
    ("requires_python: '>=3.8.0'", "requires_python: '3.8'", "is not a version range"),
    ("requires_python: '>=3.8.0'", "requires_python: '>=3.9'", "`cp38` is outside of the release's"),
    (
        "[sm_50, sm_70, sm_90]\n                ptx",
        "[sm_50, sm70]\n                ptx",
        "`sm70` is not a target",
    ),
    (
        "[sm_50, sm_70, sm_90]\n                ptx",
        "[sm_50, compute_90]\n                ptx",
        "is PTX, not machine code",
    ),
    ("ptx: [compute_90]", "ptx: [sm_90]", "is machine code, not PTX"),
    ("python: [cp38, cp310]", "python: [py3]", "`py3` is not a Python tag"),
    (
        "driver_min: '525.60.13'\n    cap",
        "driver_min: '545.23.06'\n    cap",
        "is above the packaged driver, R530",
    ),
    (
        "driver_min: '525.60.13'\n    cap",
        "driver_min: '515.23.06'\n    cap",
        "is below the floor of its major",
    ),
    (
        "driver_packaged: '530.30.02'",
        "driver_packaged: '535.30.02'",
        "is not of the toolkit's driver branch R530",
    ),
    (
        "compat_branches: [470, 525]",
        "compat_branches: [470, 535]",
        "`535` is not older than the toolkit's own",
    ),
    (
        "capabilities_specific: [sm_90a]",
        "capabilities_specific: [sm_103a]",
        "is of a capability that the toolkit lacks",
    ),
    ("'12.1.1': {}", "'12.2.1': {}", "is not a release of CUDA 12.1"),
    ("cuda_last: '12.9'", "cuda_last: '8.0'", "`8.0` is before `cuda_first`, `9.0`"),
    ("driver_branch_last: 580", "driver_branch_last: 300", "`300` is before `driver_branch_first`"),
    ("capability: '7.0'", "capability: '6.0'", "no row of `code_runs_on` has code for `6.0`"),
    ("capability: '7.0'", "capability: '7.9'", "CUDA 11.8 has no `7.9`, though it lies in the GPU's range"),
    ("yanked: [11]", "yanked: [13]", "`13` is not among its `cuda_majors`|unknown CUDA major `13`"),
    ("eol: '2028-06-30'", "eol: '2028-06-31'", "`2028-06-31` is not a date"),
    ("eol: '2028-06-30'", "eol: soon", "`soon` is not a date"),
    ("    default: true\n", "", "bases: has no default base"),
    ("distribution: debian", "distribution: ubuntu", "does not begin the name `debian-12`"),
    ("first_without: '2.3.0'", "first_without: '2.0.0'", "is not newer than the release itself"),
    ("nvidia-nccl-cu12: '2.18.1'", "nvidia-nccl-cu12: '2.18.3'", "nccl: `2.18.1` is not what the build pins"),
    ("nvidia-nccl-cu12: '2.18.1'", "nvidia-nccl-cu11: '2.18.1'", "is not a package of CUDA 12"),
    ("nvidia-nccl-cu12: '2.18.1'", "nvidia_nccl: '2.18.1'", "is not a normalised package name"),
    ("'12.1.1 [cudart,nvrtc]'", "'newest'", "is neither a version nor a version range"),
    ("triton: '2.1.0'", "triton: '~~2'", "is neither a version nor a version range"),
    ("local_version: '2.1.0+cu121'", "local_version: '2.1.0+cu122'", "is not `2.1.0\\+cu121`"),
    ("          cpu-aarch64:\n", "          cu122:\n", "builds.cu122"),
    ("https://example.org/whl/{variant}", "ftp://example.org", "is not an address"),
    (
        "glibc: '2.17'}\n            grade: A",
        "glibc: '2.17', cubin: [sm_90]}\n            grade: A",
        "names no `cuda`",
    ),
    # dangling references
    (
        "cuda: '12.1'\n            toolkit",
        "cuda: '12.3'\n            toolkit",
        "unknown toolkit `12.3`|is not the name",
    ),
    (
        "toolkit: '12.1.1'",
        "toolkit: '12.1.2'",
        "unknown release of CUDA 12.1 `12.1.2`; did you mean `12.1.1`?",
    ),
    (
        "cudnn: '8.9.2.26'\n            nccl",
        "cudnn: '8.9.2.27'\n            nccl",
        "unknown cudnn release `8.9.2.27`",
    ),
    ("nccl: '2.18.1'\n            pins", "nccl: '2.18.2'\n            pins", "unknown nccl release `2.18.2`"),
    ("source: own", "source: owm", "unknown index `owm`; did you mean `own`?"),
    ("also_on: [own]", "also_on: [own, pypi]", "`pypi` is its source already"),
    ("cubin: [sm_50, sm_90]}", "cubin: [sm_50, sm_80]}", "unknown target of `code_runs_on` `sm_80`"),
    ("cu12: {sass: [sm_50, sm_70", "cu13: {sass: [sm_50, sm_70", "unknown CUDA suffix `cu13`"),
    (
        "src: {capability: notes (page 1)",
        "src: {capability: nots (page 1)",
        "unknown source `nots`; did you mean `notes`?",
    ),
    ("src: {capability: notes (page 1)", "src: {capabilty: notes (page 1)", "unknown fact `capabilty`"),
    (
        "src: {capability: notes (page 1)",
        "src: {capability: Notes",
        "is neither a source id, a URL nor a grade",
    ),
    (
        "driver_packaged_of: '12.1.0'",
        "driver_packaged_of: '12.1.9'",
        "unknown release of the toolkit `12.1.9`",
    ),
    ("beside: [numpy]", "beside: [nmpy]", "unknown package `nmpy`; did you mean `numpy`?"),
    (
        "framework: pytorch, spec",
        "framework: pytroch, spec",
        "unknown framework `pytroch`; did you mean `pytorch`?",
    ),
    ("  '11': {driver_min", "  '13': {driver_min", "unknown CUDA major `11`|out of order"),
    # YAML that is none, or none of ours
    ("arch: Volta", "arch: &a Volta\n    memory: *a", "aliases are not allowed"),
    ("arch: Volta", "arch: *a", "is not YAML: found undefined alias"),
    ("arch: Volta", "arch: Volta\n\tkind: x", "is not YAML"),
    ("arch: Volta", "arch: 'Volta", "is not YAML"),
    ("arch: Volta", "arch: !!python/name:os.system x", "wants a text"),
    ("arch: Volta", "<<: {arch: Volta}", "knows no|wants texts as keys"),
]

# Problems that lie in another line than the break: what lacks something, what no longer agrees with it.
ELSEWHERE = "lacks|no default|outside|the build pins|CUDA major|order|aliases|found undefined|not YAML$"


@pytest.mark.parametrize(
    ("old", "new", "message"), BREAKS, ids=[f"{n}-{b[1][:24]!r}" for n, b in enumerate(BREAKS)]
)
def test_one_break_is_found_with_its_line(old: str, new: str, message: str) -> None:
    """Every break of a sound file is one problem or more, the right one among them, with file and line."""
    assert SMALL.count(old) >= 1
    text = SMALL.replace(old, new, 1)
    changed = next(
        (n for n, (a, b) in enumerate(zip(SMALL.splitlines(), text.splitlines(), strict=False), 1) if a != b),
        1,
    )
    found = problems(text)
    right = [problem for problem in found if re.search(message, problem)]
    assert right, found
    for problem in found:
        assert re.match(r"broken\.yaml:\d+: ", problem)
    if not re.search(ELSEWHERE, message):
        assert changed in [int(problem.split(":")[1]) for problem in right]


def test_the_line_is_exact() -> None:
    """The line of a problem is the line of the key that it is about."""
    line = SMALL.splitlines().index("    arch: Volta") + 1
    assert problems(SMALL.replace("arch: Volta", "arch: 12")) == (
        f"broken.yaml:{line}: gpus.V100.arch: wants a text, not `12`; quote it: '12'",
    )


def test_all_problems_are_found_at_once() -> None:
    """Independent problems, of the schema and of the references, are all in one error."""
    text = SMALL
    for old, new in (
        ("arch: Volta", "arch: 7"),
        ("toolkit: '12.1.1'", "toolkit: '12.1.9'"),
        ("kind: LTSB", "kinde: LTSB"),
        ("python: [cp38, cp310]", "python: [cp310, cp38]"),
        ("source: own", "source: elsewhere"),
    ):
        text = text.replace(old, new, 1)
    found = "\n".join(problems(text))
    for words in (
        "wants a text",
        "`12.1.9`",
        "did you mean `kind`",
        "out of order",
        "unknown index `elsewhere`",
    ):
        assert words in found


def test_a_broken_row_is_not_also_missing() -> None:
    """A reference to a row that is written but broken itself is no second problem."""
    broken = SMALL.replace("driver_branch: 530", "driver_branch: x", 1)
    assert len(problems(broken)) == 1


def test_a_missing_section_is_one_problem() -> None:
    """A section that is not there at all does not make every reference into it a problem."""
    start = SMALL.index("sources:")
    text = SMALL[:start] + SMALL[SMALL.index("cuda_majors:") :]
    assert [problem.split(": ", 1)[1] for problem in problems(text)] == ["lacks `sources`"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"# nothing\n", "is empty"),
        (b"[1, 2]\n", "wants a mapping, not a list"),
        (b"just text\n", "wants a mapping, not `just text`"),
        (b"a: 1\n\xff\n", ":2: is not UTF-8"),
        (b"a: \x00\n", "is not YAML"),
        (b"a: 1\n---\nb: 2\n", "is not YAML: but found another document"),
        (b"\t: 1\n", "is not YAML"),
        (b"&a [*a]\n", "wants a mapping"),
        (b"sources: &a {x: *a}\n", "aliases are not allowed"),
        (b"[" * 100_000, "is not YAML"),
        (b"{a: " * 5_000, "is not YAML"),
        (b"a: &x [1]\nb: &y [*x,*x]\nc: &z [*y,*y,*y]\n", "knows no `a`"),
        (b"%YAML 9.9\n---\na: 1\n", "is not YAML|knows no"),
        ("schema: 1\u2028sources: 2\n".encode(), "wants|lacks|is not YAML"),
    ],
)
def test_what_is_no_matrix_at_all(content: bytes, words: str) -> None:
    """Empty, binary, recursive and endless input is a MatrixError, never another exception."""
    assert re.search(words, "\n".join(problems(content)))


def test_unreadable_files_say_why(tmp_path: Path) -> None:
    """A missing file, a folder and a huge file are usage errors that name the path."""
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for path in (tmp_path / "missing.yaml", tmp_path, huge, Path("a\0b")):
        with pytest.raises(UsageError, match=re.escape(str(path).replace("\0", "\0"))):
            read_bytes(path)


def test_the_packaged_matrix_is_sound() -> None:
    """The matrix that ships has no problem and its digest is that of its bytes."""
    matrix = load_over(matrix_path(), ())
    assert matrix.digest.startswith("sha256:")
    assert len(matrix.frameworks["pytorch"].releases) >= 30


def test_every_row_of_the_packaged_matrix_can_be_made() -> None:
    """What the reader lets through turns into typed rows, down to the last."""
    plain = checked((matrix_path(),), (read_bytes(matrix_path()),))
    assert "Matrix(schema=1" in repr(typed(plain))


LINES = SMALL.splitlines(keepends=True)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_mutation_escapes_as_another_exception(data: st.DataObject) -> None:
    """Lines dropped, doubled, swapped, spliced with noise: problems with file and line, or a sound matrix."""
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "swap", "noise", "cut", "indent"]))
        if kind == "drop":
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "noise":
            lines[at] = lines[at].rstrip("\n") + data.draw(st.text(max_size=8)) + "\n"
        elif kind == "cut":
            lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at])))]
        else:
            lines[at] = " " * data.draw(st.integers(0, 6)) + lines[at].lstrip()
    text = "".join(lines).encode("utf-8", "surrogatepass")
    for problem in problems(text):
        assert re.match(r"broken\.yaml:\d+: .", problem)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_escape_as_another_exception(content: bytes) -> None:
    """Whatever the bytes, a file that is no matrix has problems and nothing else happens."""
    assert problems(content)
