"""Programs as a person runs them: docker, and imgbuild in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The installed program beside the Python that runs the tests.
IMGBUILD = Path(sys.executable).with_name("imgbuild")
# Every image that a test makes is called so, and is removed at the end.
TEST_NAMES = "imgbuild-test"


def docker(*words: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the docker command line and give what it printed."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=check, **options)


def has_image(reference: str) -> bool:
    """Tell whether the engine has an image of this name or digest."""
    return docker("image", "inspect", reference, check=False).returncode == 0


def names_of(repository: str) -> set[str]:
    """Give the names of the images of a repository; `*` stands for anything but a slash."""
    return set(docker("images", "--format", "{{.Repository}}:{{.Tag}}", repository).stdout.split())


def containers() -> set[str]:
    """Give the containers that the tool made and has not removed."""
    return set(
        docker("ps", "--all", "--quiet", "--filter", "label=io.imgbuild.temporary=true").stdout.split()
    )


def image_ids() -> set[str]:
    """Give the ids of all images that the engine has."""
    return set(docker("images", "--all", "--quiet", "--no-trunc").stdout.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder to work in, with its own temporary folder and the cache that the whole session shares."""

    folder: Path
    environment: dict[str, str]

    @property
    def temporary(self) -> Path:
        """Where the command line makes its temporary files."""
        return Path(self.environment["TMPDIR"])

    @property
    def bases(self) -> Path:
        """Where bootstrapped bases are kept, and build contexts are laid out beside them."""
        return Path(self.environment["XDG_CACHE_HOME"], "imgbuild", "bases")

    def given(self, **variables: str) -> Place:
        """Give the same folder with more variables."""
        return Place(folder=self.folder, environment={**self.environment, **variables})

    def imgbuild(
        self, *words: str, timeout: float = 580, wrapper: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run the program to its end; whatever it does, it prints no traceback."""
        done = subprocess.run(
            [*wrapper, str(IMGBUILD), *words],
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
            [str(IMGBUILD), *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def leftovers(self) -> list[str]:
        """Give what a command left behind of its temporary and half-written files."""
        return [
            *map(str, self.temporary.iterdir()),
            *map(str, self.bases.glob("context-*")),
            *map(str, self.folder.rglob("*.part")),
            *map(str, self.folder.glob(".*")),
        ]


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


def succeeded(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Give the JSON document of a run that must have ended well."""
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """See that a run ended with an exit code and said these words."""
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
