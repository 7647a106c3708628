"""What a shared object says of itself: its name, what it needs, where it wants that to be sought (ELF)."""

from __future__ import annotations

import functools
import mmap
import struct
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

_PT_LOAD, _PT_DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29


@dataclass(frozen=True)
class Elf:
    """The dynamic section of one file; `kind` is (class, byte order, machine): equal kinds load together."""

    kind: Tuple[int, int, int]
    soname: Optional[str]
    needed: Tuple[str, ...]
    rpath: Tuple[str, ...]
    runpath: Tuple[str, ...]


@functools.lru_cache(maxsize=None)
def read(path: str) -> Optional[Elf]:
    """Read a file; None when it is no ELF file or a broken one. Raises OSError when it cannot be read."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _parse(data)
            except (struct.error, IndexError, ValueError, UnicodeDecodeError):
                return None


def _parse(data: mmap.mmap) -> Elf:
    wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
    machine = struct.unpack_from(order + "H", data, 18)[0]
    loads, dynamic = _segments(data, wide, order)
    entries = _entries(data, dynamic, wide, order)
    base = _offset(entries.get(_STRTAB, [0])[0], loads)
    names = {tag: [_text(data, base + value) for value in entries.get(tag, [])] for tag in _NAMES}
    return Elf(
        kind=(data[4], data[5], machine),
        soname=names[_SONAME][0] if names[_SONAME] else None,
        needed=tuple(names[_NEEDED]),
        rpath=tuple(part for path in names[_RPATH] for part in path.split(":") if part),
        runpath=tuple(part for path in names[_RUNPATH] for part in path.split(":") if part),
    )


_NAMES = (_NEEDED, _SONAME, _RPATH, _RUNPATH)


def _segments(data: mmap.mmap, wide: bool, order: str) -> Tuple[List[Tuple[int, int, int]], Tuple[int, int]]:
    """Give the loaded segments as (address, offset, size), and offset and size of the dynamic one."""
    start = struct.unpack_from(order + ("Q" if wide else "I"), data, 32 if wide else 28)[0]
    size, count = struct.unpack_from(order + "HH", data, 54 if wide else 42)
    loads, dynamic = [], (0, 0)
    for index in range(count):
        at = start + index * size
        if wide:
            kind, _, offset, address, _, length = struct.unpack_from(order + "IIQQQQ", data, at)
        else:
            kind, offset, address, _, length = struct.unpack_from(order + "IIIII", data, at)
        if kind == _PT_LOAD:
            loads.append((address, offset, length))
        elif kind == _PT_DYNAMIC:
            dynamic = (offset, length)
    return loads, dynamic


def _entries(data: mmap.mmap, dynamic: Tuple[int, int], wide: bool, order: str) -> Dict[int, List[int]]:
    form = order + ("qQ" if wide else "iI")
    step = struct.calcsize(form)
    found: Dict[int, List[int]] = {}
    for at in range(dynamic[0], dynamic[0] + dynamic[1], step):
        tag, value = struct.unpack_from(form, data, at)
        if tag == 0:
            break
        found.setdefault(tag, []).append(value)
    return found


def _offset(address: int, loads: List[Tuple[int, int, int]]) -> int:
    for start, offset, length in loads:
        if start <= address < start + length:
            return address - start + offset
    return address


def _text(data: mmap.mmap, at: int) -> str:
    return data[at : data.find(b"\0", at)].decode()
