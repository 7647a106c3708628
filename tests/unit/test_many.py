"""Many images: requests in a file, a request that stands for many, the bake file, the live table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from locks import make_lock, make_stack, rendered
from packaging.requirements import Requirement
from packaging.version import Version

from imagebuilder.build import Target
from imagebuilder.build.bake import BAKE_FILE, target_of, write_bake
from imagebuilder.build.folder import refuse_filled
from imagebuilder.buildx import Step
from imagebuilder.cli.progress import Live, Progress
from imagebuilder.errors import UnmetError, UsageError
from imagebuilder.matrix import Matrix, load
from imagebuilder.network import Network
from imagebuilder.request import EVERY, parse_request
from imagebuilder.request.file import read_requests
from imagebuilder.resolve import resolve
from imagebuilder.resolve.spread import spread

FILE = """
[[image]]
framework = "pytorch==2.4.1"
cuda = "12.1"
gpu = ["V100", "A100"]
requirements = "requirements.txt"
tag = "team/train:1"

[[image]]
framework = "pytorch"
driver = "470.57.02"
"""


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Load the packaged facts."""
    return load([])


def written(folder: Path, text: str, name: str = "images.toml") -> Path:
    """Write a file of requests."""
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_asks_for_images(tmp_path: Path) -> None:
    """Its keys are the options; paths are relative to the file, not to where the command runs."""
    one, two = read_requests(written(tmp_path, FILE))
    first, second = one.request, two.request
    assert (one.tag, two.tag) == ("team/train:1", None)
    assert (first.framework, str(first.cuda), first.gpus) == ("pytorch", "12.1", ("V100", "A100"))
    assert first.requirements == (tmp_path / "requirements.txt",)
    assert str(second.driver) == "470.57.02"


@pytest.mark.parametrize(
    "text",
    [
        '[project]\nname = "x"\n[tool.imgbuild]\nframework = "pytorch"\n',
        '[[tool.imgbuild.image]]\nframework = "pytorch"\n',
    ],
)
def test_a_project_asks_for_its_image(tmp_path: Path, text: str) -> None:
    """A pyproject.toml holds one request, or several."""
    (wanted,) = read_requests(written(tmp_path, text, "pyproject.toml"))
    assert wanted.request == parse_request(framework="pytorch")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "asks for no image"),
        ("[[image]]\n", "image 1 has no `framework`"),
        ("image = 3\n", "asks for no image"),
        ("image = [3]\n", "asks for no image"),
        ("images = []\n", "unknown key `images`"),
        ("[tool]\nother = 1\n", "asks for no image"),
        ("tool = 1\n", "asks for no image"),
        ("[tool.imgbuild]\nframwork = 'pytorch'\n", "unknown key `framwork`"),
        ("[[image]]\nframework = 'pytorch'\ncudaa = '12.1'\n", "unknown key `cudaa`"),
        ("[[image]]\nframework = 'pytorch'\ncuda = 12.1\n", "`cuda` must be a text"),
        ("[[image]]\nframework = 'pytorch'\ngpu = ['V100', 3]\n", "`gpu` must be a text"),
        (
            "[[image]]\nframework = 'pytorch'\n[[image]]\nframework = 'pytorch$(id)'\n",
            "image 2: `--framework",
        ),
        ("[[image]]\nframework = 'pytorch'\ntag = 'Team:1'\n", "`Team:1` is not a reference"),
        ("[[image]\n", "is not TOML"),
        ("\x00", "is not TOML"),
    ],
)
def test_a_broken_file_is_refused_with_the_place(tmp_path: Path, text: str, words: str) -> None:
    """The message names the file and the image in it."""
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as found:
        read_requests(path)
    assert words in found.value.what
    assert str(path) in found.value.what


@pytest.mark.parametrize("name", ["nowhere.toml", "."])
def test_a_file_that_is_none(tmp_path: Path, name: str) -> None:
    """A folder or nothing at all is a usage error."""
    with pytest.raises(UsageError):
        read_requests(tmp_path / name)


def test_one_request_stands_for_every_cuda(matrix: Matrix) -> None:
    """Each CUDA that has a stack, from the newest on, and each of them resolves."""
    asked = parse_request(framework="pytorch>=2.6", gpus=["V100"])
    found = spread(asked, matrix)
    versions = [request.cuda for request in found]
    assert len(versions) == len(set(versions)) > 1
    assert versions == sorted(versions, reverse=True)  # type: ignore[type-var]
    for request in found:
        stack = resolve(request, matrix)
        assert stack.cuda == request.cuda
        assert "7.0" in map(str, stack.compute_capabilities)


def test_all_stands_for_every_framework(matrix: Matrix) -> None:
    """`--framework all` leaves the framework open; a CUDA that is named stays."""
    found = spread(parse_request(framework=EVERY, cuda="12.1"), matrix)
    assert "pytorch" in {request.framework for request in found}
    assert {str(request.cuda) for request in found} == {"12.1"}


def test_a_second_framework_in_the_requirements_narrows_all(matrix: Matrix) -> None:
    """Only the CUDAs are left whose PyTorch agrees with TensorFlow 2.20.0."""
    asked = parse_request(framework="pytorch")
    alone = spread(asked, matrix)
    together = spread(asked, matrix, [Requirement("tensorflow[and-cuda]==2.20.0")])
    assert set(together) < set(alone)


def test_nothing_for_all_is_a_refusal(matrix: Matrix) -> None:
    """Where no CUDA has a stack, the refusal is the one of the plain request."""
    with pytest.raises(UnmetError):
        spread(parse_request(framework="pytorch==2.4.1", gpus=["B200"]), matrix)


def two_targets(tar: Path | None = None) -> list[Target]:
    """Give two targets that differ in their version."""
    versions = ("2.4.0", "2.4.1")
    network = Network(
        secrets={"ca": Path("/secret/ca.pem")}, arguments={"HTTP_PROXY": "http://user:word@proxy"}
    )
    return [
        Target(
            reference=f"team/pytorch:{version}",
            context=rendered(make_lock(stack=make_stack(version=Version(version)))),
            base_tar=tar,
            network=network,
        )
        for version in versions
    ]


def test_the_bake_file_works_by_hand(tmp_path: Path) -> None:
    """It lies beside its contexts and holds what decides the digests, but nothing of this network."""
    tar = tmp_path / "base.tar"
    tar.write_bytes(b"tar")
    targets = two_targets(tar)
    folder = tmp_path / "bake"
    write_bake(targets, folder)
    text = (folder / BAKE_FILE).read_text()
    document = json.loads(text)
    assert document["group"]["default"]["targets"] == [target.name for target in targets]
    for target in targets:
        described = document["target"][target.name]
        assert described["args"] == {"SOURCE_DATE_EPOCH": str(target.context.created)}
        assert (folder / described["context"] / "Dockerfile").read_text() == target.context.dockerfile
        assert (folder / described["context"] / "base.tar").read_bytes() == b"tar"
    assert "proxy" not in text
    assert "secret" not in text


def test_many_contexts_replace_nothing(tmp_path: Path) -> None:
    """An empty folder may be filled; anything else stays."""
    refuse_filled(tmp_path / "new")
    refuse_filled(tmp_path)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageError):
        refuse_filled(tmp_path)
    with pytest.raises(UsageError):
        refuse_filled(tmp_path / "mine")


@pytest.mark.parametrize(
    ("step", "target"),
    [
        ("[b-1 torch 1/1] RUN x", "b-1"),
        ("[b-1 internal] load build definition", "b-1"),
        ("[b-1] exporting to image", "b-1"),
        ("[torch 1/1] RUN x", None),
        ("b-1 torch", None),
    ],
)
def test_a_step_says_whose_it_is(step: str, target: str | None) -> None:
    """By the name that buildx puts before the stage's."""
    assert target_of(step, ("b", "b-1")) == target


def test_the_table_of_images(capsys: pytest.CaptureFixture[str]) -> None:
    """Each image has a line with its state and its steps; a failed one stays failed."""
    live = Live(("one", "two"))
    live._last = -10.0
    live(Step(id="1", name="[one torch 1/1] RUN x", state="running"))
    shown = capsys.readouterr().err
    assert "running    0 of   1 steps  one" in shown
    assert "waiting    0 of   0 steps  two" in shown
    image = Progress()
    for state in ("waiting", "running", "done"):
        image.take(Step(id="1", name="x", state=state))
    assert image.state == "done"
    image.take(Step(id="2", name="y", state="failed"))
    assert image.state == "failed"
