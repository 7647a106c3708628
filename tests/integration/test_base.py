"""Bases from real registries and real archives: the same packages give the same bytes, from anywhere."""

import json
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from imagebuilder.base import LockedBase, ensure_base, lock_base
from imagebuilder.base.bootstrap import cached_tar
from imagebuilder.engine import Engine
from imagebuilder.errors import OutsideError
from imagebuilder.matrix.facts import Base
from imagebuilder.matrix.words import Glibc, Python
from imagebuilder.registry import find_image

NAME = "debian-12"
BASE = Base(
    distribution="debian",
    suite="bookworm",
    bootstrap=True,
    image="docker.io/library/debian:bookworm-slim",
    glibc=Glibc.parse("2.36"),
    python=Python.parse("3.11"),
    gcc=12,
    machines=("x86_64",),
)
pytestmark = pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="this host has no mmdebstrap")
needs_registry = pytest.mark.skipif(
    shutil.which("docker-registry") is None, reason="this host has no docker-registry"
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a cache folder; its name has a space, as a person's folders may."""
    return tmp_path_factory.mktemp("the cache")


@pytest.fixture(scope="module")
def locked(cache: Path) -> LockedBase:
    """Bootstrap a base from the distribution's own address."""
    return lock_base(NAME, BASE, "amd64", origin="bootstrap", cache=cache)


@contextmanager
def registry(folder: Path, **http: object) -> Iterator[str]:
    """Run a registry on a free port and give its host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    storage = {"filesystem": {"rootdirectory": str(folder / "data")}}
    settings = {"version": "0.1", "storage": storage, "http": {"addr": host, **http}}
    (folder / "config.yml").write_text(json.dumps(settings))
    process = subprocess.Popen(
        ["docker-registry", "serve", folder / "config.yml"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(host.split(":")[1]))) == 0:
                    break
            time.sleep(0.05)
        yield host
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def mirror(sources: str) -> Iterator[str]:
    """Serve the archives of apt's `sources` under one address, as a company's mirror does."""
    archive = next(line.split()[-3] for line in sources.splitlines() if "security" not in line)
    security = next(line.split()[-3] for line in sources.splitlines() if "security" in line)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, _, path = self.path.partition("/private/")
            address = security if path.startswith("debian-security") else archive
            rest = path.removeprefix("debian-security" if address == security else "debian")
            try:
                with urlopen(address + rest) as answer:  # noqa: S310 (the address of the archive)
                    body, status = answer.read(), answer.status
            except HTTPError as error:
                body, status = error.read(), error.code
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/private/debian"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read(tar: Path, name: str) -> str:
    """Read one file of a tar."""
    with tarfile.open(tar) as archive:
        stream = archive.extractfile(name)
        assert stream is not None
        return stream.read().decode()


def test_a_bootstrapped_base_is_named_to_the_last_byte(locked: LockedBase, cache: Path) -> None:
    """The lock has the tar's digest, and version and hash of each package in it and on top of it."""
    tar = cached_tar(locked.digest, cache)
    assert tar is not None
    assert {"dpkg", "apt", "libc6", "passwd"} <= {deb.name for deb in locked.packages}
    names = {deb.name for deb in locked.debs}
    assert {"python3", "g++", "gcc", "libpython3-dev", "ca-certificates"} <= names
    assert not names & {deb.name for deb in locked.packages}
    assert all(len(deb.sha256) == 64 and deb.size for deb in (*locked.packages, *locked.debs))
    with tarfile.open(tar) as archive:
        files = archive.getnames()
    leftovers = (
        "var/log/",
        "etc/hostname",
        "etc/resolv.conf",
        "__pycache__",
        "-old",
        "99mmdebstrap",
        "aux-cache",
    )
    assert [name for name in files for part in leftovers if part in name] == []
    assert "./usr/share/doc/libc6/copyright" in files
    assert "./usr/share/man/man1" not in files


def test_an_unchanged_archive_gives_the_cached_base(locked: LockedBase, cache: Path) -> None:
    """A second lock asks the archive what is new, and bootstraps nothing when nothing is."""
    before = {path.name: path.stat().st_mtime_ns for path in (cache / "bases").glob("*.tar")}
    assert lock_base(NAME, BASE, "amd64", origin="bootstrap", cache=cache) == locked
    assert {path.name: path.stat().st_mtime_ns for path in (cache / "bases").glob("*.tar")} == before


def test_a_mirror_gives_the_same_bytes_and_leaves_no_trace(
    locked: LockedBase, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base made again through a private mirror has the locked digest and not the mirror's name."""
    tar = cached_tar(locked.digest, cache)
    assert tar is not None
    sources = read(tar, "./etc/apt/sources.list")
    with mirror(sources) as address:
        monkeypatch.setenv("IMGBUILD_APT_MIRROR", address)
        again = ensure_base(locked, BASE, "amd64", tmp_path)
    assert again is not None
    assert again.name == tar.name
    assert address.split("/")[2].encode() not in again.read_bytes()


def test_packages_that_are_gone_are_named(locked: LockedBase, tmp_path: Path) -> None:
    """A lock whose versions the archive no longer has names them, and the snapshot as the way out."""
    packages = tuple(replace(deb, version="0.1") if deb.name == "tar" else deb for deb in locked.packages)
    old = replace(locked, digest=f"sha256:{'0' * 64}", packages=packages)
    with pytest.raises(OutsideError, match="no longer has the locked packages") as caught:
        ensure_base(old, BASE, "amd64", tmp_path)
    assert str(caught.value.why).startswith("tar: locked 0.1, now ")
    assert "snapshot" in str(caught.value.hint)


def test_a_failed_bootstrap_leaves_nothing(tmp_path: Path) -> None:
    """An archive without the suite is told in apt's words; no part of a tar stays."""
    with pytest.raises(OutsideError, match="debian nosuchsuite cannot be bootstrapped") as caught:
        lock_base("x", replace(BASE, suite="nosuchsuite"), "amd64", origin="bootstrap", cache=tmp_path)
    assert "nosuchsuite" in str(caught.value.why)
    assert [path.name for path in (tmp_path / "bases").iterdir() if path.suffix != ".busy"] == []


@needs_registry
def test_auto_takes_the_registry_and_falls_back(
    locked: LockedBase, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry's base has the same packages on top; without a registry `auto` bootstraps and says why."""
    tar = cached_tar(locked.digest, cache)
    assert tar is not None
    with registry(tmp_path) as host:
        reference = f"{host}/hub/library/debian:bookworm-slim"
        subprocess.run(["docker", "import", tar, reference], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["docker", "push", "--quiet", reference], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["docker", "rmi", reference], check=True, stdout=subprocess.DEVNULL)
        monkeypatch.setenv("IMGBUILD_REGISTRY_MIRROR", f"{host}/hub")
        found = lock_base(NAME, BASE, "amd64", cache=cache)
        Engine.connect().remove(f"{host}/hub/library/debian@{found.digest}")
    assert (found.origin, found.image) == ("registry", BASE.image)
    assert found.debs == locked.debs
    fallen = lock_base(NAME, BASE, "amd64", cache=cache)
    assert (fallen.origin, fallen.digest, fallen.debs) == ("bootstrap", locked.digest, locked.debs)
    assert fallen.note == f"bootstrapped, since the registry `{host}` cannot be reached"


@needs_registry
def test_a_private_authority_is_believed_when_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown certificate is an error that names the variable; with the variable it is trusted (J3)."""
    certificate, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=registry",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    with registry(tmp_path, tls={"certificate": str(certificate), "key": str(key)}) as host:
        monkeypatch.setenv("IMGBUILD_REGISTRY_MIRROR", f"https://{host}")
        with pytest.raises(OutsideError, match=r"certificate of the registry .* is not trusted") as caught:
            find_image("debian:12", "amd64")
        assert "SSL_CERT_FILE" in str(caught.value.hint)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with pytest.raises(OutsideError, match="the registry has no"):
            find_image("debian:12", "amd64")
