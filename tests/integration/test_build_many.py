"""Many images in one bake on the real engine: shared stages once, failures apart, a rerun goes on."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from commands import has_image

if TYPE_CHECKING:
    from local_index import Tiny

REQUESTS = """
[[image]]
framework = "pytorch"
cuda = "12.1"
requirements = "fine.txt"
tag = "imgbuild-test/many:fine"

[[image]]
framework = "pytorch"
cuda = "9.9"

[[image]]
framework = "pytorch"
cuda = "12.1"
requirements = "damaged.txt"
tag = "imgbuild-test/many:damaged"

[[image]]
framework = "pytorch"
cuda = "12.1"
requirements = "other.txt"
tag = "imgbuild-test/many:other"
"""
MANY = ("build", "--requests", "images.toml", "--no-test", "--progress", "plain", "--format", "json")


@pytest.fixture(scope="module")
def many(tiny: Tiny) -> Tiny:
    """Ask for four images of the tiny stack, of which two can be: one has no stack, one a changed wheel."""
    folder = tiny.place.folder
    (folder / "images.toml").write_text(REQUESTS)
    for name in ("fine", "damaged", "other"):
        tiny.index.add(f"many-{name}", "1.0")
        (folder / f"{name}.txt").write_text(f"many-{name}==1.0\n")
    done = tiny.place.imgbuild("lock", "--framework", "pytorch", "--cuda", "12.1", "-r", "damaged.txt",
                               "-o", "imgbuild-test-many-damaged.lock")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = [name for name in tiny.index.files if name.startswith("many_damaged")]
    tiny.index.files[wheel] += b"changed"
    return tiny


def run(many: Tiny) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Build them all, and give what was said of each."""
    done = many.place.imgbuild(*MANY)
    assert done.stdout, done.stderr
    images: list[dict[str, Any]] = json.loads(done.stdout)["images"]
    return done, images


def test_two_are_made_and_two_fail(many: Tiny) -> None:
    """The exit code is the first failure's, and each failure says its own cause."""
    done, images = run(many)
    assert [image["state"] for image in images] == ["built", "failed", "failed", "built"], done.stderr
    assert done.returncode == 3
    assert "2 of 4 images failed" in done.stderr
    assert "many-damaged" in str(images[2])
    assert all(has_image(image["tags"][0]) for image in (images[0], images[3]))
    assert not many.place.leftovers()


def test_a_second_run_goes_on(many: Tiny) -> None:
    """What is there is taken as it is, what failed is tried again."""
    _, before = run(many)
    many.index.asked.clear()
    done, images = run(many)
    assert [image["state"] for image in images] == ["reused", "failed", "failed", "reused"], done.stderr
    assert [image.get("digest") for image in images] == [image.get("digest") for image in before]
    fetched = {path for path in many.index.asked if path.endswith(".whl")}
    assert all("damaged" in path for path in fetched)


def test_by_hand(many: Tiny) -> None:
    """The folder that `render` writes is baked by plain buildx, to the same digests."""
    _, images = run(many)
    wanted = {image["digest"] for image in images if image["state"] == "reused"}
    parts = [part for part in REQUESTS.split("[[image]]") if "fine" in part or "other" in part]
    (many.place.folder / "two.toml").write_text("".join(f"[[image]]{part}" for part in parts))
    done = many.place.imgbuild("render", "--requests", "two.toml", "-o", "bake", "--format", "json")
    assert done.returncode == 0, done.stderr
    folder = many.place.folder / "bake"
    secret = many.place.folder / "bake-index.toml"
    secret.write_text(f'[[index]]\nurl = "{many.index.url}"\ndefault = true\n')
    metadata = many.place.folder / "bake.json"
    words = [f"--metadata-file={metadata}", "--set", f"*.secrets=id=index,src={secret}"]
    subprocess.run(["docker", "buildx", "bake", *words], cwd=folder, check=True, capture_output=True)
    answers = json.loads(metadata.read_text()).values()
    assert {one["containerimage.digest"] for one in answers if isinstance(one, dict)} == wanted
