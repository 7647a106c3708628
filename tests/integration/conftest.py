"""What the tests with a real engine share: the engine, the image of the main job, a tiny stack."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from commands import TEST_NAMES, Place, containers, docker, image_ids, make_place, names_of, succeeded
from local_index import Tiny, installer, registry, tiny_stack

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

# The build cache that is left on a CI machine.
KEEP_CACHE = "10GB"
# What makes the wheels of the session's tiny stack its own.
SESSION = f"session{os.urandom(4).hex()}"
MAIN_JOB = ("build", "--framework", "pytorch", "--cuda", "12.1", "--progress", "plain", "--format", "json")


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
    before = image_ids()
    yield
    ours = names_of(f"{TEST_NAMES}*") | names_of(f"{TEST_NAMES}/*") | names_of(f"127.0.0.1:*/{TEST_NAMES}")
    if os.environ.get("CI") == "true":
        ours |= image_ids() - before
    if ours:
        docker("rmi", "--force", *ours, check=False)
    if os.environ.get("CI") == "true":
        docker("builder", "prune", "--force", "--keep-storage", KEEP_CACHE, check=False)


@pytest.fixture(autouse=True)
def no_container_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that used the engine and left a container of the tool behind."""
    uses_engine = "engine" in request.fixturenames
    before = containers() if uses_engine else set()
    yield
    if uses_engine:
        assert not containers() - before, "a temporary container was left behind"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the cache folder of the session: bootstrapped bases are made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def place(engine: None, tmp_path: Path, cache: Path) -> Place:
    """Give an empty folder to work in."""
    return make_place(tmp_path, cache)


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

    def run(
        self, *words: str, options: tuple[str, ...] = (), network: str = "none"
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a container of the image, without a network unless one is named."""
        options = ("--network", network, *options)
        return docker("run", "--rm", *options, self.reference, *words, check=False, timeout=300)


@pytest.fixture(scope="session")
def real_image(engine: None, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> RealImage:
    """Do the main job once: PyTorch for CUDA 12.1 from real wheels, tested."""
    place = make_place(tmp_path_factory.mktemp("main-job"), cache)
    done = place.imgbuild(*MAIN_JOB, "--report", "report", timeout=1200)
    return RealImage(document=succeeded(done), told=done.stderr, place=place, report=place.folder / "report")


@pytest.fixture(scope="session")
def uv_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the wheel of uv, which a tiny index has to serve as it is."""
    return installer(tmp_path_factory.mktemp("uv"))


@pytest.fixture(scope="session")
def tiny(
    engine: None, cache: Path, uv_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tiny]:
    """Serve and lock a tiny stack for the whole session."""
    with tiny_stack(tmp_path_factory.mktemp("tiny"), cache, uv_wheel, SESSION) as stack:
        yield stack


@pytest.fixture(scope="session")
def digest(tiny: Tiny) -> str:
    """Build the tiny stack, every step anew, and give its digest."""
    return str(succeeded(tiny.build("--no-cache", "--tag", f"{TEST_NAMES}/tiny:first"))["digest"])


@pytest.fixture
def own_tiny(
    engine: None, cache: Path, uv_wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Tiny]:
    """Serve and lock a tiny stack whose bytes no other test has, so that no layer of it is in a cache."""
    with tiny_stack(tmp_path, cache, uv_wheel, nonce_of(request.node.name)) as stack:
        yield stack


def nonce_of(name: str) -> str:
    """Give a name that only this run of this test has."""
    return "".join(char for char in name if char.isalnum()) + f"x{os.getpid()}x{os.urandom(4).hex()}"


@pytest.fixture(scope="session")
def registry_host(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a registry for the session and give its host."""
    if shutil.which("docker-registry") is None:
        absent("there is no `docker-registry` on PATH")
    with registry(tmp_path_factory.mktemp("registry")) as host:
        yield host
