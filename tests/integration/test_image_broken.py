"""Images broken on purpose: each is a failed check with its cause, exit 6, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from commands import TEST_NAMES, Place, docker

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import RealImage

SITE = "/opt/venv/lib/python3.11/site-packages"
# What runs when torch is about to be imported.
HOOK = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            {action}
sys.meta_path.insert(0, Finder())
"""

Break = Callable[..., str]


@pytest.fixture(scope="module")
def broken(real_image: RealImage, tmp_path_factory: pytest.TempPathFactory) -> Break:
    """Give a function that makes an image from the real one with some steps, and gives its name."""

    def make(name: str, steps: str, files: Mapping[str, Path] | None = None) -> str:
        folder = tmp_path_factory.mktemp(name)
        (folder / "Dockerfile").write_text(f"FROM {real_image.reference}\nUSER root\n{steps}\nUSER 1000\n")
        for file, source in (files or {}).items():
            (folder / file).hardlink_to(source)
        tag = f"{TEST_NAMES}/broken:{name}"
        docker("buildx", "build", "--quiet", "--provenance=false", "--load", "--tag", tag, str(folder))
        return tag

    return make


def download(requirement: str, folder: Path) -> Path:
    """Download a real wheel for the image's Python from the default index."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
         "--python-version", "3.11", "--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64",
         "--dest", str(folder), requirement],
        check=True,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


def check(image: str, *words: str, options: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Run some checks inside an image, which must fail, and give the failed ones by id."""
    done = docker(
        "run", "--rm", "--network", "none", *options, image, "imgbuild-check", "--format", "json", *words,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 6, done.stderr
    assert "Traceback" not in done.stderr
    return failures(json.loads(done.stdout))


def failures(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the failed results by id; each has a cause."""
    failed = {result["id"]: result for result in report["results"] if result["status"] == "fail"}
    assert all(result["diagnosis"] for result in failed.values())
    return failed


def rejected(place: Place, image: str) -> dict[str, dict[str, Any]]:
    """Run `imgbuild test` on an image, which must fail, and give the failed results by id."""
    done = place.imgbuild("test", image, "--format", "json", "--report", "report")
    assert done.returncode == 6, done.stderr
    assert "smoke checks failed" in done.stderr
    return failures(json.loads(done.stdout))


def test_cudnn_is_gone(place: Place, broken: Break) -> None:
    """Without one of cuDNN's libraries `imgbuild test` names the file, its wheel and how to mend it."""
    failed = rejected(place, broken("cudnn", f"RUN rm {SITE}/nvidia/cudnn/lib/libcudnn_ops.so.9"))
    assert "libcudnn_ops.so.9 of nvidia-cudnn-cu12 9.1.0.70 is missing" in failed["libs.files"]["diagnosis"]
    assert "nvidia-cudnn-cu12==9.1.0.70" in failed["libs.files"]["next_step"]
    assert "libcudnn_ops.so.9" in failed["libs.resolve"]["diagnosis"]
    assert (place.folder / "report" / "junit.xml").read_text().count("<failure") == len(failed)


def test_numpy_is_older(broken: Break, tmp_path: Path) -> None:
    """A NumPy that someone put over the locked one is named with both versions."""
    wheel = download("numpy==1.26.4", tmp_path)
    image = broken(
        "numpy",
        f"RUN rm -r {SITE}/numpy {SITE}/numpy-* {SITE}/numpy.libs\n"
        f"RUN --mount=type=bind,source={wheel.name},target=/w/{wheel.name} "
        f"python3 -m zipfile -e /w/{wheel.name} {SITE}",
        {wheel.name: wheel},
    )
    failed = check(image, "--only", "env")
    assert "numpy" in failed["env.packages"]["diagnosis"]
    assert "numpy is 1.26.4" in str(failed["env.packages"]["evidence"]["problems"])


def test_nccl_is_older(broken: Break, tmp_path: Path) -> None:
    """An older NCCL wheel is found by its version and by what torch really loaded."""
    wheel = download("nvidia-nccl-cu12==2.19.3", tmp_path)
    image = broken(
        "nccl",
        f"RUN --mount=type=bind,source={wheel.name},target=/w/{wheel.name} "
        f"rm -r {SITE}/nvidia/nccl {SITE}/nvidia_nccl_cu12-* && "
        f"python3 -m zipfile -e /w/{wheel.name} {SITE}",
        {wheel.name: wheel},
    )
    failed = check(image, "--only", "env.packages", "--only", "libs")
    assert "nvidia-nccl-cu12 is 2.19.3" in str(failed["env.packages"]["evidence"]["problems"])
    loaded = json.dumps(failed["libs.loaded"])
    assert "2.19.3" in loaded
    assert "2.20.5" in loaded


def test_a_second_cudnn_is_first(broken: Break) -> None:
    """A copy of cuDNN that LD_LIBRARY_PATH puts first is a shadow, with its path and its way in."""
    image = broken(
        "shadow",
        f"RUN mkdir /opt/other && cp {SITE}/nvidia/cudnn/lib/libcudnn.so.9 /opt/other/\n"
        "ENV LD_LIBRARY_PATH=/opt/other",
    )
    failed = check(image, "--only", "libs")
    shadow = failed["libs.shadow"]
    assert "/opt/other/libcudnn.so.9" in json.dumps(shadow)
    assert "LD_LIBRARY_PATH" in shadow["diagnosis"] + str(shadow["next_step"])


def test_no_compiler(broken: Break) -> None:
    """Without a C compiler torch.compile would fail at run time; the toolchain check says so."""
    failed = check(broken("compiler", "RUN rm /usr/bin/*gcc* /usr/bin/cc"), "--only", "compile.toolchain")
    assert "no C compiler" in failed["compile.toolchain"]["summary"]


def test_a_check_that_hangs(broken: Break) -> None:
    """A hanging import is a failed check after its time limit, not a hung command."""
    image = broken("hang", _hook("__import__('time').sleep(1000)"))
    failed = check(image, "--only", "env.framework", "--only", "env.python", "--timeout", "5")
    assert list(failed) == ["env.framework"]
    assert "no answer in 5 s" in failed["env.framework"]["summary"]
    assert failed["env.framework"]["seconds"] < 20


def test_a_check_that_crashes(place: Place, broken: Break) -> None:
    """A segmentation fault is a failed check with the signal's name; the other checks still run."""
    failed = rejected(place, broken("crash", _hook("__import__('ctypes').string_at(0)")))
    assert "SIGSEGV" in failed["env.framework"]["summary"]
    assert "env.python" not in failed
    report = json.loads((place.folder / "report" / "report.json").read_text())
    assert len(report["results"]) > 20


def test_little_shared_memory(real_image: RealImage) -> None:
    """Docker's 64 MiB of /dev/shm are in the evidence of the check; the same check sees more when given."""
    for options, size in ((), 64), (("--shm-size", "1g"), 1024):
        done = real_image.run("imgbuild-check", "--only", "nccl.shm", "--format", "json", options=options)
        (result,) = json.loads(done.stdout)["results"]
        assert f"{size} MiB" in result["summary"], result


def test_an_image_without_python(place: Place) -> None:
    """An image without Python fails with that cause."""
    image = f"{TEST_NAMES}/foreign:no-python"
    (place.folder / "Dockerfile").write_text(
        'FROM scratch\nADD base.tar /\nLABEL other="1"\nCMD ["/bin/sh"]\n'
    )
    (base,) = place.bases.glob("sha256-*.tar")
    (place.folder / "base.tar").hardlink_to(base)
    docker("buildx", "build", "--quiet", "--provenance=false", "--load", "--tag", image, str(place.folder))
    failed = rejected(place, image)
    assert "no Python" in failed["runner.report"]["diagnosis"]


def test_an_image_without_anything(place: Place) -> None:
    """An image without even a shell cannot run the checks: the command says why and leaves no container."""
    image = f"{TEST_NAMES}/foreign:empty"
    (place.folder / "Dockerfile").write_text('FROM scratch\nCOPY Dockerfile /\nCMD ["/x"]\n')
    docker("buildx", "build", "--quiet", "--provenance=false", "--load", "--tag", image, str(place.folder))
    assert "no Python" in rejected(place, image)["runner.report"]["diagnosis"]


def test_an_image_that_is_not_there(place: Place) -> None:
    """An unknown image is exit 4 with the command that would fetch it."""
    done = place.imgbuild("test", f"{TEST_NAMES}/nowhere:1")
    assert done.returncode == 4
    assert f"docker pull {TEST_NAMES}/nowhere:1" in done.stderr


def test_an_image_of_somebody_else(place: Place, broken: Break) -> None:
    """An image without our manifest is tested too; the comparison is skipped, and said so."""
    image = broken("foreign", "RUN rm /opt/imgbuild/stack.json")
    done = docker(
        "run", "--rm", image, "imgbuild-check", "--only", "env.packages", "--format", "json", check=False
    )
    (result,) = json.loads(done.stdout)["results"]
    assert (done.returncode, result["status"]) == (0, "skip")
    assert "no stack manifest" in result["summary"]


def _hook(action: str) -> str:
    """Give the step that makes an image do something when torch is about to be imported."""
    lines = "\\n".join(HOOK.format(action=action).splitlines()).replace("'", "'\\''")
    return f"RUN printf '{lines}\\n' > {SITE}/zz_hook.py && echo import zz_hook > {SITE}/zz_hook.pth"
