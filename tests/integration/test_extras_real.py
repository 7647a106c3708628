"""What extras add, from real wheels: their checks pass, and S3 gives back what was written."""

from __future__ import annotations

import socket
import subprocess
import time
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest
from framework_venv import inside, make, perform

from imagebuilder.matrix import load
from imagebuilder.resolve.extras import requirements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXTRAS = ("jupyter", "monitoring", "object-storage")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install what the extras require, and a server that speaks S3."""
    matrix = load([])
    lines = {line for name in EXTRAS for line in requirements(matrix, "jax", name)}
    return make(tmp_path_factory.mktemp("extras"), *sorted(lines), "moto[server]")


@pytest.fixture(scope="module")
def s3(python: Path) -> Iterator[dict[str, str]]:
    """Run the server with a bucket, and give what the check reads from its environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    words = [python.with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urlopen(Request(f"{endpoint}/bucket", method="PUT"), timeout=5).close()  # noqa: S310
                break
            except OSError:
                time.sleep(0.1)
        yield {
            "IMGBUILD_S3_ENDPOINT": endpoint,
            "IMGBUILD_S3_BUCKET": "bucket",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize("name", ["jupyter", "monitoring"])
def test_the_check_of_an_extra_passes(name: str, python: Path) -> None:
    """A JupyterLab that answers and starts a kernel; numbers that come back from TensorBoard and MLflow."""
    answer = perform(python, f"extras:{name}")
    assert answer["status"] == "pass", answer


def test_an_object_goes_to_s3_and_comes_back(python: Path, s3: dict[str, str]) -> None:
    """Through fsspec, and nothing is left in the bucket."""
    answer = perform(python, "extras:object_storage", f"import os; os.environ.update({s3!r})\n")
    assert (answer["status"], answer["summary"]) == ("pass", "1 MiB went to S3 and came back"), answer
    script = "import fsspec, json, os; f = fsspec.filesystem('s3', endpoint_url=os.environ['E']);"
    script += "print(json.dumps(f.ls('bucket')))"
    left = inside(python, script, variables={**s3, "E": s3["IMGBUILD_S3_ENDPOINT"]})
    assert left == []


def test_without_a_server_s3_is_skipped(python: Path) -> None:
    """Never passed: what was not tried proves nothing."""
    answer = perform(python, "extras:object_storage")
    assert answer["status"] == "skip"
    assert "IMGBUILD_S3_ENDPOINT" in answer["next_step"]
