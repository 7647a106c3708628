"""A tiny stack: every package of the real one as a wheel of a few hundred bytes, on an index of our own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from commands import Place, docker, make_place, succeeded

sys.path.insert(0, str(Path(__file__).parents[1]))

from index_server import Index, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUEST = ("--framework", "pytorch", "--cuda", "12.1")
LOCK = "tiny.lock"


def bridge() -> str:
    """Give the address under which builds and containers reach this host."""
    form = "{{(index .IPAM.Config 0).Gateway}}"
    return docker("network", "inspect", "bridge", "--format", form).stdout.strip()


def installer(folder: Path) -> Path:
    """Download the wheel of uv that the build installs the others with, from the default index."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
         "--dest", str(folder), f"uv=={version('uv')}"],
        check=True,
    )  # fmt: skip
    return next(folder.glob("uv-*.whl"))


def tiny_index(place: Place, uv: Path, nonce: str) -> Index:
    """Make wheels of the names and versions that the stack pins; `nonce` makes this index' bytes its own."""
    stack = succeeded(place.imgbuild("resolve", *REQUEST, "--format", "json"))
    packages: dict[str, str] = stack["packages"]
    index = Index(files={uv.name: uv.read_bytes()})
    others = [f"{name}=={version}" for name, version in packages.items() if name != "torch"]
    for name, number in packages.items():
        first = name == "torch"
        index.add(name, number, requires=others if first else (), extras=[nonce] if first else ())
    return index


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiny:
    """An index that is being served, a lock made from it, and the folder that the lock lies in."""

    index: Index
    place: Place

    def build(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Build from the lock without running the checks, which tiny wheels cannot pass."""
        return self.place.given(**variables).imgbuild(
            "build", "--lock", LOCK, "--no-test", "--progress", "plain", "--format", "json", *words
        )


@contextmanager
def tiny_stack(folder: Path, cache: Path, uv: Path, nonce: str) -> Iterator[Tiny]:
    """Serve a tiny stack to builds and lock it."""
    place = make_place(folder, cache)
    with serve(tiny_index(place, uv, nonce), host=bridge()) as index:
        place = place.given(IMGBUILD_INDEX_PYPI=index.url)
        done = place.imgbuild("lock", *REQUEST, "-o", LOCK)
        assert done.returncode == 0, done.stderr
        yield Tiny(index=index, place=place)


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Run a registry on a free port of the loopback, which an engine needs no TLS for, and give its host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    storage = {"filesystem": {"rootdirectory": str(folder / "data")}}
    (folder / "config.yml").write_text(
        json.dumps({"version": "0.1", "storage": storage, "http": {"addr": host}})
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", str(folder / "config.yml")],
        env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(host.rpartition(":")[2]))) == 0:
                    break
            time.sleep(0.05)
        yield host
    finally:
        process.terminate()
        process.wait(10)


def manifest(host: str, repository: str, reference: str) -> tuple[str, dict[str, Any]]:
    """Ask a registry for a manifest; give its digest and itself."""
    kinds = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"
    request = Request(f"http://{host}/v2/{repository}/manifests/{reference}", headers={"Accept": kinds})
    with urlopen(request) as answer:  # noqa: S310
        return answer.headers["Docker-Content-Digest"], json.load(answer)
