"""A private network leaves no trace: authority, mirror, proxy and credentials of a build are in no layer."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from commands import TEST_NAMES, Place, docker, make_place, succeeded
from conftest import SESSION, absent
from index_server import Index, serve
from local_index import LOCK, REQUEST, bridge, tiny_index
from relays import archive_address, proxy, relay

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "correct-horse-9"
PROXY_PASSWORD = "battery-staple-7"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A private network: where to work in it, and every text that must not reach an image."""

    place: Place
    secrets: dict[str, bytes]
    index: Index
    proxied: list[str]
    mirrored: list[str]


def authority(folder: Path, host: str) -> dict[str, str]:
    """Make an authority, a certificate of it for one address, and its bundle with this machine's own ones."""
    key, request, issuer_key = folder / "key.pem", folder / "request.pem", folder / "ca-key.pem"
    issuer, certificate, bundle = folder / "ca.pem", folder / "certificate.pem", folder / "bundle.pem"
    names = folder / "names"
    names.write_text(f"subjectAltName=IP:{host}\nbasicConstraints=CA:FALSE\n")
    new = "-newkey rsa:2048 -nodes"
    for words in (
        f"req -x509 {new} -days 2 -keyout {issuer_key} -out {issuer} -subj /CN=imgbuild-test-authority",
        f"req {new} -keyout {key} -out {request} -subj /CN=imgbuild-test-index",
        f"x509 -req -days 2 -in {request} -CA {issuer} -CAkey {issuer_key} -CAcreateserial"
        f" -extfile {names} -out {certificate}",
    ):
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    known = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    bundle.write_bytes((known.read_bytes() if known.is_file() else b"") + issuer.read_bytes())
    return {
        "certfile": str(certificate),
        "keyfile": str(key),
        "bundle": str(bundle),
        "authority": str(issuer),
    }


@contextmanager
def copy_of_the_archive(host: str) -> Iterator[tuple[str, list[str]]]:
    """Run a mirror where this machine's apt says of what; else give no address, and the build uses none."""
    archive = archive_address()
    if archive is None:
        yield "", []
        return
    with relay(host, archive) as (address, asked):
        yield address, asked


@pytest.fixture(scope="module")
def private(
    engine: None, cache: Path, uv_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Network]:
    """Run an index with TLS and a password, a proxy with a password, and a mirror of the archive."""
    if shutil.which("openssl") is None:
        absent("there is no `openssl` on PATH")
    folder = tmp_path_factory.mktemp("private")
    place = make_place(folder, cache)
    host = bridge()
    made = authority(folder, host)
    tiny = tiny_index(place, uv_wheel, SESSION)
    tiny.password = PASSWORD
    certificate = {name: made[name] for name in ("certfile", "keyfile")}
    with ExitStack() as stack:
        index = stack.enter_context(serve(tiny, certificate=certificate, host=host))
        proxy_address, proxied = stack.enter_context(proxy(host, PROXY_PASSWORD))
        mirror, mirrored = stack.enter_context(copy_of_the_archive(host))
        variables = {
            "IMGBUILD_INDEX_PYPI": index.with_password,
            "SSL_CERT_FILE": made["bundle"],
            "IMGBUILD_APT_MIRROR": mirror,
            "HTTP_PROXY": proxy_address,
            "http_proxy": proxy_address,
        }
        lines = Path(made["authority"]).read_text().splitlines()
        yield Network(
            place=place.given(**variables),
            secrets={
                "the password of the index": PASSWORD.encode(),
                "the host of index and mirror": host.encode(),
                "the password of the proxy": PROXY_PASSWORD.encode(),
                "the user of the proxy": b"proxy-user",
                "the private authority": lines[len(lines) // 2].encode(),
            },
            index=index,
            proxied=proxied,
            mirrored=mirrored,
        )


@pytest.fixture(scope="module")
def archive(private: Network) -> Path:
    """Build the tiny stack through all of it, every step anew, and export it."""
    locked = private.place.imgbuild("lock", *REQUEST, "-o", LOCK)
    assert locked.returncode == 0, locked.stderr
    private.proxied.clear()
    private.mirrored.clear()
    words = ("--lock", LOCK, "--no-cache", "--no-test", "--format", "json", "--output", "oci:image.tar")
    succeeded(private.place.imgbuild("build", *words, "--tag", f"{TEST_NAMES}/private:1"))
    return private.place.folder / "image.tar"


def test_the_build_went_through_the_private_network(private: Network, archive: Path) -> None:
    """Mirror and proxy were really used: only then does their absence from the image mean something."""
    if private.place.environment["IMGBUILD_APT_MIRROR"]:
        assert any(path.endswith(".deb") for path in private.mirrored)
    assert private.proxied
    assert any("torch" in path for path in private.index.asked)


def test_no_layer_holds_a_trace(private: Network, archive: Path) -> None:
    """Layers, configuration, history and labels hold no credential, address or authority of the network."""
    found = [
        f"{name} in {blob}"
        for blob, content in blobs(archive)
        for name, secret in private.secrets.items()
        if secret in content or quote(secret).encode() in content
    ]
    assert not found


def test_the_lock_holds_no_credential(private: Network, archive: Path) -> None:
    """A lock may name a mirror, never its password."""
    for path in (private.place.folder / LOCK).iterdir():
        assert PASSWORD not in path.read_text()
        assert PROXY_PASSWORD not in path.read_text()


def test_neither_time_nor_network_decide_the_digest(private: Network, archive: Path, digest: str) -> None:
    """The same wheels, built anew in another folder, at another time, without a mirror: the same digest."""
    form = "{{.Id}}"
    found = docker("image", "inspect", "--format", form, f"{TEST_NAMES}/private:1").stdout.strip()
    assert found == digest


def test_an_untrusted_index_is_outside(private: Network) -> None:
    """Without the authority the lock stops with exit 4 and says how to trust it."""
    done = private.place.given(SSL_CERT_FILE=os.environ.get("SSL_CERT_FILE", "")).imgbuild(
        "lock", *REQUEST, "-o", "untrusted.lock"
    )
    assert done.returncode == 4
    assert "SSL_CERT_FILE" in done.stderr
    assert PASSWORD not in done.stderr


def blobs(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Give every blob of an OCI archive, and every layer unpacked."""
    import zstandard

    with tarfile.open(archive) as members:
        for member in members:
            stream = members.extractfile(member)
            if stream is None:
                continue
            content = stream.read()
            yield member.name, content
            if content.startswith(b"\x28\xb5\x2f\xfd"):
                unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(content)
                yield f"{member.name}, unpacked", unpacked
