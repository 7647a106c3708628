"""What goes wrong around a build: its exit code, its words, and that nothing is left half-done."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from commands import TEST_NAMES, Place, has_image, names_of, refused, succeeded
from local_index import LOCK, REQUEST, Tiny


def write_template(place: Place, block: str, body: str) -> None:
    """Write an override of the packaged template that fills one block."""
    folder = place.folder / "templates"
    folder.mkdir()
    (folder / "pytorch.Dockerfile.j2").write_text(
        f'{{% extends "builtin/pytorch.Dockerfile.j2" %}}\n'
        f"{{% block {block} %}}\n{{{{ super() }}}}\n{body}\n{{% endblock %}}\n"
    )


def test_another_wheel_than_the_locked_one(own_tiny: Tiny) -> None:
    """An index that serves other bytes under the same name fails the build; nothing gets the tag."""
    name = next(name for name in own_tiny.index.files if name.startswith("torch-"))
    own_tiny.index.files[name] = own_tiny.index.files[name] + b"\0"
    before = names_of("imgbuild-candidate")
    done = own_tiny.build("--tag", f"{TEST_NAMES}/wrong-hash:1")
    refused(done, 5, "the build failed at `[pytorch 1/1]", "Hash mismatch", "not the one locked")
    assert not has_image(f"{TEST_NAMES}/wrong-hash:1")
    assert names_of("imgbuild-candidate") == before
    assert not own_tiny.place.leftovers()


def test_an_index_that_dies_during_the_build(own_tiny: Tiny) -> None:
    """A build whose index answers no more leaves no tag and no candidate, and succeeds when it is back."""
    tag = f"{TEST_NAMES}/dying-index:1"
    before = names_of("imgbuild-candidate")
    own_tiny.index.status = 503
    done = own_tiny.build("--tag", tag)
    assert done.returncode in (4, 5), done.stderr
    assert "503" in done.stderr
    assert not has_image(tag)
    assert names_of("imgbuild-candidate") == before
    assert not own_tiny.place.leftovers()
    own_tiny.index.status = None
    succeeded(own_tiny.build("--tag", tag))
    assert has_image(tag)


@pytest.mark.parametrize(
    "tag",
    ["UPPER:1", "name", "name:", "a b:1", "name:1;id", "-x:1", "name@sha256:" + "0" * 64, "n:" + "x" * 129],
)
def test_a_name_that_no_engine_takes(place: Place, tag: str) -> None:
    """A malformed `--tag` is refused before anything is done."""
    refused(place.imgbuild("build", *REQUEST, "--tag", tag), 2, "--tag")
    assert not list(place.folder.iterdir())


def test_no_engine(tiny: Tiny) -> None:
    """A DOCKER_HOST that nobody listens at ends with exit 4 and a next step, before the build."""
    done = tiny.build("--tag", f"{TEST_NAMES}/never:1", DOCKER_HOST="tcp://127.0.0.1:1")
    refused(done, 4, "no Docker engine answers", "next:")
    assert not tiny.place.leftovers()


def test_an_engine_that_is_no_engine(tiny: Tiny) -> None:
    """A DOCKER_HOST that is malformed, or a socket that is none, ends with exit 4 as well."""
    for host in ("nonsense", "unix:///dev/null"):
        refused(tiny.build("--tag", f"{TEST_NAMES}/never:1", DOCKER_HOST=host), 4, "next:")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs a mount namespace")
def test_no_buildx(own_tiny: Tiny) -> None:
    """A docker command line without its buildx plugin ends with exit 4 and says what to install."""
    empty = own_tiny.place.folder / "empty"
    empty.mkdir()
    folders = [
        f"{root}/docker/cli-plugins"
        for root in ("/usr/libexec", "/usr/lib", "/usr/local/libexec", "/usr/local/lib")
        if Path(root, "docker/cli-plugins").is_dir()
    ]
    hide = "".join(f"mount --bind {empty} {folder} && " for folder in folders)
    config = own_tiny.place.folder / "docker"
    config.mkdir()
    done = own_tiny.place.given(DOCKER_CONFIG=str(config)).imgbuild(
        "build", "--lock", LOCK, "--no-test", "--tag", f"{TEST_NAMES}/never:1",
        wrapper=("unshare", "--mount", "sh", "-c", f'{hide} exec "$@"', "sh"),
    )  # fmt: skip
    refused(done, 4, "buildx is missing", "next:")
    assert not own_tiny.place.leftovers()


def test_no_docker_command(own_tiny: Tiny) -> None:
    """Without the docker command line, the engine alone is not enough: exit 4."""
    done = own_tiny.build("--tag", f"{TEST_NAMES}/never:1", PATH="/nowhere")
    refused(done, 4, "`docker` command is missing", "next:")


def test_an_unknown_builder(own_tiny: Tiny) -> None:
    """A builder that does not exist ends with exit 4 and names the command that lists them."""
    done = own_tiny.build("--tag", f"{TEST_NAMES}/never:1", "--builder", "no-such-builder")
    refused(done, 4, "the builder does not exist", "docker buildx ls")


def test_an_image_that_holds_something_else(own_tiny: Tiny) -> None:
    """A template that changes an installed version is found out before any tag is given."""
    site = "/opt/venv/lib/python3.*/site-packages"
    write_template(
        own_tiny.place,
        "environment",
        f"RUN sed -i 's/^Version: .*/Version: 9.9/' {site}/filelock-*.dist-info/METADATA || "
        f"sed -i 's/^Version: .*/Version: 9.9/' {site}/triton-*.dist-info/METADATA",
    )
    tag = f"{TEST_NAMES}/read-back:1"
    before = names_of("imgbuild-candidate")
    done = own_tiny.build("--tag", tag, "--templates", "templates")
    refused(done, 5, "the built image does not hold what the lock says", "in the image 9.9")
    assert not has_image(tag)
    assert names_of("imgbuild-candidate") == before


def test_a_template_that_the_lint_refuses(own_tiny: Tiny) -> None:
    """A template with a known mistake stops before the build, with rule and line."""
    write_template(own_tiny.place, "environment", "RUN pip install requests")
    done = own_tiny.build("--tag", f"{TEST_NAMES}/never:1", "--templates", "templates")
    refused(done, 2, "unhashed-install", "Dockerfile:")
    assert not has_image(f"{TEST_NAMES}/never:1")


def test_a_build_step_that_fails(own_tiny: Tiny) -> None:
    """A failing step of a template is named with its own last words, without our mounts."""
    write_template(own_tiny.place, "environment", "RUN echo the last words >&2 && exit 3")
    done = own_tiny.build("--tag", f"{TEST_NAMES}/never:1", "--templates", "templates")
    refused(done, 5, "RUN echo the last words", "the last words")
    assert "--mount" not in done.stderr
    assert not own_tiny.place.leftovers()


def test_the_archive_cannot_be_written(tiny: Tiny) -> None:
    """An `oci:` path below a file is a usage error, not a fault."""
    (tiny.place.folder / "a-file").write_text("")
    done = tiny.build("--tag", f"{TEST_NAMES}/tiny:nowhere", "--output", "oci:a-file/image.tar")
    refused(done, 2, "a-file")


def test_a_registry_that_is_not_there(tiny: Tiny) -> None:
    """A push that nobody answers is exit 4 with the registry's name."""
    done = tiny.build("--tag", f"127.0.0.1:1/{TEST_NAMES}:1", "--output", "registry")
    refused(done, 4, "127.0.0.1:1", "next:")
