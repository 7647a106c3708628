"""Bases and apt, as far as nothing outside is asked."""

import json
from pathlib import Path

import pytest

from imagebuilder.base import Deb, LockedBase, ensure_base, lock_base
from imagebuilder.base.apt import AptFolder, apt_failure, mirror_sources, read_uris
from imagebuilder.base.bootstrap import RootFs, cached_tar, installed
from imagebuilder.base.mmdebstrap import EXCLUDES
from imagebuilder.errors import DifferenceError, OutsideError, UsageError
from imagebuilder.matrix.facts import Base
from imagebuilder.matrix.words import Glibc, Python
from imagebuilder.registry import digest_of

HASH = "0123456789abcdef" * 4


def base(distribution: str = "debian", suite: str = "bookworm", *, bootstrap: bool = True) -> Base:
    """Give a base whose registry refuses the connection."""
    return Base(
        distribution=distribution,
        suite=suite,
        bootstrap=bootstrap,
        image="127.0.0.1:1/base:12",
        glibc=Glibc.parse("2.36"),
        python=Python.parse("3.11"),
        gcc=12,
        machines=("x86_64",),
    )


def test_uris_are_read_with_their_epochs() -> None:
    """The file name of apt holds the epoch's colon as %3a; the version holds it as a colon."""
    text = f"'http://a/z_1.2%2bd.deb' zlib1g-dev_1%3a1.2+d-1_amd64.deb 916272 SHA256:{HASH}\n\n"
    assert read_uris(text) == (
        Deb(
            name="zlib1g-dev",
            version="1:1.2+d-1",
            arch="amd64",
            filename="zlib1g-dev_1%3a1.2+d-1_amd64.deb",
            size=916272,
            sha256=HASH,
        ),
    )
    assert read_uris("") == ()


@pytest.mark.parametrize(
    "line",
    ["'http://a/b.deb' a_1_amd64.deb 7 MD5Sum:0123", f"'http://a/b.deb' b.deb 7 SHA256:{HASH}", "E: nothing"],
)
def test_a_package_without_its_hash_is_refused(line: str) -> None:
    """A lock that cannot name every byte is no lock."""
    with pytest.raises(OutsideError, match="without its hash"):
        read_uris(line)


def test_installed_packages_are_named_exactly() -> None:
    """Removed packages whose settings stayed are not part of a base."""
    status = (
        "Package: b\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2:1\nTag: x\n y: z\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n\n"
        "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\n"
    )
    assert installed(status) == ["a=1", "b:amd64=2:1"]


def test_a_mirror_serves_every_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Security updates of Debian lie beside the archive, those of Ubuntu in it; the key is named."""
    monkeypatch.setenv("IMGBUILD_APT_MIRROR", "https://mirror.example.org/debian/")
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    assert mirror_sources(base()) == (
        f"deb {key} https://mirror.example.org/debian bookworm main\n"
        f"deb {key} https://mirror.example.org/debian bookworm-updates main\n"
        f"deb {key} https://mirror.example.org/debian-security bookworm-security main\n"
    )
    ubuntu = mirror_sources(base("ubuntu", "jammy"))
    assert ubuntu is not None
    assert "https://mirror.example.org/debian jammy-security main universe" in ubuntu
    assert "ubuntu-archive-keyring.gpg" in ubuntu


def test_a_snapshot_may_be_past_its_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a snapshot are out of date by design, those of a mirror are not."""
    monkeypatch.setenv("IMGBUILD_APT_MIRROR", "https://s.example.org/archive/debian/20250101T000000Z")
    assert "[check-valid-until=no signed-by" in str(mirror_sources(base()))


@pytest.mark.parametrize(
    "mirror", ["x", "file:///x", "http://a b", "http://a]\ndeb http://b", "http://$(id)"]
)
def test_a_broken_mirror_is_a_usage_error(mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but an address enters apt's sources."""
    monkeypatch.setenv("IMGBUILD_APT_MIRROR", mirror)
    with pytest.raises(UsageError, match="IMGBUILD_APT_MIRROR is not"):
        mirror_sources(base())


def test_passwords_of_addresses_are_not_shown() -> None:
    """Addresses are printed by apt with their password; an error does not."""
    failure = apt_failure("E: Failed to fetch https://user:secret@mirror/debian 401\nreading\n")
    assert failure.why == "E: Failed to fetch https://mirror/debian 401"


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("E: Unable to locate package g++", "imgbuild matrix show"),
        ("W: server certificate verification failed", "export SSL_CERT_FILE"),
        ("W: GPG error: NO_PUBKEY 0E98404D386FA1D9", "debian-archive-keyring"),
        ("exec /bin/sh: exec format error", "qemu-user-static"),
        ("E: something new", "imgbuild doctor"),
    ],
)
def test_apts_troubles_have_a_next_step(said: str, hint: str) -> None:
    """The usual refusals of apt name what mends them."""
    assert hint in str(apt_failure(said).hint)


def test_a_base_that_is_not_bootstrapped_keeps_the_registrys_error(tmp_path: Path) -> None:
    """Where there is nothing to fall back to, the registry's own refusal is what a person sees."""
    with pytest.raises(OutsideError, match=r"the registry `127.0.0.1:1` cannot be reached"):
        lock_base("ubuntu-22.04", base(bootstrap=False), "amd64", cache=tmp_path)


def test_a_host_without_mmdebstrap_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`auto` says what is missing for the bootstrap, with the command that brings it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OutsideError, match="no `mmdebstrap`") as caught:
        lock_base("debian-12", base(), "amd64", cache=tmp_path / "cache")
    assert caught.value.hint == "sudo apt-get install mmdebstrap debian-archive-keyring"


def test_a_base_of_another_machine_needs_an_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of another machine cannot run here: said before anything is downloaded."""
    (tmp_path / "mmdebstrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "mmdebstrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(OutsideError, match="cannot be bootstrapped on this riscv64 host"):
        lock_base("debian-12", base(), "arm64", origin="bootstrap", cache=tmp_path / "cache")


def locked(digest: str) -> LockedBase:
    """Give a bootstrapped base of that digest."""
    return LockedBase(name="debian-12", origin="bootstrap", digest=digest, debs=())


def test_the_cache_gives_a_tar_by_its_digest_alone(tmp_path: Path) -> None:
    """A tar whose bytes are not what its name says is not taken."""
    digest = digest_of(b"tar")
    tar = tmp_path / "bases" / f"{digest.replace(':', '-')}.tar"
    tar.parent.mkdir()
    tar.write_bytes(b"tar")
    assert ensure_base(locked(digest), base(), "amd64", tmp_path) == tar
    tar.write_bytes(b"tra")
    assert cached_tar(digest, tmp_path) is None


def test_a_registry_base_needs_no_tar(tmp_path: Path) -> None:
    """The engine pulls it by digest."""
    image = LockedBase(
        name="debian-12", origin="registry", image="docker.io/library/debian:12", digest="x", debs=()
    )
    assert ensure_base(image, base(), "amd64", tmp_path) is None


def test_another_digest_of_the_same_packages_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the packages are the locked ones, the tool that made the tar is what differs: exit code 7."""
    tar = tmp_path / "base.tar"
    made = RootFs(tar=tar, digest="sha256:1", packages=(), apt=AptFolder(tmp_path, "amd64", "", b""))
    monkeypatch.setattr("imagebuilder.base.bootstrap.bootstrap", lambda *words, **more: made)
    assert ensure_base(locked("sha256:1"), base(), "amd64", tmp_path) == tar
    with pytest.raises(DifferenceError, match="not the locked digest"):
        ensure_base(locked("sha256:2"), base(), "amd64", tmp_path)


def test_a_broken_record_in_the_cache_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in the cache, the next step is the bootstrap and no traceback."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "bases").mkdir()
    record = tmp_path / "bases" / "debian-12-amd64.json"
    for document in (
        "{",
        "[]",
        json.dumps({"packages": [{"x": 1}]}),
        json.dumps({"packages": 3, "recipe": 1}),
    ):
        record.write_text(document)
        with pytest.raises(OutsideError, match="mmdebstrap"):
            lock_base("debian-12", base(), "amd64", origin="bootstrap", cache=tmp_path)


def test_licences_stay() -> None:
    """Documentation is left out, the licence of every package is not."""
    docs = EXCLUDES.index("path-exclude=/usr/share/doc/*")
    assert "path-include=/usr/share/doc/*/copyright" in EXCLUDES[docs:]
