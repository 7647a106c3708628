"""What the tests with a real engine share: the command line as a person runs it, images, and cleaning up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# The installed program beside the Python that runs the tests.
IMGBUILD = Path(sys.executable).with_name("imgbuild")
# Every image that a test makes is called so, and is removed at the end.
TEST_NAMES = "imgbuild-test"
TEMPORARY = "io.imgbuild.temporary"
# The build cache that is left on a CI machine.
KEEP_CACHE = "10GB"


def docker(*words: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the docker command line and give what it printed."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=check, **options)


def absent(reason: str) -> None:
    """Skip a test, or fail it where the engine was promised."""
    if os.environ.get("IMGBUILD_REQUIRE_ENGINE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """Make sure of an engine with buildx, and leave it without the images of these tests."""
    if shutil.which("docker") is None:
        absent("there is no `docker` on PATH")
    answer = docker("info", "--format", "{{.DriverStatus}}", check=False)
    if answer.returncode:
        absent(f"no Docker engine answers: {answer.stderr.strip()}")
    if "io.containerd.snapshotter" not in answer.stdout:
        absent("the Docker engine has no containerd image store")
    before = set(image_ids())
    yield
    names = docker("images", "--format", "{{.Repository}}:{{.Tag}}", TEST_NAMES + "*").stdout.split()
    names += docker("images", "--format", "{{.Repository}}:{{.Tag}}", f"{TEST_NAMES}/*").stdout.split()
    if names:
        docker("rmi", "--force", *names, check=False)
    if os.environ.get("CI") == "true":
        leftover = [image for image in image_ids() if image not in before]
        if leftover:
            docker("rmi", "--force", *leftover, check=False)
        docker("builder", "prune", "--force", "--keep-storage", KEEP_CACHE, check=False)


def image_ids() -> list[str]:
    """Give the ids of all images that the engine has."""
    return docker("images", "--all", "--quiet", "--no-trunc").stdout.split()


@pytest.fixture(autouse=True)
def no_container_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that used the engine and left a container of the tool behind."""
    yield
    if "engine" in request.fixturenames:
        left = docker("ps", "--all", "--quiet", "--filter", f"label={TEMPORARY}=true").stdout.split()
        assert not left, "a temporary container was left behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder to work in, with its own temporary folder and the cache that the whole session shares."""

    folder: Path
    environment: dict[str, str]

    @property
    def temporary(self) -> Path:
        """Where the command line makes its temporary files."""
        return Path(self.environment["TMPDIR"])

    def given(self, **variables: str) -> Place:
        """Give the same folder with more variables."""
        return Place(folder=self.folder, environment={**self.environment, **variables})

    def imgbuild(self, *words: str, timeout: float = 580) -> subprocess.CompletedProcess[str]:
        """Run the program to its end; whatever it does, it prints no traceback."""
        done = subprocess.run(
            [IMGBUILD, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the program; its progress can be read from `stderr` line by line."""
        return subprocess.Popen(
            [IMGBUILD, *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def succeeded(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Give the JSON document of a run that must have ended well."""
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def has_image(reference: str) -> bool:
    """Tell whether the engine has an image of this name or digest."""
    return docker("image", "inspect", reference, check=False).returncode == 0


def candidates() -> set[str]:
    """Give the names of images that wait for their checks."""
    return set(docker("images", "--format", "{{.Repository}}:{{.Tag}}", "imgbuild-candidate").stdout.split())


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the cache folder of the session: bootstrapped bases are made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def place(tmp_path: Path, cache: Path) -> Place:
    """Give an empty folder to work in."""
    return make_place(tmp_path, cache)


def make_place(folder: Path, cache: Path) -> Place:
    """Give a folder to work in; what this machine says of its indexes, proxies and authorities stays."""
    work, temporary = folder / "work", folder / "temporary"
    work.mkdir()
    temporary.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IMGBUILD_")}
    return Place(
        folder=work,
        environment={**kept, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary), "NO_COLOR": "1"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RealImage:
    """The image of the main job: what `build --format json` said, what it printed, where its report lies."""

    document: dict[str, Any]
    told: str
    place: Place
    report: Path

    @property
    def reference(self) -> str:
        """The tag that it was given."""
        tag: str = self.document["tags"][0]
        return tag

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `docker run --rm` with options, the image and a command."""
        return docker("run", "--rm", "--network", "none", *words, check=check, timeout=300)


MAIN_JOB = ("build", "--framework", "pytorch", "--cuda", "12.1", "--progress", "plain", "--format", "json")


@pytest.fixture(scope="session")
def real_image(engine: None, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> RealImage:
    """Do the main job once: PyTorch for CUDA 12.1 from real wheels, tested."""
    folder = tmp_path_factory.mktemp("main-job")
    place = make_place(folder, cache)
    done = place.imgbuild(*MAIN_JOB, "--report", "report", timeout=1200)
    return RealImage(
        document=succeeded(done), told=done.stderr, place=place, report=place.folder / "report"
    )
