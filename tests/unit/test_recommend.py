"""recommend: which images run on some GPUs, best first, and what the machine at hand adds to a request."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from imagebuilder import host
from imagebuilder.cli import cli
from imagebuilder.host import Host, HostGpu
from imagebuilder.matrix import Matrix, load
from imagebuilder.matrix.words import Capability, Driver
from imagebuilder.request import EVERY, parse_request
from imagebuilder.resolve import resolve
from imagebuilder.resolve.recommend import Recommendation, recommend


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Load the packaged facts."""
    return load([])


def of(matrix: Matrix, *gpus: str, driver: str | None = None) -> tuple[Recommendation, ...]:
    """Rank the images of PyTorch for some GPUs."""
    return recommend(parse_request(framework="pytorch", gpus=gpus, driver=driver), matrix)


@pytest.mark.parametrize("gpu", ["V100", "T4", "A100", "H100", "RTX 4090", "B200", "sm_86"])
def test_the_first_is_what_resolve_would_choose(matrix: Matrix, gpu: str) -> None:
    """The table explains the choice, it does not make another one."""
    first = of(matrix, gpu)[0]
    assert (
        first.stack.identifier == resolve(parse_request(framework="pytorch", gpus=[gpu]), matrix).identifier
    )
    assert first.fits[0].runs == "cubin"


@pytest.mark.parametrize(
    ("gpu", "has", "lacks"),
    [
        ("P100", (), ("fp16", "bf16")),
        ("V100", ("fp16",), ("bf16", "tf32", "fp8")),
        ("T4", ("fp16",), ("bf16", "tf32", "fp8")),
        ("A100", ("fp16", "bf16", "tf32"), ("fp8",)),
        ("H100", ("fp16", "bf16", "tf32", "fp8"), ("nvfp4",)),
        ("B200", ("fp8", "mxfp8", "nvfp4"), ()),
    ],
)
def test_modes_are_the_hardwares(
    matrix: Matrix, gpu: str, has: tuple[str, ...], lacks: tuple[str, ...]
) -> None:
    """FP16 from Volta on, BF16 and TF32 from Ampere on, FP8 from Hopper on; never what is emulated."""
    for row in of(matrix, gpu):
        (fit,) = row.fits
        assert set(has) <= set(fit.modes)
        assert not set(lacks) & set(fit.modes)
        assert "int8" not in fit.modes


def test_every_row_runs_on_every_gpu_and_driver(matrix: Matrix) -> None:
    """V100 and H100 on R535: no CUDA 13, and code for both."""
    rows = of(matrix, "V100", "H100", driver="535.104.05")
    assert rows
    for row in rows:
        assert row.stack.driver_min <= Driver.parse("535.104.05")
        assert [fit.gpu for fit in row.fits] == ["H100", "V100"]


def test_what_older_ones_lack_is_said(matrix: Matrix) -> None:
    """The best has nothing to say; the oldest image for a T4 says version, cuDNN, GPUs and NumPy."""
    rows = of(matrix, "T4")
    assert rows[0].lost == ()
    (oldest,) = [row for row in rows if str(row.stack.cuda) == "11.6"]
    told = "; ".join(oldest.lost)
    for words in ("1.13.1 instead of", "cuDNN 8", "no code for compute capability", "only numpy <2"):
        assert words in told


def test_of_every_framework_where_none_is_named(matrix: Matrix) -> None:
    """The command asks for all; each framework has a best of its own."""
    rows = recommend(parse_request(framework=EVERY, gpus=["A100"]), matrix)
    best = {row.stack.framework: row for row in reversed(rows)}
    assert "pytorch" in best
    assert [row.stack.framework for row in rows] == sorted(row.stack.framework for row in rows)


def run(*words: str) -> tuple[int, str]:
    """Run the command line without its exit codes for errors; give the code and stdout."""
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    return done.exit_code, done.stdout


def test_the_table_ends_with_a_command() -> None:
    """The line `next` gives the first image."""
    code, told = run("recommend", "--gpu", "T4", "--framework", "pytorch")
    assert code == 0
    assert told.splitlines()[0].split()[:3] == ["image", "index", "driver"]
    assert "FP16 on tensor cores; mixed precision: fp16 with GradScaler" in told
    assert told.splitlines()[-1].startswith("next: imgbuild build --framework pytorch --cuda")


def hosted(monkeypatch: pytest.MonkeyPatch, *gpus: HostGpu, driver: str = "535.104.05") -> None:
    """Say what this machine holds."""
    monkeypatch.setattr(host, "this_host", lambda: Host(driver=Driver.parse(driver), gpus=gpus))


def test_this_host_is_named_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of nvidia-smi are understood; a name that nobody knows is given by its target."""
    hosted(
        monkeypatch,
        HostGpu(name="Tesla V100-SXM2-32GB", uuid="1", capability=Capability.parse("7.0")),
        HostGpu(name="NVIDIA X9000", uuid="2", capability=Capability.parse("8.6")),
    )
    code, told = run("recommend", "--this-host", "--format", "json")
    assert code == 0
    first = json.loads(told)["images"][0]
    assert [gpu["name"] for gpu in first["gpus"]] == ["V100", "sm_86"]
    assert "--driver 535.104.05" in first["command"]
    code, told = run("resolve", "-f", "pytorch", "--this-host", "--format", "json")
    assert code == 0
    assert json.loads(told)["driver_min"] == "525.60.13"
