"""Locks from real solves: on an index of our own, where every answer is known, and on the configured one."""

import json
import os
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from index_server import Index, serve
from packaging.pylock import Pylock

from imagebuilder import solver
from imagebuilder.base import Deb, LockedBase
from imagebuilder.errors import OutsideError, UnmetError
from imagebuilder.index import DEFAULT_INDEX_VARIABLES
from imagebuilder.lock import Lock, lock
from imagebuilder.lock.files import IMAGE, PYLOCK, read_lock, write_lock
from imagebuilder.lock.requirements import read_requirements
from imagebuilder.matrix import Matrix, load
from imagebuilder.matrix.words import Glibc
from imagebuilder.request import parse_request
from imagebuilder.resolve import resolve
from imagebuilder.resolve.stack import Stack

MANYLINUX = "manylinux_2_28_x86_64"
NATIVE = f"cp311-cp311-{MANYLINUX}"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Load the packaged facts."""
    return load()


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this host configures, and what uv has cached of other indexes."""
    for name in (*DEFAULT_INDEX_VARIABLES, "IMGBUILD_INDEX_PYTORCH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))


def stack_of(matrix: Matrix, framework: str, **options: str) -> Stack:
    """Resolve a framework."""
    return resolve(parse_request(framework=framework, **options), matrix)  # type: ignore[arg-type]


def base() -> LockedBase:
    """Give a base without asking an engine."""
    deb = Deb(name="python3", version="3", arch="amd64", filename="p.deb", size=1, sha256="0" * 64)
    return LockedBase(name="debian-12", origin="bootstrap", digest="sha256:" + "0" * 64, debs=(deb,))


def no_base() -> LockedBase:
    """Fail where a base is asked for in spite of a clash."""
    raise AssertionError("a clash must be found before the base is made")


def locked(matrix: Matrix, stack: Stack, text: str = "", **options: Any) -> Lock:
    """Lock a stack with a requirements file of this text."""
    Path("req.txt").write_text(text)
    make_base = options.pop("make_base", base)
    return lock(stack, matrix, read_requirements([Path("req.txt")]), make_base, **options)


def refused(matrix: Matrix, stack: Stack, text: str) -> UnmetError:
    """Give the error for a requirements file that clashes."""
    with pytest.raises(UnmetError) as caught:
        locked(matrix, stack, text, make_base=no_base)
    return caught.value


def names(wheels: Any) -> set[str]:
    """Give the names of wheels."""
    return {wheel.name for wheel in wheels}


def fill(index: Index, stack: Stack, matrix: Matrix) -> Index:
    """Put a stack on an index: torch asks for its pins and two pure packages, as the real one does."""
    pins = {name: pin for name, pin in stack.packages.items() if name != stack.package}
    soft = matrix.frameworks[stack.framework].beside
    requires = [f"{name}=={pin}" for name, pin in pins.items() if name not in soft]
    index.add("torch", str(stack.version), tag=NATIVE, requires=[*requires, "filelock", "fsspec"])
    for name, pin in pins.items():
        index.add(name, pin, tag=f"py3-none-{MANYLINUX}" if name.startswith("nvidia-") else NATIVE)
    index.add("filelock", "3.0")
    for version in ("2024.1", "2025.1"):
        index.add("fsspec", version)
    index.add("numpy", "1.26.4", tag=NATIVE)
    index.add("uv", uv_version(), tag=f"py3-none-{MANYLINUX}")
    return index


def uv_version() -> str:
    """Give the version of the uv that solves."""
    from importlib.metadata import version

    return version("uv")


@pytest.fixture
def stack(matrix: Matrix) -> Stack:
    """Resolve PyTorch 2.4.1 from PyPI, CUDA 12.1."""
    return stack_of(matrix, "pytorch==2.4.1")


@pytest.fixture
def index(
    own_settings: None, stack: Stack, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Index]:
    """Serve the stack on an index of our own."""
    with serve(fill(Index(), stack, matrix)) as served:
        monkeypatch.setenv("IMGBUILD_INDEX_PYPI", served.url)
        yield served


def test_a_lock_names_every_wheel(index: Index, matrix: Matrix, stack: Stack) -> None:
    """All pins and what they need, each with hash, size and address; the installer is no part of them."""
    made = locked(matrix, stack)
    assert names(made.wheels) == {*stack.packages, "filelock", "fsspec"}
    assert not made.user_wheels
    assert made.installer.name == "uv"
    found = {wheel.name: str(wheel.version) for wheel in made.wheels}
    assert {name: found[name] for name in stack.packages} == dict(stack.packages)
    for wheel in made.wheels:
        assert wheel.size == len(index.files[wheel.filename])
        assert wheel.url.startswith(index.url.removesuffix("/simple"))
        assert wheel.uploaded == "2026-01-02T03:04:05+00:00"


def test_a_lock_written_twice_is_the_same(index: Index, matrix: Matrix, stack: Stack) -> None:
    """Two locks of one request are equal byte by byte, valid by the standard, and read back as they were."""
    for name in ("one", "two"):
        write_lock(locked(matrix, stack, "fsspec\n"), Glibc.parse("2.36"), Path(name))
    for name in (IMAGE, PYLOCK):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()
    Pylock.from_dict(tomllib.loads(Path("one", PYLOCK).read_text())).validate()
    assert read_lock(Path("one")) == locked(matrix, stack, "fsspec\n")


def test_wheels_of_the_user_are_told_from_the_stacks(index: Index, matrix: Matrix, stack: Stack) -> None:
    """What only the requirements bring is the user's; a dependency of the stack that they move is not."""
    index.add("timm", "1.0", requires=["safetensors", "fsspec<2025"])
    index.add("safetensors", "0.5")
    made = locked(matrix, stack, "timm\n")
    assert names(made.user_wheels) == {"timm", "safetensors"}
    assert {str(wheel.version) for wheel in made.wheels if wheel.name == "fsspec"} == {"2024.1"}
    assert made.requirements == ("timm",)


def test_a_package_beside_the_framework_gives_way(index: Index, matrix: Matrix, stack: Stack) -> None:
    """NumPy is older where a requirement asks for it; nothing else moves, and it is said."""
    made = locked(matrix, stack, "numpy<2\n")
    moved = {wheel.name: str(wheel.version) for wheel in made.wheels}
    assert moved.pop("numpy") == "1.26.4"
    assert moved == {
        wheel.name: str(wheel.version) for wheel in locked(matrix, stack).wheels if wheel.name != "numpy"
    }
    assert any("numpy is 1.26.4" in note for note in made.notes)


def test_an_earlier_lock_keeps_its_versions(index: Index, matrix: Matrix, stack: Stack) -> None:
    """With an earlier lock a newer release on the index moves nothing that still fits."""
    before = locked(matrix, stack)
    index.add("filelock", "9.0")
    os.environ["UV_CACHE_DIR"] += "-2"
    after = locked(matrix, stack, before=before.pylock)
    assert after.pylock == before.pylock
    assert locked(matrix, stack).pylock != before.pylock


def test_the_line_that_clashes_is_found_among_others(index: Index, matrix: Matrix, stack: Stack) -> None:
    """Only the guilty line is named, with uv's reason, the version that fits and the release it wants."""
    for version, torch in (("1.0", "2.4.1"), ("2.0", "2.5.1")):
        index.add("xformers", version, requires=[f"torch=={torch}"])
    index.add("harmless", "1.0")
    error = refused(matrix, stack, "harmless\n\nxformers==2.0\nfsspec\n")
    assert "`xformers==2.0` (req.txt:3)" in error.what
    assert "harmless" not in error.what
    assert "depends on torch==2.5.1" in str(error.why)
    assert [one["command"] for one in error.alternatives] == [
        "sed -i '3c xformers==1.0' req.txt",
        "imgbuild lock --framework pytorch==2.5.1 -r req.txt",
    ]
    subprocess.run(error.alternatives[0]["command"], shell=True, check=True)  # noqa: S602 (what a person would paste)
    assert "xformers" in names(locked(matrix, stack, Path("req.txt").read_text()).user_wheels)


def test_lines_that_clash_only_together_are_both_named(index: Index, matrix: Matrix, stack: Stack) -> None:
    """Neither line is wrong by itself: both are named, and no third one."""
    index.add("left", "1.0", requires=["shared<2"])
    index.add("right", "1.0", requires=["shared>=2"])
    for version in ("1.0", "2.0"):
        index.add("shared", version)
    index.add("harmless", "1.0")
    error = refused(matrix, stack, "harmless\nleft\nright\n")
    assert "req.txt:2" in error.what
    assert "req.txt:3" in error.what
    assert "req.txt:1" not in error.what


def test_a_clash_deep_in_the_dependencies(index: Index, matrix: Matrix, stack: Stack) -> None:
    """The line is named whose dependency's dependency wants another torch."""
    index.add("outer", "1.0", requires=["inner"])
    index.add("inner", "1.0", requires=["torch<2.4"])
    error = refused(matrix, stack, "outer\n")
    assert "`outer` (req.txt:1)" in error.what
    assert "inner" in str(error.why)


def test_only_wheels_are_taken(index: Index, matrix: Matrix, stack: Stack) -> None:
    """A package without a wheel for the image is named, with what to do; an older wheel is found instead."""
    index.sdist("onlysource", "1.0")
    index.add("windows", "1.0", tag="cp311-cp311-win_amd64")
    index.add("newpython", "1.0", tag=f"cp313-cp313-{MANYLINUX}")
    index.add("newglibc", "1.0", tag="cp311-cp311-manylinux_2_39_x86_64")
    for name in ("onlysource", "windows", "newpython", "newglibc"):
        error = refused(matrix, stack, f"{name}\n")
        assert f"needs a wheel of `{name}` for Python 3.11" in error.what
        assert f"pip wheel --no-deps {name}" in str(error.hint)
    index.add("mended", "1.0")
    index.sdist("mended", "2.0")
    error = refused(matrix, stack, "mended==2.0\n")
    assert error.alternatives[0]["command"] == "sed -i '1c mended==1.0' req.txt"


def test_a_name_that_is_not_there(index: Index, matrix: Matrix, stack: Stack) -> None:
    """A typo in a name is said to be one, with its line."""
    error = refused(matrix, stack, "nupmy\n")
    assert error.what == "`nupmy` (req.txt:1) is not on the index"


def test_a_second_nccl_is_refused(index: Index, matrix: Matrix, stack: Stack) -> None:
    """A requirement that brings NCCL for another CUDA major solves, and is refused all the same."""
    index.add("nvidia-nccl-cu11", "2.21.5", tag=f"py3-none-{MANYLINUX}")
    index.add("brings", "1.0", requires=["nvidia-nccl-cu11"])
    error = refused(matrix, stack, "brings\n")
    assert "nvidia-nccl-cu11" in error.what
    assert "nvidia-nccl-cu12==2.20.5" in error.what


def test_a_mirror_that_mixes_builds_is_noticed(index: Index, matrix: Matrix, stack: Stack) -> None:
    """`torch==2.4.1` admits 2.4.1+cpu: a mirror that has it cannot slip it in."""
    index.add("torch", "2.4.1+cpu", tag=NATIVE)
    error = refused(matrix, stack, "")
    assert "2.4.1+cpu" in str(error.why)


def test_the_best_wheel_for_the_base_is_chosen(index: Index, matrix: Matrix, stack: Stack) -> None:
    """Of the files of a version the one for the newest glibc that the base has, of those the last build."""
    for tag in ("manylinux_2_17", "manylinux_2_28", "manylinux_2_39"):
        index.add("many", "1.0", tag=f"cp311-cp311-{tag}_x86_64")
    index.add("many", "1.0")
    index.add("built", "1.0", tag=f"2-{NATIVE}")
    index.add("built", "1.0", tag=f"10-{NATIVE}")
    made = {wheel.name: wheel.filename for wheel in locked(matrix, stack, "many\nbuilt\n").user_wheels}
    assert made == {"many": f"many-1.0-{NATIVE}.whl", "built": f"built-1.0-10-{NATIVE}.whl"}


def test_credentials_reach_the_index_and_nothing_else(
    index: Index, matrix: Matrix, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index behind a password works, and the password is in no file of the lock."""
    index.password = "s3cret-word"
    monkeypatch.setenv("IMGBUILD_INDEX_PYPI", index.with_password)
    write_lock(locked(matrix, stack), Glibc.parse("2.36"), Path("a.lock"))
    assert "s3cret-word" not in Path("a.lock", IMAGE).read_text() + Path("a.lock", PYLOCK).read_text()
    assert read_lock(Path("a.lock")).wheels


def test_wrong_credentials_are_not_the_users_requirements(
    index: Index, matrix: Matrix, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that wants a password is an outside fault that names the variable."""
    index.password = "s3cret-word"
    with pytest.raises(OutsideError, match="wants credentials") as caught:
        locked(matrix, stack)
    assert "IMGBUILD_INDEX_PYPI" in str(caught.value.hint)
    monkeypatch.setenv("IMGBUILD_INDEX_PYPI", index.with_password.replace("s3cret", "wrong"))
    with pytest.raises(OutsideError) as caught:
        locked(matrix, stack)
    assert "wrong-word" not in f"{caught.value.what} {caught.value.why} {caught.value.hint}"


def test_only_a_replacement_of_the_index_counts(
    index: Index, matrix: Matrix, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extra indexes and find-links of the environment are not asked, whatever they offer."""
    with serve(Index()) as other:
        other.add("torch", "2.4.1", tag=NATIVE)
        other.add("filelock", "99.0")
        for name in ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS"):
            monkeypatch.setenv(name, other.url)
        monkeypatch.setenv("UV_DEFAULT_INDEX", other.url)
        monkeypatch.setenv("UV_INDEX_STRATEGY", "unsafe-best-match")
        Path("uv.toml").write_text(f'[[index]]\nurl = "{other.url}"\n')
        made = locked(matrix, stack)
        assert not other.asked
    assert "99.0" not in {str(wheel.version) for wheel in made.wheels}


def test_an_index_without_sizes(index: Index, matrix: Matrix, stack: Stack) -> None:
    """Plain HTML pages give neither size nor time: the sizes are asked for, the times stay unknown."""
    index.html = True
    made = locked(matrix, stack)
    assert {wheel.size for wheel in made.wheels if wheel.name == "torch"} == {
        len(index.files[f"torch-2.4.1-{NATIVE}.whl"])
    }
    assert {wheel.uploaded for wheel in made.wheels} == {None}


def test_an_index_in_a_folder(
    index: Index, matrix: Matrix, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An air-gapped host can lock from a folder with one page a package."""
    from hashlib import sha256

    for name, content in index.files.items():
        folder = Path("simple", name.partition("-")[0].replace("_", "-"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        with (folder / "index.html").open("a") as page:
            page.write(f'<a href="{name}#sha256={sha256(content).hexdigest()}">{name}</a>\n')
    monkeypatch.setenv("IMGBUILD_INDEX_PYPI", Path("simple").resolve().as_uri())
    made = locked(matrix, stack)
    assert all(wheel.url.startswith("file://") and wheel.size for wheel in made.wheels)
    assert not index.asked


@pytest.mark.usefixtures("own_settings")
class TestOutside:
    """An index that fails is exit 4, named without credentials, within its time."""

    @pytest.fixture
    def fails(self, matrix: Matrix, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Give a function that locks from an address and gives the error."""

        def fail(address: str) -> OutsideError:
            monkeypatch.setenv("IMGBUILD_INDEX_PYPI", address)
            with pytest.raises(OutsideError) as caught:
                locked(matrix, stack, make_base=no_base)
            assert caught.value.exit_code == 4
            assert "secret" not in f"{caught.value.what} {caught.value.why} {caught.value.hint}"
            return caught.value

        return fail

    def test_nobody_listens(self, fails: Any) -> None:
        """A refused connection names the index and the variable."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        error = fails(f"http://user:secret@127.0.0.1:{port}/simple")
        assert f"http://127.0.0.1:{port}/simple" in error.why
        assert "IMGBUILD_INDEX_PYPI" in error.hint

    def test_no_such_host(self, fails: Any) -> None:
        """A name that cannot be resolved is said to be one."""
        assert "cannot be" in fails("https://user:secret@index.invalid/simple").what

    def test_nothing_there(self, fails: Any) -> None:
        """A server without a page of what the stack pins is no index for it."""
        with serve(Index()) as empty:
            assert "has no package `" in fails(empty.url).what

    def test_an_error_of_the_server(self, fails: Any) -> None:
        """A failing server is named."""
        with serve(Index(status=500)) as broken:
            assert "cannot be read" in fails(broken.url).what

    def test_no_such_folder(self, fails: Any) -> None:
        """A folder that is not there is no empty index."""
        assert "not there" in fails("file:///nonexistent/simple").what

    def test_an_unknown_authority(self, fails: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A certificate that is not trusted is recognised, and trusted once its authority is configured."""
        pair = {"certfile": str(tmp_path / "c.pem"), "keyfile": str(tmp_path / "k.pem")}
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
             "-addext", "basicConstraints=critical,CA:FALSE",
             "-out", pair["certfile"], "-keyout", pair["keyfile"]],
            check=True, capture_output=True,
        )  # fmt: skip
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name, raising=False)
        with serve(Index(), certificate=pair) as private:
            error = fails(private.url)
            assert "certificate" in error.what
            assert "SSL_CERT_FILE" in error.hint
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", pair["certfile"])
            assert "has no package `" in fails(private.url).what

    def test_a_server_that_never_answers(self, fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Waiting ends: the whole solve has a limit."""
        monkeypatch.setattr(solver, "SOLVE_TIMEOUT", 3)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(5)
            accepted: list[socket.socket] = []
            thread = threading.Thread(target=lambda: _accept(silent, accepted), daemon=True)
            thread.start()
            error = fails(f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
            silent.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in accepted:
                one.close()
        assert "no answer within 3 s" in error.what


def _accept(server: socket.socket, accepted: list[socket.socket]) -> None:
    try:
        while True:
            accepted.append(server.accept()[0])
    except OSError:
        return


@pytest.mark.usefixtures("own_settings")
class TestOwnIndex:
    """A framework from its own index: it and its companions from there, the rest from the default one."""

    @pytest.fixture
    def indexes(self, matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Index, Index]]:
        """Serve a default index and PyTorch's own one, with traps on both."""
        default, own = Index(), Index(html=True, password="s3cret-word")
        default.add("torch", "2.5.1", tag=NATIVE)
        default.add("torchvision", "0.20.1", tag=NATIVE, requires=["torch==2.5.1"])
        default.add("timm", "1.0", requires=["torchvision"])
        default.add("nvidia-cublas-cu12", "12.1.3.1", tag=f"py3-none-{MANYLINUX}")
        for name, version in stack_of(matrix, "pytorch==2.5.1", cuda="12.1").packages.items():
            if name != "torch":
                default.add(name, version, tag=NATIVE)
        default.add("filelock", "3.0")
        default.add("uv", uv_version(), tag=f"py3-none-{MANYLINUX}")
        requires = ["nvidia-cublas-cu12==12.1.3.1", "filelock", "only-there"]
        own.add("torch", "2.5.1+cu121", tag="cp311-cp311-linux_x86_64", requires=requires)
        own.add("torch", "2.5.1+cpu", tag="cp311-cp311-linux_x86_64")
        own.add("torchvision", "0.20.1+cu121", tag="cp311-cp311-linux_x86_64", requires=["torch==2.5.1"])
        own.add("nvidia-cublas-cu12", "12.1.3.1", tag=f"py3-none-{MANYLINUX}", requires=["filelock"])
        own.add("filelock", "99.0")
        own.add("numpy", "99.0", tag=NATIVE)
        own.add("only-there", "1.0")
        with serve(default), serve(own):
            monkeypatch.setenv("IMGBUILD_INDEX_PYPI", default.url)
            monkeypatch.setenv("IMGBUILD_INDEX_PYTORCH", own.with_password)
            yield default, own

    def test_each_package_has_its_index(self, indexes: tuple[Index, Index], matrix: Matrix) -> None:
        """The framework and what exists nowhere else come from its own index, all others do not."""
        made = locked(matrix, stack_of(matrix, "pytorch==2.5.1", cuda="12.1"))
        by_source = {wheel.name: wheel.source for wheel in made.wheels}
        assert by_source.pop("torch") == by_source.pop("only-there") == "pytorch"
        assert set(by_source.values()) == {"pypi"}
        assert {"nvidia-cublas-cu12", "filelock", "numpy"} <= set(by_source)
        assert all(wheel.size for wheel in made.wheels)
        assert made.sources == {"pytorch": indexes[1].url}

    def test_companions_come_from_it_too(self, indexes: tuple[Index, Index], matrix: Matrix) -> None:
        """A companion that a requirement brings is the one of the framework's build, named or not."""
        stack = stack_of(matrix, "pytorch==2.5.1", cuda="12.1")
        for text in ("torchvision\n", "timm\n", "torchvision==0.20.1\n", "torchvision==0.20.1+cu121\n"):
            made = locked(matrix, stack, text)
            found = {wheel.name: (str(wheel.version), wheel.source) for wheel in made.user_wheels}
            assert found["torchvision"] == ("0.20.1+cu121", "pytorch")

    def test_its_lock_is_read_back(self, indexes: tuple[Index, Index], matrix: Matrix) -> None:
        """Which wheel came from which index is in the lock, the password is not."""
        made = locked(matrix, stack_of(matrix, "pytorch==2.5.1", cuda="12.1"), "timm\n")
        write_lock(made, Glibc.parse("2.36"), Path("a.lock"))
        assert read_lock(Path("a.lock")) == made
        assert "s3cret-word" not in Path("a.lock", IMAGE).read_text() + Path("a.lock", PYLOCK).read_text()

    def test_its_absence_is_named(
        self, indexes: tuple[Index, Index], matrix: Matrix, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of two indexes the one that fails is named, with its own variable."""
        indexes[1].status = 500
        with pytest.raises(OutsideError, match="`pytorch`") as caught:
            locked(matrix, stack_of(matrix, "pytorch==2.5.1", cuda="12.1"), make_base=no_base)
        assert "IMGBUILD_INDEX_PYTORCH" in str(caught.value.hint)


class TestConfiguredIndex:
    """The index that this host has configured, with real packages."""

    def test_pytorch_2_4_1(self, matrix: Matrix, stack: Stack) -> None:
        """Every pin in its version, wheels for CPython 3.11 on Linux alone, 2 to 4 GB of them."""
        made = locked(matrix, stack)
        found = {wheel.name: str(wheel.version) for wheel in made.wheels}
        assert {name: found[name] for name in stack.packages} == dict(stack.packages)
        assert found["torch"] == "2.4.1"
        assert {"filelock", "jinja2", "sympy", "nvidia-nvjitlink-cu12"} <= set(found)
        for wheel in (*made.wheels, made.installer):
            assert "cp311" in wheel.filename or "-py3-none-" in wheel.filename or "abi3" in wheel.filename
            assert wheel.filename.endswith("-any.whl") or "x86_64" in wheel.filename
        assert 2e9 < made.size < 4e9

    def test_another_platform_has_other_wheels(self, matrix: Matrix) -> None:
        """The target decides, not the host: arm64 wheels for an arm64 image."""
        made = locked(matrix, stack_of(matrix, "pytorch", arch="arm64"))
        native = [
            wheel.filename for wheel in (*made.wheels, made.installer) if "-any.whl" not in wheel.filename
        ]
        assert native
        assert all("aarch64" in name for name in native)

    def test_another_python_has_other_wheels(self, matrix: Matrix) -> None:
        """Python 3.12 of Ubuntu 24.04 gets cp312 wheels."""
        made = locked(matrix, stack_of(matrix, "pytorch==2.4.1", python="3.12"))
        assert {
            wheel.filename for wheel in made.wheels if wheel.name == "torch" and "cp312" in wheel.filename
        }

    def test_xformers_of_another_torch(self, matrix: Matrix, stack: Stack) -> None:
        """The index knows which xformers fits, and the message says it."""
        error = refused(matrix, stack, "xformers==0.0.28.post3\n")
        assert "torch==2.5.1" in str(error.why)
        assert error.alternatives[0]["command"] == "sed -i '1c xformers==0.0.28.post1' req.txt"
        assert error.alternatives[1]["command"] == "imgbuild lock --framework pytorch==2.5.1 -r req.txt"

    def test_flash_attn_has_no_wheel(self, matrix: Matrix, stack: Stack) -> None:
        """A package that is only published as source is refused by name."""
        assert "needs a wheel of `flash-attn`" in refused(matrix, stack, "flash-attn\n").what


def test_the_command_line(index: Index, stack: Stack) -> None:
    """A clash is exit 3 and one JSON document, and nothing is written; `--stack` excludes a request."""
    Path("req.txt").write_text("torch==2.2.0\n")
    command = [sys.executable, "-c", "from imagebuilder.cli import main; main()", "lock"]
    request = ["--framework", "pytorch==2.4.1", "-r", "req.txt", "-o", "out.lock", "--format", "json"]
    done = subprocess.run([*command, *request], capture_output=True, text=True)
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert {conflict["constraint"] for conflict in document["conflicts"]} == {"torch==2.2.0", "torch==2.4.1"}
    assert all(one["command"] for one in document["alternatives"])
    assert not Path("out.lock").exists()
    assert not index.asked
    both = [*command, "--stack", "stack.json", "--cuda", "12.1"]
    done = subprocess.run(both, capture_output=True, text=True)
    assert done.returncode == 2
    assert "`--cuda` and `--stack`" in done.stderr


def test_requirements_beside_a_stack_file(index: Index, matrix: Matrix, stack: Stack) -> None:
    """`-r` counts beside `--stack` as it does beside a request."""
    from imagebuilder.resolve.stack import stack_to_dict

    Path("stack.json").write_text(json.dumps(stack_to_dict(stack)))
    Path("req.txt").write_text("torch==2.2.0\n")
    command = [sys.executable, "-c", "from imagebuilder.cli import main; main()", "lock"]
    done = subprocess.run(
        [*command, "--stack", "stack.json", "-r", "req.txt"], capture_output=True, text=True
    )
    assert done.returncode == 3
    assert "req.txt:1" in done.stderr


def test_wheels_of_the_stack_do_not_depend_on_requirements(
    index: Index, matrix: Matrix, stack: Stack
) -> None:
    """What the stack pins has the same bytes with and without requirements: layers are shared."""
    index.add("timm", "1.0", requires=["torch", "numpy"])
    alone, together = locked(matrix, stack), locked(matrix, stack, "timm\n")
    assert together.wheels == alone.wheels
    assert replace(together, user_wheels=(), requirements=(), pylock="") == replace(alone, pylock="")
