"""ELF files and the loader's search, against real system libraries and small ones compiled here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from imagebuilder.checks import elf, libraries, loader
from imagebuilder.checks.loader import Loader
from imagebuilder.checks.result import Context, Failed

gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")


def system_library(prefix: str) -> str:
    """Give a library that this Python process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(" ")[-1]
        if Path(path).name.startswith(prefix):
            return path
    pytest.skip(f"{prefix} is not loaded here")


def test_the_c_library_tells_its_name_and_needs() -> None:
    """The dynamic section of libc is read as it is."""
    found = elf.read(system_library("libc.so"))
    assert found is not None
    assert found.soname == "libc.so.6"
    assert any(name.startswith("ld-linux") for name in found.needed)


def test_what_is_no_library_is_none(tmp_path: Path) -> None:
    """Text, an empty file, and cut or garbled ELF files give None, never an exception."""
    good = Path(system_library("libc.so")).read_bytes()
    for index, data in enumerate(
        [b"", b"\x7fELF", b"INPUT(libc.so.6)", good[:100], good[:3000], b"\x7fELF" + b"\xff" * 500]
    ):
        path = tmp_path / str(index)
        path.write_bytes(data)
        assert elf.read(str(path)) is None or index == 4


def test_the_cache_of_the_system_is_read() -> None:
    """Every entry of ld.so.cache that `ldconfig -p` shows is found."""
    program = shutil.which("ldconfig") or "/sbin/ldconfig"
    if not Path(program).exists() or not Path(loader.CACHE).exists():
        pytest.skip("no ldconfig here")
    shown = subprocess.run([program, "-p"], capture_output=True, text=True, check=True).stdout
    expected = re.findall(r"^\t(\S+) \(.*\) => (\S+)$", shown, re.MULTILINE)
    cache = loader.read_cache()
    assert expected
    assert all(path in cache[name] for name, path in expected)


def test_python_itself_resolves() -> None:
    """What this Python loads is found by following the loader's rules, at the same place."""
    extension = next(
        Path(path) for path in sorted(map(str, Path(os.__file__).parent.glob("lib-dynload/_ssl*.so")))
    )
    found = Loader(None, executable=os.path.realpath(sys.executable)).load([str(extension)])
    assert found.missing == []
    assert "libc.so.6" in found.files
    assert os.path.realpath(found.files["libc.so.6"]) == os.path.realpath(system_library("libc.so"))


def build(folder: Path, name: str, *options: str, needs: Path | None = None) -> Path:
    """Compile an empty library `libNAME.so.1`, which may need another."""
    folder.mkdir(parents=True, exist_ok=True)
    source, out = folder / f"{name}.c", folder / f"lib{name}.so.1"
    source.write_text(f"int {name}(void) {{ return 1; }}\n")
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        f"-Wl,-soname,lib{name}.so.1",
        "-Wl,--no-as-needed",
        "-o",
        str(out),
        str(source),
    ]
    subprocess.run([*command, *options, *([str(needs)] if needs else [])], check=True)
    return out


def truth(path: Path, library_path: str = "") -> dict[str, str]:
    """Ask the real loader where it finds what a library needs."""
    script = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(open('/proc/self/maps').read())"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={**os.environ, "LD_LIBRARY_PATH": library_path},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"(/\S+/lib(?:a|b|c)\.so\.1)$", done.stdout, re.MULTILINE)
    return {Path(name).name: name for name in found}


@gcc
@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
@pytest.mark.parametrize("shadow", [False, True])
def test_the_search_agrees_with_the_real_loader(tmp_path: Path, tags: str, shadow: bool) -> None:
    """RUNPATH loses against LD_LIBRARY_PATH, RPATH wins and is inherited: as the real loader has it."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    c = build(right, "c")
    build(wrong, "c")
    b = build(right, "b", needs=c)  # no path of its own: RPATH of the one that loads it counts
    build(wrong, "b")
    top = build(tmp_path / "top", "a", f"-Wl,{tags}", "-Wl,-rpath,$ORIGIN/../right", needs=b)
    library_path = str(wrong) if shadow else ""
    real = truth(top, library_path)
    found = Loader(library_path or None, executable=os.path.realpath(sys.executable)).load([str(top)])
    ours = {
        name: os.path.realpath(path)
        for name, path in found.files.items()
        if name in ("libb.so.1", "libc.so.1")
    }
    if real:  # the real loader came through
        assert ours == {name: path for name, path in real.items() if name != "liba.so.1"}
    else:
        assert [missing.soname for missing in found.missing] == ["libc.so.1"]


@gcc
def test_a_missing_library_names_who_needs_it(tmp_path: Path) -> None:
    """The report names the library, the file that asks for it, and the folders that were searched."""
    c = build(tmp_path, "c")
    top = build(tmp_path, "a", "-Wl,-rpath,$ORIGIN/sub", needs=c)
    c.unlink()
    (missing,) = Loader(None).load([str(top)]).missing
    assert (missing.soname, missing.needed_by) == ("libc.so.1", str(top))
    assert str(tmp_path / "sub") in missing.searched


@gcc
def test_a_driver_library_is_never_missing(tmp_path: Path) -> None:
    """libcuda.so.1 comes with the host's driver: no image has it."""
    cuda = tmp_path / "libcuda.so.1"
    build(tmp_path, "cuda").rename(cuda)
    top = build(tmp_path, "a", needs=cuda)
    cuda.unlink()
    assert Loader(None).load([str(top)]).missing == []


@gcc
def test_a_library_that_is_loaded_already_serves(tmp_path: Path) -> None:
    """An extension without a path of its own finds what the framework has loaded before."""
    c = build(tmp_path / "framework", "c")
    top = build(tmp_path / "extension", "a", needs=c)
    alone, after = Loader(None).load([str(top)]), Loader(None).load([str(top)], {"libc.so.1": str(c)})
    assert [missing.soname for missing in alone.missing] == ["libc.so.1"]
    assert after.missing == []


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("libcudnn.so.9", "libcudnn"),
        ("libcudnn_ops.so.9", "libcudnn"),
        ("libcudnn_engines_tensor_ir.so.9", "libcudnn"),
        ("libcublasLt.so.12", "libcublasLt"),
        ("libcublas-37d11411.so.11", "libcublas"),
        ("libnccl.so.2", "libnccl"),
        ("libnvJitLink.so.12", "libnvJitLink"),
        ("libcusparseLt-f80c68d1.so.0", "libcusparseLt"),
        ("libcuda.so.1", None),
        ("libncclient.so.1", None),
        ("libtorch_cuda.so", None),
    ],
)
def test_families_are_known_by_file_name(name: str, family: str | None) -> None:
    """Parts of cuDNN and libraries with a hash in their name belong to their family; others to none."""
    assert libraries.family(f"/x/{name}") == family


@gcc
def test_a_plugin_may_lack_the_system_that_it_speaks_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVSHMEM opens its MPI bootstrap only where MPI is; any other library must find all that it needs."""
    (tmp_path / "empty.c").write_text("int nothing;")
    build = ["gcc", "-shared", "-o"]
    mpi = tmp_path / "libmpi.so.40"
    subprocess.run([*build, mpi, tmp_path / "empty.c", "-Wl,-soname,libmpi.so.40"], check=True)
    plugin, library = tmp_path / "nvshmem_bootstrap_mpi.so.3", tmp_path / "libwork.so"
    for path in (plugin, library):
        command = [*build, path, tmp_path / "empty.c", "-Wl,--no-as-needed", mpi]
        subprocess.run(command, check=True)
    mpi.unlink()
    monkeypatch.setattr(libraries, "framework_roots", list)

    def outcome(*paths: Path) -> str:
        found = [libraries.Part(str(path), "nvidia-x", "1", None, None) for path in paths]
        monkeypatch.setattr(libraries, "parts", lambda every=False: iter(found))
        try:
            return str(libraries.resolve(Context()).evidence["plug_ins_without_their_system"])
        except Failed as failed:
            return failed.summary

    assert outcome(plugin) == "{'nvshmem_bootstrap_mpi.so.3': ['libmpi.so.40']}"
    assert outcome(plugin, library) == "libwork.so needs libmpi.so.40, which is not found"
