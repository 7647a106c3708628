"""Where the dynamic loader would find a library: the search of ld.so, followed without loading anything."""

from __future__ import annotations

import os
import struct
import sys
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Tuple

from . import elf

CACHE = "/etc/ld.so.cache"
_MAGIC = b"glibc-ld.so.cache1.1"
_MULTIARCH = {62: "x86_64-linux-gnu", 183: "aarch64-linux-gnu"}


@dataclass(frozen=True)
class Missing:
    """A library that nothing provides: its name, the file that needs it, the folders that were searched."""

    soname: str
    needed_by: str
    searched: Tuple[str, ...]


@dataclass
class Loaded:
    """What one simulated start has loaded: soname -> file, in the loader's breadth-first order."""

    files: Dict[str, str] = field(default_factory=dict)
    missing: List[Missing] = field(default_factory=list)


class Loader:
    """The search order of glibc's loader: RPATH of the chain, LD_LIBRARY_PATH, RUNPATH, cache, defaults."""

    def __init__(
        self,
        library_path: Optional[str] = None,
        cache: Optional[Dict[str, List[str]]] = None,
        executable: Optional[str] = None,
    ) -> None:
        # An empty entry of LD_LIBRARY_PATH means the current folder.
        parts = library_path.replace(";", ":").split(":") if library_path else []
        self.library_path = [part or "." for part in parts]
        self.cache = read_cache() if cache is None else cache
        self.executable = executable

    def load(self, paths: List[str], already: Optional[Dict[str, str]] = None) -> Loaded:
        """Load files with all they need, beside what is loaded `already` (soname -> file)."""
        done = Loaded(files=dict(already or {}))
        queue: List[Tuple[str, Tuple[str, ...]]] = [(path, ()) for path in paths]
        for path in paths:
            found = elf.read(path)
            if found is not None:
                done.files.setdefault(found.soname or os.path.basename(path), path)
        while queue:
            path, chain = queue.pop(0)
            found = elf.read(path)
            if found is None:
                continue
            for soname in found.needed:
                if soname in done.files or _by_driver(soname):
                    continue
                winner, searched = self.find(soname, path, chain)
                if winner is None:
                    done.missing.append(Missing(soname, path, tuple(searched)))
                    done.files[soname] = ""  # said once a start
                else:
                    done.files[soname] = winner
                    queue.append((winner, (path, *chain)))
        done.files = {name: file for name, file in done.files.items() if file}
        return done

    def find(self, soname: str, path: str, chain: Tuple[str, ...] = ()) -> Tuple[Optional[str], List[str]]:
        """Find one library for the file `path`, which `chain` loaded; gives also the folders searched."""
        if "/" in soname:
            return (soname if os.path.exists(soname) else None), [os.path.dirname(soname)]
        asker = elf.read(path)
        kind = asker.kind if asker else None
        searched: List[str] = []
        for folder in self.folders(path, chain):
            searched.append(folder)
            candidate = os.path.join(folder, soname)
            if _fits(candidate, kind):
                return candidate, searched
        for candidate in self.cache.get(soname, []):
            if _fits(candidate, kind):
                return candidate, searched
        for folder in _defaults(kind):
            searched.append(folder)
            candidate = os.path.join(folder, soname)
            if _fits(candidate, kind):
                return candidate, searched
        return None, searched

    def folders(self, path: str, chain: Tuple[str, ...]) -> Iterator[str]:
        """Give the folders that come before the cache."""
        asker = elf.read(path)
        if asker is not None and not asker.runpath:
            for loader in (path, *chain, *([self.executable] if self.executable else [])):
                loading = elf.read(loader)
                # A file with a RUNPATH has its RPATH ignored.
                if loading is not None and not loading.runpath:
                    yield from _expanded(loading.rpath, loader, loading.kind)
        yield from self.library_path
        if asker is not None:
            yield from _expanded(asker.runpath, path, asker.kind)


def _by_driver(soname: str) -> bool:
    """Whether the host's driver brings this library, and never the image."""
    return soname.startswith(
        ("libcuda.so", "libnvidia-", "libnvcuvid.so", "libnvoptix.so", "linux-vdso", "ld-linux")
    )


def _expanded(parts: Tuple[str, ...], path: str, kind: Tuple[int, int, int]) -> Iterator[str]:
    # $ORIGIN is the folder of the file as it was opened, with symbolic links resolved.
    origin = os.path.dirname(os.path.realpath(path))
    for part in parts:
        for name, value in (("ORIGIN", origin), ("LIB", "lib64" if kind[0] == 2 else "lib")):
            part = part.replace("${" + name + "}", value).replace("$" + name, value)
        yield os.path.normpath(part)


def _fits(path: str, kind: Optional[Tuple[int, int, int]]) -> bool:
    """Whether the loader takes the file: it exists and is of the same class and machine."""
    try:
        found = elf.read(path)
    except (OSError, ValueError):
        return False
    return found is not None and (kind is None or found.kind == kind)


def _defaults(kind: Optional[Tuple[int, int, int]]) -> List[str]:
    folders = ["/lib", "/usr/lib"] if kind and kind[0] == 1 else ["/lib64", "/usr/lib64", "/lib", "/usr/lib"]
    triplet = _MULTIARCH.get(kind[2]) if kind else None
    if triplet:
        folders = ["/lib/" + triplet, "/usr/lib/" + triplet, *folders]
    return folders


def read_cache(path: str = CACHE) -> Dict[str, List[str]]:
    """Read ld.so.cache: soname -> files, in the order of the cache; empty where there is none."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return {}
    start = data.find(_MAGIC)
    if start < 0:
        return {}
    order = "<" if sys.byteorder == "little" else ">"
    found: Dict[str, List[str]] = {}
    try:
        count = struct.unpack_from(order + "I", data, start + 20)[0]
        for index in range(count):
            _, key, value = struct.unpack_from(order + "iII", data, start + 48 + index * 24)
            name = data[start + key : data.index(b"\0", start + key)].decode("utf-8", "replace")
            file_name = data[start + value : data.index(b"\0", start + value)].decode("utf-8", "replace")
            found.setdefault(name, []).append(file_name)
    except (struct.error, ValueError):
        return found
    return found
