"""Requirements against the facts of a stack: both lines are named, and the ways out are commands."""

import shlex
import subprocess
from pathlib import Path

import pytest

from imagebuilder.errors import UnmetError
from imagebuilder.lock.clash import Known, applying, known_of, refuse_known_clashes
from imagebuilder.lock.requirements import of_extras, read_requirements
from imagebuilder.matrix import Matrix, load
from imagebuilder.request import parse_request
from imagebuilder.resolve import resolve


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Load the packaged facts."""
    return load()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def known(matrix: Matrix, framework: str, **options: object) -> Known:
    """Resolve a framework and look it up again."""
    return known_of(resolve(parse_request(framework=framework, **options), matrix), matrix)  # type: ignore[arg-type]


def refused(facts: Known, text: str) -> UnmetError:
    """Give the error for a requirements file of this text."""
    Path("req.txt").write_text(text)
    with pytest.raises(UnmetError) as caught:
        refuse_known_clashes(facts, applying(read_requirements([Path("req.txt")]), facts, "x86_64"))
    return caught.value


def accept(facts: Known, text: str) -> tuple[str, ...]:
    """Give the requirements of a file that does not clash, as they are asked of the index."""
    Path("req.txt").write_text(text)
    asked = applying(read_requirements([Path("req.txt")]), facts, "x86_64")
    refuse_known_clashes(facts, asked)
    return tuple(one.text for one in asked)


@pytest.mark.parametrize(
    ("framework", "line", "ours", "commands"),
    [
        ("pytorch==2.2.2", "numpy>=2", "numpy<2",
         ["sed -i '1c numpy<2' req.txt", "imgbuild lock --framework 'pytorch>=2.3.0' -r req.txt"]),
        ("pytorch==2.4.1", "torch==2.2.0", "torch==2.4.1",
         ["sed -i '1c torch==2.4.1' req.txt", "imgbuild lock --framework pytorch==2.2.0 -r req.txt"]),
        ("pytorch==2.4.1", "torch<2", "torch==2.4.1",
         ["sed -i '1c torch==2.4.1' req.txt", "imgbuild lock --framework 'pytorch<2' -r req.txt"]),
        ("pytorch==2.4.1", "torch==99", "torch==2.4.1", ["sed -i '1c torch==2.4.1' req.txt"]),
        ("pytorch==2.4.1", "torchvision==0.18.1", "torchvision==0.19.1",
         ["sed -i '1c torchvision==0.19.1' req.txt", "imgbuild lock --framework pytorch==2.3.1 -r req.txt"]),
        ("pytorch==2.4.1", "torchvision[scipy]<0.19; python_version > '3.8'", "torchvision==0.19.1",
         ["""sed -i '1c torchvision[scipy]==0.19.1; python_version > "3.8"' req.txt""",
          "imgbuild lock --framework pytorch==2.3.1 -r req.txt"]),
        ("pytorch==2.4.1", "nvidia-cudnn-cu12==8.9.2.26", "nvidia-cudnn-cu12==9.1.0.70",
         ["sed -i '1c nvidia-cudnn-cu12==9.1.0.70' req.txt",
          "imgbuild lock --framework pytorch==2.3.1 --cuda 12.1 -r req.txt"]),
        ("pytorch==2.4.1", "triton>=3.1", "triton==3.0.0", None),
        ("pytorch==2.4.1", "onnxruntime-gpu==1.18.1", "onnxruntime-gpu!=1.27.0,>=1.19",
         ["sed -i '1c onnxruntime-gpu!=1.27.0,>=1.19' req.txt"]),
    ],
)  # fmt: skip
def test_a_clash_names_both_lines(
    matrix: Matrix, framework: str, line: str, ours: str, commands: list[str] | None
) -> None:
    """The user's line with its place, the stack's with fact and source, and the ways out as commands."""
    error = refused(known(matrix, framework), line + "\n")
    assert error.exit_code == 3
    assert "req.txt:1" in error.what
    assert error.conflicts[0]["source"] == "req.txt:1"
    assert error.conflicts[1]["constraint"] == ours
    assert error.conflicts[1]["fact"]
    assert str(error.conflicts[1]["source"]).startswith("grade ")
    if commands is not None:
        assert [one["command"] for one in error.alternatives][:2] == commands


def test_an_extra_that_clashes_is_left_out(matrix: Matrix) -> None:
    """No file of the user's holds what an extra requires: the way out is the same command without it."""
    facts = known(matrix, "pytorch==2.4.1", extras=["jupyter", "ssh"])
    Path("req.txt").write_text("requests\n")
    asked = (*read_requirements([Path("req.txt")]), *of_extras({"jupyter": ["torch==99"]}))
    with pytest.raises(UnmetError) as caught:
        refuse_known_clashes(facts, applying(asked, facts, "x86_64"))
    way_out = caught.value.alternatives[0]
    assert way_out["change"] == "without `--with jupyter`"
    stack = facts.stack
    assert way_out["command"] == (
        f"imgbuild lock --framework pytorch==2.4.1 --cuda {stack.cuda} --with ssh -r req.txt"
    )


def test_the_edit_does_what_it_says(matrix: Matrix) -> None:
    """The command replaces just the lines of the requirement, over a continuation too."""
    error = refused(known(matrix, "pytorch==2.4.1"), "requests\ntorchvision \\\n  ==0.18.1\ntimm\n")
    subprocess.run(shlex.split(error.alternatives[0]["command"]), check=True)
    assert Path("req.txt").read_text() == "requests\ntorchvision==0.19.1\ntimm\n"


@pytest.mark.parametrize(
    "line",
    [
        "torch", "torch>=2", "torch==2.4.1", "torch~=2.4", "numpy<2", "numpy==1.26.4", "torchvision",
        "torchvision>=0.19", "triton", "nvidia-cudnn-cu12>=9", "requests==2", "onnxruntime-gpu",
        'numpy<1; python_version < "3.11"', 'torch==1; platform_machine == "aarch64"',
        'torch==1; sys_platform == "win32"', 'torch==1; extra == "gpu"',
    ],
)  # fmt: skip
def test_what_fits_passes(matrix: Matrix, line: str) -> None:
    """Ranges that hold the pin, packages beside the framework, and markers of other targets do not clash."""
    accept(known(matrix, "pytorch==2.4.1"), line + "\n")


def test_a_local_version_that_names_the_build_is_the_build(matrix: Matrix) -> None:
    """`+cu121` on PyPI's 2.4.1, which is that build, is dropped; another label is another build."""
    facts = known(matrix, "pytorch==2.4.1")
    asked = accept(facts, "torch==2.4.1+cu121\ntorchvision==0.19.1+cu121\nother==1+cu121\n")
    assert asked == ("torch==2.4.1", "torchvision==0.19.1", "other==1+cu121")
    error = refused(facts, "torch==2.4.1+cu124\n")
    assert "imgbuild lock --framework pytorch==2.4.1+cu124 -r req.txt" in str(error.hint)


def test_a_build_of_the_own_index_keeps_its_local_version(matrix: Matrix) -> None:
    """On the framework's own index the local version is part of the name."""
    facts = known(matrix, "pytorch==2.5.1", cuda="12.1")
    assert facts.variant == "cu121"
    assert accept(facts, "torch==2.5.1+cu121\n") == ("torch==2.5.1+cu121",)
    assert accept(facts, "torch==2.5.1\n") == ("torch==2.5.1",)
    refused(facts, "torch==2.5.1+cu124\n")


def test_a_constraint_can_clash_too(matrix: Matrix) -> None:
    """A line of a `-c` file stands against the stack like any other, and its own file is named."""
    Path("bounds.txt").write_text("\ntorch<2.4\n")
    error = refused(known(matrix, "pytorch==2.4.1"), "timm\n-c bounds.txt\n")
    assert "bounds.txt:2" in error.what
    assert "-r req.txt" in error.alternatives[1]["command"]


def test_a_stack_that_the_matrix_no_longer_has(matrix: Matrix) -> None:
    """A stack.json of other facts is refused with both digests."""
    from dataclasses import replace

    from imagebuilder.matrix.words import Cuda

    stack = replace(known(matrix, "pytorch==2.4.1").stack, cuda=Cuda.parse("12.9"))
    with pytest.raises(UnmetError, match="no build"):
        known_of(stack, matrix)
