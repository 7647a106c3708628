"""What `resolve` chooses and refuses, on the packaged matrix: requests with the right answers."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from imagebuilder.cli.resolve import command
from imagebuilder.errors import OutsideError, UnmetError, UsageError
from imagebuilder.matrix import Matrix, load
from imagebuilder.request import Request, parse_request
from imagebuilder.resolve import resolve, stack_from_dict, stack_to_dict

if TYPE_CHECKING:
    from pathlib import Path

MANY = {"--gpu": "gpus", "--source": "sources", "-r": "requirements"}


def ask(line: str) -> Request:
    """Parse the options of a `resolve` command."""
    words = shlex.split(line.removeprefix("imgbuild resolve "))
    options: dict[str, Any] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option in MANY:
            options.setdefault(MANY[option], []).append(value)
        else:
            options[option.removeprefix("--")] = value
    return parse_request(**options)


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Give the packaged facts."""
    return load()


CHOSEN = [
    (
        "--framework pytorch --cuda 12.1",
        {
            "version": "2.4.1",
            "cuda": "12.1",
            "cudnn": "9.1.0.70",
            "nccl": "2.20.5",
            "source": "pypi",
            "driver_min": "525.60.13",
            "torch": "2.4.1",
            "triton": "3.0.0",
        },
        "the newest release whose PyPI wheel is the CUDA 12.1 build",
    ),
    (
        "--framework pytorch==2.5.1 --cuda 12.1",
        {"version": "2.5.1", "cuda": "12.1", "source": "pytorch", "torch": "2.5.1+cu121"},
        "PyPI's 2.5.1 is the CUDA 12.4 build",
    ),
    (
        "--framework torch --cuda 12.4",
        {"framework": "pytorch", "version": "2.6.0", "cudnn": "9.1.0.70", "nccl": "2.21.5"},
        "a package's name is an alias of its framework",
    ),
    (
        "--framework 'pytorch>=2.1,<2.3'",
        {"version": "2.2.2", "cuda": "12.1", "cudnn": "8.9.2.26", "nccl": "2.19.3"},
        "a range gives its newest release",
    ),
    ("--framework pytorch --gpu V100", {"version": "2.10.0", "cuda": "12.8"}, "CUDA 13 dropped Volta"),
    (
        "--framework pytorch --gpu V100 --gpu B200",
        {"version": "2.10.0", "cuda": "12.8"},
        "sm_70 and sm_100 in one wheel",
    ),
    (
        "--framework pytorch --driver 525.60.13",
        {"version": "2.10.0", "cuda": "12.8"},
        "any 12.x toolkit runs from 525.60.13 on",
    ),
    (
        "--framework pytorch --driver 470.57.02 --gpu T4",
        {"version": "2.0.1", "cuda": "11.7"},
        "R470 runs 11.x only",
    ),
    ("--framework pytorch==2.2.2", {"numpy": "1.26.4"}, "built against the NumPy 1 ABI"),
    (
        "--framework pytorch==2.8.0 --os debian-12",
        {"os": "debian-12", "python": "3.11"},
        "a base brings its own Python",
    ),
    (
        "--framework pytorch --cuda 12.1 --python 3.12",
        {"os": "ubuntu-24.04", "version": "2.4.1"},
        "the Python chooses the base",
    ),
    (
        "--framework pytorch==2.11.0 --gpu V100",
        {"version": "2.11.0", "cuda": "12.6", "source": "pytorch"},
        "of 2.11's builds only cu126 has Volta code",
    ),
    (
        "--framework pytorch==2.8.0 --gpu 'GTX 1080'",
        {"cuda": "12.6", "source": "pytorch"},
        "Pascal left cu128",
    ),
    (
        "--framework pytorch==2.3.1 --gpu T4 --driver 470.57.02",
        {"cuda": "11.8", "source": "pytorch"},
        "2.3.1+cu118 runs from 450.80.02 on",
    ),
    (
        "--framework pytorch==2.4.1 --cuda 12.1 --source pytorch",
        {"source": "pytorch", "torch": "2.4.1+cu121", "triton": "3.0.0"},
        "the framework's index has PyPI's build too, under its local version",
    ),
    (
        "--framework pytorch==2.4.1+cu118",
        {"cuda": "11.8", "source": "pytorch"},
        "a local version names one build",
    ),
    (
        "--framework pytorch --cuda 12.1 --cudnn 8",
        {"version": "2.3.1", "cudnn": "8.9.2.26"},
        "torch 2.3 is the last with cuDNN 8",
    ),
    (
        "--framework pytorch==2.10.0 --arch arm64",
        {"source": "pytorch"},
        "PyPI's aarch64 wheel of 2.10.0 is CPU-only, so no GPU build of it comes from there",
    ),
]


@pytest.mark.parametrize(("line", "expected", "why"), CHOSEN, ids=[line for line, _, _ in CHOSEN])
def test_chosen(matrix: Matrix, line: str, expected: dict[str, str], why: str) -> None:
    """A request gives the stack that its table row says."""
    stack = resolve(ask(line), matrix)
    found = {key: str(getattr(stack, key, None) or stack.packages.get(key)) for key in expected}
    assert found == expected, why


REFUSED = [
    ("--framework pytorch==2.1.2 --python 3.12", ("framework", "python"), ["3.12", "2.1.2", "2.2.0", "3.11"]),
    ("--framework pytorch --cuda 12.1 --gpu 'RTX 5090'", ("cuda", "gpu"), ["12.0", "2.7.0", "12.8"]),
    (
        "--framework pytorch --cuda 12.4 --driver 470.57.02",
        ("cuda", "driver"),
        ["525.60.13", "470.57.02", "2.7.1", "forward compatibility"],
    ),
    ("--framework pytorch --cuda 12.7", ("cuda",), ["12.6", "12.8"]),
    ("--framework pytorch==2.7.1 --cuda 12.4", ("framework", "cuda"), ["11.8", "12.6", "12.8", "2.6.0"]),
    ("--framework pytorch==2.5.1 --arch arm64", ("framework", "arch"), ["CPU-only"]),
    ("--framework pytorch --gpu V100 --driver 595.10", ("gpu", "driver"), ["R580"]),
    ("--framework pytorch --gpu B200 --driver 550.54.14", ("gpu", "driver"), ["570.133.20"]),
    ("--framework pytorch --gpu GH200", ("gpu", "arch"), ["aarch64", "--arch arm64"]),
    ("--framework pytorch --gpu K80 --gpu B200", ("gpu", "gpu"), ["sm_37", "10.0"]),
    ("--framework pytorch --python 3.9", ("python",), ["3.10", "3.11"]),
    ("--framework pytorch==99", ("framework",), ["no such release"]),
    ("--framework 'pytorch<1'", ("framework",), ["no such release"]),
    (
        "--framework pytorch --source pypi --cuda 12.9",
        ("cuda", "source"),
        ["12.8", "13.0", "--source pytorch"],
    ),
    ("--framework pytorch --cudnn 7", ("cudnn",), ["8.", "9."]),
    ("--framework pytorch==1.13.1 --os ubuntu-24.04", ("framework", "os"), ["3.12", "--os debian-12"]),
    ("--framework pytorch --gpu V100 --cuda 13.0", ("cuda", "gpu"), ["sm_75", "12.9", "2.14.1"]),
]


@pytest.mark.parametrize(("line", "options", "words"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_refused(matrix: Matrix, line: str, options: tuple[str, ...], words: list[str]) -> None:
    """A request that cannot be met names the clash, the facts, and alternatives that resolve."""
    with pytest.raises(UnmetError) as caught:
        resolve(ask(line), matrix)
    error = caught.value
    clash = [conflict["constraint"] or "" for conflict in error.conflicts]
    assert [shown.removeprefix("--").split()[0] for shown in clash] == list(options)
    said = json.dumps(error.to_dict())
    assert [word for word in words if word not in said] == []
    assert error.alternatives
    for other in error.alternatives:
        resolve(ask(other["command"]), matrix)


def test_pair_of_changes_where_one_does_not_help(matrix: Matrix) -> None:
    """Where one change never keeps the GPU, two are offered: the release and its CUDA."""
    with pytest.raises(UnmetError) as caught:
        resolve(ask("--framework pytorch==2.5.1 --cuda 12.4 --gpu 'RTX 5090'"), matrix)
    commands = [other["command"] for other in caught.value.alternatives]
    assert commands[0] == "imgbuild resolve --framework pytorch==2.7.1 --cuda 12.8 --gpu 'RTX 5090'"
    assert commands[-1] == "imgbuild resolve --framework pytorch==2.5.1 --cuda 12.4"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("--framework pytroch", "pytorch"),
        ("--framework pytorch --gpu V1000", "V100"),
        ("--framework pytorch --os debian12", "debian-12"),
        ("--framework pytorch --source pipy", "pypi"),
        ("--framework pytorch --gpu sm_9000", "sm_"),
    ],
)
def test_unknown_name_gets_its_nearest(matrix: Matrix, line: str, word: str) -> None:
    """A name that the matrix does not have is a usage error with the nearest name that it has."""
    with pytest.raises(UsageError) as caught:
        resolve(ask(line), matrix)
    assert word in f"{caught.value.why} {caught.value.hint}"


@pytest.mark.parametrize("os", ["nvidia/cuda:latest", "nvidia/cuda:10.2-cudnn8-devel-ubuntu18.04"])
def test_base_that_is_gone(matrix: Matrix, os: str) -> None:
    """An image tag that was deleted is refused with the reason and what to take instead."""
    with pytest.raises(UnmetError) as caught:
        resolve(ask(f"--framework pytorch --os {os}"), matrix)
    assert "debian-12" in str(caught.value.to_dict()["conflicts"])


def test_every_value_has_a_reason(matrix: Matrix) -> None:
    """Each chosen fact is explained, with the source and its grade."""
    stack = resolve(ask("--framework pytorch --cuda 12.1 --gpu T4 --driver 535.104.05"), matrix)
    facts = {reason.fact for reason in stack.reasons}
    assert facts >= {
        "framework", "source", "cuda", "cudnn", "nccl", "os", "python", "arch", "driver_min", "driver",
        "compute_capabilities", "gpu", "triton", "numpy",
    }  # fmt: skip
    assert all(reason.source and reason.source.startswith("grade ") for reason in stack.reasons)


def test_weak_grades_are_visible(matrix: Matrix) -> None:
    """A build whose existence is an inference (grade D) says so in its notes."""
    stack = resolve(ask("--framework pytorch==2.15.0 --gpu V100"), matrix)
    assert any("grade D" in note for note in stack.notes)


def test_newer_release_of_another_index_is_a_note(matrix: Matrix) -> None:
    """The note names the release and the flags that select it, and they do."""
    stack = resolve(ask("--framework pytorch --cuda 12.1"), matrix)
    assert (
        "2.5.1+cu121 exists on the pytorch index: add `--framework pytorch==2.5.1 --source pytorch`"
        in stack.notes
    )
    other = resolve(ask("--framework pytorch==2.5.1 --source pytorch --cuda 12.1"), matrix)
    assert other.packages["torch"] == "2.5.1+cu121"


def test_fallbacks_serve_what_the_stack_does_not(matrix: Matrix) -> None:
    """Older drivers and GPUs without code in this stack each have a stack that fits them."""
    stack = resolve(ask("--framework pytorch --cuda 12.8"), matrix)
    assert any(str(other.driver_min) == "450.80.02" for other in stack.fallbacks)
    assert "6.1" in {
        str(capability) for other in stack.fallbacks for capability in other.compute_capabilities
    }
    assert len({other.stack for other in stack.fallbacks}) == len(stack.fallbacks)


def test_identifier(matrix: Matrix) -> None:
    """A stack has one printable name; another architecture is part of it."""
    assert resolve(ask("--framework pytorch --cuda 12.1"), matrix).identifier == (
        "pytorch-2.4.1-cuda12.1-cudnn9-py3.11-debian12"
    )
    assert resolve(ask("--framework pytorch==2.11.0 --arch arm64"), matrix).identifier.endswith("-arm64")


def test_command_line_prints_one_document(tmp_path: Path) -> None:
    """`--format json` prints the stack, `-o` writes the same document, and nothing else is left there."""
    path = tmp_path / "stack.json"
    options = ["--framework", "pytorch", "--cuda", "12.1", "--format", "json", "-o", str(path)]
    done = CliRunner().invoke(command, options, catch_exceptions=False)
    document = json.loads(done.stdout)
    assert json.loads(path.read_text()) == document
    assert list(tmp_path.iterdir()) == [path]
    assert stack_to_dict(stack_from_dict(document)) == document


def test_command_line_explains(matrix: Matrix) -> None:
    """Text output begins with the identifier; `--explain` says why, with sources; notes come last."""
    options = ["--framework", "pytorch", "--cuda", "12.1"]
    lines = CliRunner().invoke(command, options, catch_exceptions=False).stdout.splitlines()
    assert lines[0] == "pytorch-2.4.1-cuda12.1-cudnn9-py3.11-debian12"
    assert lines[-1].startswith("note: ")
    explained = CliRunner().invoke(command, [*options, "--explain"], catch_exceptions=False).stdout
    stack = resolve(ask(shlex.join(options)), matrix)
    assert all(reason.because in explained and (reason.source or "") in explained for reason in stack.reasons)


def test_command_line_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A refused request, and a folder that is not there, leave no file."""
    with pytest.raises(UnmetError):
        CliRunner().invoke(
            command,
            ["--framework", "pytorch", "--cuda", "12.7", "-o", str(tmp_path / "a.json")],
            catch_exceptions=False,
        )
    with pytest.raises(OutsideError):
        CliRunner().invoke(
            command, ["--framework", "pytorch", "-o", str(tmp_path / "no" / "a.json")], catch_exceptions=False
        )
    assert list(tmp_path.iterdir()) == []
