"""The group `libs`, as far as it needs no framework: files there, files found, no second copy first."""

from __future__ import annotations

import base64
import fnmatch
import glob
import hashlib
import os
import re
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import host, requirements
from .catalogue import FRAMEWORKS
from .loader import Loader, read_cache
from .result import Context, Failed, Outcome, Skipped, raise_all

# The families of CUDA libraries of which a process must have one copy, the pinned one.
FAMILIES = (
    "libcublas", "libcublasLt", "libcudart", "libcudnn", "libcufft", "libcupti", "libcurand", "libcusolver",
    "libcusparse", "libcusparseLt", "libnccl", "libnvJitLink", "libnvrtc", "libnvshmem_host", "libcufile",
)  # fmt: skip
_FAMILY = re.compile(r"({})(_[a-z0-9_]+)?(-[0-9a-f]+)?\.so(\.|$)".format("|".join(FAMILIES)))
# Libraries that NVSHMEM and cuFile open by name, and only where MPI or an RDMA stack is there to speak to.
_PLUGINS = ("nvshmem_bootstrap_*.so*", "nvshmem_transport_*.so*", "libcufile_rdma.so*")
_WITH_CUDA = ("nvidia-", "triton", "pytorch-triton", "torch", "tensorflow", "jax")


class Part(NamedTuple):
    """One shared object of an installed wheel."""

    path: str
    package: str
    version: str
    size: Optional[int]
    sha256: Optional[str]


def parts(every: bool = False) -> Iterator[Part]:
    """Give the shared objects that the RECORDs of CUDA and framework wheels name (of `every` wheel)."""
    for name, distribution in sorted(requirements.installed().items()):
        if not every and not name.startswith(_WITH_CUDA):
            continue
        for file in distribution.files or ():
            if re.search(r"\.so(\.[\d.]+)?$", file.name):
                digest = file.hash.value if file.hash and file.hash.mode == "sha256" else None
                path = os.path.normpath(str(distribution.locate_file(file)))
                yield Part(path, name, distribution.version, file.size, digest)


def family(path: str) -> Optional[str]:
    """Give the family of a CUDA library by its file name, `libcudnn` for libcudnn_ops.so.9."""
    found = _FAMILY.match(os.path.basename(path))
    return found.group(1) if found else None


def files(context: Context) -> Outcome:
    """Every shared object that a wheel's RECORD names is there in its size (`full`: with its hash)."""
    problems, count = [], 0
    for part in parts(every=True):
        count += 1
        wrong = _damage(part, context.full)
        if wrong:
            name = os.path.basename(part.path)
            problems.append(
                Failed(
                    "{} {}".format(part.path, wrong),
                    diagnosis="{} of {} {} {}".format(name, part.package, part.version, wrong),
                    next_step="pip install --force-reinstall --no-deps {}=={}".format(
                        part.package, part.version
                    ),
                )
            )
    evidence = {"files": count, "hashed": context.full}
    if not count:
        raise Skipped("no wheel with shared objects is installed", evidence=evidence)
    raise_all(problems, evidence)
    return Outcome("{} shared objects of wheels as their RECORDs say".format(count), evidence)


def _damage(part: Part, hashed: bool) -> Optional[str]:
    try:
        size = os.stat(part.path).st_size
    except OSError:
        return "is missing"
    if part.size is not None and size != part.size:
        return "was changed: {} bytes, RECORD says {}".format(size, part.size)
    if hashed and part.sha256 and _digest(part.path) != part.sha256:
        return "was changed: its hash is not RECORD's"
    return None


def _digest(path: str) -> str:
    total = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            total.update(block)
    return base64.urlsafe_b64encode(total.digest()).rstrip(b"=").decode()


def framework_roots() -> List[str]:
    """Give what the import of the framework loads first: its extension modules and its main library."""
    return [
        path
        for framework in FRAMEWORKS.values()
        for folder in sys.path
        for pattern in framework.roots
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), framework.module, pattern)))
    ]


def here() -> Loader:
    """Give the loader of this process: its LD_LIBRARY_PATH, its cache, its executable."""
    return Loader(os.environ.get("LD_LIBRARY_PATH"), executable=os.path.realpath(sys.executable))


def resolve(context: Context) -> Outcome:
    """Every library that a shared object of framework or CUDA needs is found as the loader would find it."""
    loader = here()
    started = loader.load(framework_roots())
    missing = list(started.missing)
    idle: Dict[str, List[str]] = {}
    count = 0
    for part in parts(every=context.full):
        if not os.path.exists(part.path):
            continue  # `libs.files` says so
        count += 1
        # On its own, or opened after the framework: then what is loaded already serves its needs.
        if not loader.load([part.path]).missing:
            continue
        lacking = loader.load([part.path], started.files).missing
        if _is_plugin(part.path) and not any(family(item.soname) for item in lacking):
            idle[os.path.basename(part.path)] = [item.soname for item in lacking]
        else:
            missing += lacking
    if not count:
        raise Skipped("no wheel with shared objects is installed")
    problems = [_not_found(item.soname, item.needed_by) for item in dict.fromkeys(missing)]
    evidence: Dict[str, Any] = {"files": count, "plug_ins_without_their_system": idle}
    raise_all(problems, {**evidence, "searched": list(missing[0].searched)[:20] if missing else []})
    return Outcome("{} shared objects find all that they need".format(count), evidence)


def _is_plugin(path: str) -> bool:
    """Tell whether a library is opened only where the system that it speaks to is installed."""
    return any(fnmatch.fnmatchcase(os.path.basename(path), pattern) for pattern in _PLUGINS)


def _not_found(soname: str, needed_by: str) -> Failed:
    owner = "a system package"
    if family(soname):
        owner = "the nvidia-{} wheel".format((family(soname) or "")[3:].lower())
    return Failed(
        "{} needs {}, which is not found".format(os.path.basename(needed_by), soname),
        diagnosis="{} is missing: {} brings it, and {} asks for it".format(soname, owner, needed_by),
        next_step="see `libs.files` for a damaged wheel; else install what brings {}".format(soname),
    )


def shadow(context: Context) -> Outcome:
    """No other copy of a CUDA library that the wheels bring is found before theirs."""
    brought: Dict[Optional[str], Part] = {}
    for part in sorted(
        parts(), key=lambda part: len(os.path.basename(part.path))
    ):  # libcudnn before its parts
        if family(part.path):
            brought.setdefault(family(part.path), part)
    if not brought:
        raise Skipped("no wheel here brings CUDA libraries")
    site = _sites([part.path for part in brought.values()])
    started = here().load(framework_roots())
    winners = {name: file for name, file in started.files.items() if family(name)}
    problems = [
        _shadowed(file, brought[family(name)], "the loader finds it first")
        for name, file in winners.items()
        if family(name) in brought and not _inside(file, site)
    ]
    seconds = _second_copies(site)
    for file, where in seconds:
        if where == "LD_LIBRARY_PATH" and family(file) in brought and file not in winners.values():
            problems.append(_shadowed(file, brought[family(file)], "its folder is on LD_LIBRARY_PATH"))
    evidence = {"found": winners, "second_copies": [file for file, _ in seconds][:40]}
    raise_all(problems, evidence)
    also = "; {} second copies stand behind them".format(len(seconds)) if seconds else ""
    return Outcome("{} CUDA libraries come from wheels{}".format(len(winners), also), evidence)


def _sites(paths: List[str]) -> Tuple[str, ...]:
    """Give the folders of site-packages that hold the given files."""
    roots = {os.path.realpath(folder) for folder in sys.path if folder}
    return tuple(
        root for root in roots if any(os.path.realpath(path).startswith(root + os.sep) for path in paths)
    )


def _inside(path: str, roots: Tuple[str, ...]) -> bool:
    return os.path.realpath(path).startswith(tuple(root + os.sep for root in roots))


def _second_copies(site: Tuple[str, ...]) -> List[Tuple[str, str]]:
    """Give CUDA libraries outside the wheels that the loader could find, and through what."""
    found = []
    for folder in (os.environ.get("LD_LIBRARY_PATH") or "").split(":"):
        for path in sorted(glob.glob(os.path.join(glob.escape(folder or "."), "lib*.so*"))):
            if family(path) and not _inside(path, site):
                found.append((path, "LD_LIBRARY_PATH"))  # noqa: PERF401 - two loops read better than three
    for name, paths in read_cache().items():
        if family(name):
            found += [(path, "ld.so.cache") for path in paths if not _inside(path, site)]
    return found


def _shadowed(file: str, part: Part, how: str) -> Failed:
    return Failed(
        "{} is a second copy of {}".format(file, os.path.basename(part.path)),
        diagnosis="{} shadows {} of {} {}: {}".format(file, part.path, part.package, part.version, how),
        next_step="take {} off LD_LIBRARY_PATH and ld.so.conf".format(os.path.dirname(file)),
    )


def driver(context: Context) -> Outcome:
    """No copy of the driver's libraries is part of the image, and no cuda-compat is on the loader's path."""
    loaded = host.kernel_driver()
    mounts = _mount_points()
    candidates = sorted(set(driver_libraries()))
    problems, evidence = [], {"driver": loaded, "libraries": candidates, "compat": _compat()}
    for path in candidates:
        real = os.path.realpath(path)
        version = re.search(r"\.so\.(\d+\.\d[\d.]*)$", real)
        # The toolkit mounts the driver's own files; on the host itself they are of the loaded version.
        if real in mounts or "/wsl/" in real or (version and version.group(1) == loaded):
            continue
        problems.append(_baked(path, real, loaded))
    raise_all(problems, evidence)
    behind = "; cuda-compat is there but not on the path" if evidence["compat"] else ""
    return Outcome("no driver library in the image{}".format(behind), evidence)


def driver_libraries() -> List[str]:
    """Give each libcuda and libnvidia-ml that the loader could find; link-time stubs apart."""
    found: List[str] = []
    folders = [folder for folder in (os.environ.get("LD_LIBRARY_PATH") or "").split(":") if folder]
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        found += read_cache().get(name, [])
        found += [
            os.path.join(folder, name) for folder in [*folders, "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
        ]
    for folder in folders:
        found += glob.glob(os.path.join(glob.escape(folder), "libcuda.so.*"))
    return [path for path in dict.fromkeys(found) if os.path.exists(path)]


def _compat() -> List[str]:
    return sorted(glob.glob("/usr/local/cuda*/compat/libcuda.so*"))


def _baked(path: str, real: str, loaded: Optional[str]) -> Failed:
    if "compat" in real:
        return Failed(
            "{} (cuda-compat) is on the loader's path".format(path),
            diagnosis="cuda-compat is found before the host's driver: error 804 outside data centres, "
            "803 with another driver ({})".format(loaded or "none loaded"),
            next_step="remove the cuda-compat package, or its folder from LD_LIBRARY_PATH and ld.so.conf",
        )
    return Failed(
        "{} is part of the image".format(path),
        diagnosis="a driver library was installed into the image: the toolkit cannot mount the host's "
        "({}) over it, or the wrong version is used".format(loaded or "none loaded"),
        next_step="remove the package that brings it (libnvidia-compute-*, nvidia-driver-*, nvidia-utils-*)",
    )


def _mount_points() -> List[str]:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return [line.split(" ")[4].replace("\\040", " ") for line in file]
    except OSError:
        return []
