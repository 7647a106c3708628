"""`imgbuild matrix show` and `imgbuild matrix validate`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from small_matrix import SMALL

from imagebuilder.cli.matrix import command
from imagebuilder.errors import MatrixError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str | Path) -> str:
    """Run a command that must succeed; gives what it printed on stdout."""
    result = CliRunner().invoke(command, [str(one) for one in arguments])
    if result.exception:
        raise result.exception
    return result.stdout


def rows(*arguments: str) -> list[dict[str, Any]]:
    """Give the rows of `show`."""
    found: list[dict[str, Any]] = json.loads(run("show", "--format", "json", *arguments))["rows"]
    return found


def test_show_answers_the_question() -> None:
    """It says what there is for CUDA 12.1, Python 3.12, a T4 and driver 525."""
    found = rows(
        "--framework", "pytorch", "--cuda", "12.1", "--python", "3.12", "--gpu", "T4", "--driver", "525.60.13"
    )
    assert [row["release"] for row in found][:3] == ["2.5.1", "2.5.0", "2.4.1"]
    best = found[2]
    assert best["sources"] == ["pypi", "pytorch"]
    assert (best["cudnn"], best["nccl"], best["driver_min"]) == ("9.1.0.70", "2.20.5", "525.60.13")
    assert "7.5" in best["compute_capabilities"]
    assert best["python"] == ["3.8", "3.9", "3.10", "3.11", "3.12"]
    assert best["grade"] == "A"


@pytest.mark.parametrize(
    ("arguments", "releases"),
    [
        (["--framework", "torch==2.8.0", "--gpu", "GTX 1080"], {"2.8.0"}),
        (["--driver", "470.57.02", "--framework", "pytorch>=2.7"], {"2.7.0", "2.7.1"}),
        (["--cuda", "12.7"], set()),
        (["--os", "ubuntu-24.04", "--framework", "pytorch<2.2"], set()),
        (["--gpu", "GH200"], set()),
        (["--gpu", "GH200", "--arch", "arm64", "--framework", "pytorch==2.10"], {"2.10.0"}),
        (["--gpu", "V100", "--driver", "590.44.01"], set()),
        (["--os", "debian-12", "--python", "3.12"], set()),
    ],
)
def test_filters(arguments: list[str], releases: set[str]) -> None:
    """Each filter leaves the builds that meet it."""
    assert {row["release"] for row in rows(*arguments)} == releases


def test_the_table_is_aligned() -> None:
    """The table has a header and one line a build."""
    lines = run("show", "--cuda", "12.1").splitlines()
    assert lines[0].split()[:3] == ["framework", "release", "cuda"]
    assert len({line.index("12.1") for line in lines[1:]}) == 1
    assert len(lines) == 1 + len(rows("--cuda", "12.1"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--framework", "pytroch"], "pytroch"),
        (["--gpu", "RTX 509O"], "RTX 509O"),
        (["--cuda", "12"], "--cuda"),
        (["--driver", "abc"], "--driver"),
        (["--os", "debian-99"], "debian-99"),
        (["--matrix", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_bad_filters_are_usage_errors(arguments: list[str], words: str) -> None:
    """A typo is a usage error that quotes it."""
    with pytest.raises(UsageError, match=words):
        run("show", *arguments)


def test_overrides_show_up(tmp_path: Path) -> None:
    """Rows of `--matrix` files are shown, and the digest tells that they were used."""
    over = tmp_path / "over.yaml"
    over.write_text("schema: 1\nframeworks:\n  pytorch:\n    releases: {}\n")
    plain, with_over = (
        json.loads(run("show", "--format", "json", *extra)) for extra in ([], ["--matrix", over])
    )
    assert plain["rows"] == with_over["rows"]
    assert plain["matrix"] != with_over["matrix"]


def test_validate_counts() -> None:
    """The packaged matrix is sound and canonical; validating it counts what it holds."""
    assert "no problems in" in run("validate")
    counts = json.loads(run("validate", "--format", "json"))["counts"]
    assert (counts["GPUs"], counts["toolkits"]) == (46, 24)
    assert counts["releases"] >= 30


def test_validate_names_every_problem(tmp_path: Path) -> None:
    """A broken FILE is exit 2 with all problems; so is a broken override of the packaged matrix."""
    file = tmp_path / "m.yaml"
    file.write_text(SMALL.replace("arch: Volta", "arch: 7").replace("source: own", "source: owm"))
    with pytest.raises(MatrixError) as caught:
        run("validate", file)
    assert (len(caught.value.problems), caught.value.exit_code) == (2, 2)
    assert all(problem.startswith(f"{file}:") for problem in caught.value.problems)
    assert f"imgbuild matrix validate {file}" in (caught.value.hint or "")
    file.write_text("schema: 1\nnothing: {}\n")
    with pytest.raises(MatrixError, match="a problem") as caught:
        run("validate", "--matrix", file)
    assert f"imgbuild matrix validate --matrix {file}" in (caught.value.hint or "")
