"""The same lock gives the same digest: exported, pushed, built by hand (test_build_traces: built again)."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tarfile
from typing import TYPE_CHECKING

from commands import TEST_NAMES, docker, has_image, succeeded
from local_index import LOCK, Tiny, manifest

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_changed_builds_nothing(tiny: Tiny, digest: str) -> None:
    """A build of an image that is there already gives it another name and does not run buildx."""
    asked = tiny.index.asked.total()
    again = succeeded(tiny.build("--tag", f"{TEST_NAMES}/tiny:again"))
    assert (again["digest"], again["reused"]) == (digest, True)
    assert tiny.index.asked.total() == asked
    assert has_image(f"{TEST_NAMES}/tiny:again")


def test_an_image_made_from_it_is_not_taken_for_it(tiny: Tiny, digest: str) -> None:
    """It inherits all labels, the build key too, but is another image."""
    derived = f"{TEST_NAMES}/tiny:derived"
    (tiny.place.folder / "derived").mkdir()
    (tiny.place.folder / "derived" / "Dockerfile").write_text(
        f"FROM {TEST_NAMES}/tiny:first\nRUN touch /workspace/mine\n"
    )
    docker("buildx", "build", "--load", "--tag", derived, str(tiny.place.folder / "derived"))
    again = succeeded(tiny.build("--tag", f"{TEST_NAMES}/tiny:again"))
    assert (again["digest"], again["reused"]) == (digest, True)


def test_oci_archive(tiny: Tiny, digest: str) -> None:
    """`--output oci:PATH` writes an archive of the very manifest that the engine has."""
    document = succeeded(tiny.build("--tag", f"{TEST_NAMES}/tiny:oci", "--output", "oci:out/image.tar"))
    with tarfile.open(tiny.place.folder / "out" / "image.tar") as archive:
        member = archive.extractfile("index.json")
        assert member is not None
        (entry,) = json.load(member)["manifests"]
    assert (document["oci_digest"], entry["digest"]) == (digest, digest)
    assert [path.name for path in (tiny.place.folder / "out").iterdir()] == ["image.tar"]


def test_registry(tiny: Tiny, digest: str, registry_host: str) -> None:
    """`--output registry` pushes that manifest, and the registry knows it by the same digest."""
    name = f"{registry_host}/{TEST_NAMES}:pushed"
    document = succeeded(tiny.build("--tag", name, "--output", "registry"))
    assert document["pushed"] == {name: digest}
    assert manifest(registry_host, TEST_NAMES, "pushed")[0] == digest


def test_requirements_change_the_last_layers_only(tiny: Tiny, digest: str, registry_host: str) -> None:
    """A requirement of the user's adds layers behind the stack's, which stay as they are."""
    tiny.index.add("small-extra", "1.0")
    (tiny.place.folder / "requirements.txt").write_text("small-extra\n")
    done = tiny.place.imgbuild("lock", "--framework", "pytorch", "--cuda", "12.1",
                               "-r", "requirements.txt", "-o", "extra.lock")  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name, lock in (("plain", LOCK), ("extra", "extra.lock")):
        words = ("--tag", f"{registry_host}/{TEST_NAMES}:{name}", "--output", "registry", "--no-test")
        succeeded(tiny.place.imgbuild("build", "--lock", lock, *words, "--format", "json"))
    plain, extra = (
        [layer["digest"] for layer in manifest(registry_host, TEST_NAMES, name)[1]["layers"]]
        for name in ("plain", "extra")
    )
    same = sum(one == two for one, two in zip(plain, extra, strict=False))
    # at the end of both: metadata and the empty work folder
    assert same >= len(plain) - 2
    assert len(extra) == len(plain) + 1


def test_by_hand(tiny: Tiny, digest: str) -> None:
    """Plain buildx makes the same image of the rendered folder, by the command that its Dockerfile names."""
    done = tiny.place.imgbuild("render", "--lock", LOCK, "-o", "context")
    assert done.returncode == 0, done.stderr
    context = tiny.place.folder / "context"
    command = _documented_command(context / "Dockerfile")
    words = shlex.split(re.sub(r"name=[^,]+", f"name={TEST_NAMES}/tiny:by-hand", command))
    secret = tiny.place.folder / "index.toml"
    secret.write_text(f'[[index]]\nurl = "{tiny.index.url}"\ndefault = true\n')
    metadata = tiny.place.folder / "metadata.json"
    subprocess.run(
        [*words, f"--metadata-file={metadata}", f"--secret=id=index,src={secret}"], cwd=context, check=True
    )
    assert json.loads(metadata.read_text())["containerimage.digest"] == digest


def _documented_command(dockerfile: Path) -> str:
    """Give the command that the Dockerfile says to build it with."""
    lines = [line.removeprefix("#").strip() for line in dockerfile.read_text().splitlines()]
    (first,) = [number for number, line in enumerate(lines) if line.startswith("docker buildx build")]
    command = lines[first]
    while command.endswith("\\"):
        first += 1
        command = command.removesuffix("\\") + lines[first]
    return command


def test_root_when_asked(tiny: Tiny) -> None:
    """`--user root` gives an image that runs as root, and says so where the default does not."""
    succeeded(tiny.build("--user", "root", "--tag", f"{TEST_NAMES}/tiny:root"))
    form = "{{.Config.User}}"
    assert docker("image", "inspect", "--format", form, f"{TEST_NAMES}/tiny:root").stdout.strip() == "0"
    home = docker("run", "--rm", f"{TEST_NAMES}/tiny:root", "sh", "-c", "id -u; echo $HOME; touch /root/x")
    assert home.stdout.split() == ["0", "/root"]
