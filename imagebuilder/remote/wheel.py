"""A wheel on an index, read in parts: its metadata, its list of members, single members."""

from __future__ import annotations

import io
import zipfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from imagebuilder.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.remote.client import Client
    from imagebuilder.remote.project import WheelFile

# Bytes asked for at once: of the end of a wheel, and of a large member.
TAIL = 2**16
LARGE = 2**19
# A member's header with its name and extra fields, about.
HEADER = 2**10


class _Parts(io.RawIOBase):
    """A file behind an index as a file of ours, which `zipfile` can read."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self._tail, self._size = client.part(url, f"-{TAIL}")
        self._window = (0, b"")
        self._at = 0
        self.ahead = HEADER

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        count = left if size < 0 else min(size, left)
        data = self._held(count) if count else b""
        self._at += len(data)
        return data

    def _held(self, count: int) -> bytes:
        """Give the next bytes: what was fetched before, and the rest fetched with what lies behind it."""
        for start, data in ((self._size - len(self._tail), self._tail), self._window):
            if start <= self._at < start + len(data):
                found = data[self._at - start : self._at - start + count]
                break
        else:
            found = b""
        left = count - len(found)
        if not left:
            return found
        first = self._at + len(found)
        data, _ = self._client.part(
            self._url, f"{first}-{min(self._size, first + max(left, self.ahead)) - 1}"
        )
        if len(data) < left:
            raise EOFError("the answer is shorter than what was asked for")
        self._window = (first, data)
        return found + data[:left]


class RemoteWheel:
    """A wheel whose list of members was read; `names` are the paths of its members."""

    def __init__(self, parts: _Parts, archive: zipfile.ZipFile) -> None:
        self._parts = parts
        self._archive = archive
        self.names = tuple(archive.namelist())

    def read(self, name: str) -> bytes:
        """Give a small member, checked against its CRC."""
        self._parts.ahead = self._length(name)
        return self._archive.read(name)

    def pieces(self, name: str) -> Iterator[bytes]:
        """Give a large member piece by piece, as far as it is taken."""
        self._parts.ahead = min(LARGE, self._length(name))
        with self._archive.open(name) as member:
            while piece := member.read(LARGE):
                yield piece

    def _length(self, name: str) -> int:
        """Give about how many bytes a member takes in the wheel, with its header."""
        return self._archive.getinfo(name).compress_size + HEADER


@contextmanager
def opened(client: Client, file: WheelFile) -> Iterator[RemoteWheel]:
    """Open a wheel by ranges; raises OutsideError, also for a wheel that is damaged."""
    try:
        parts = _Parts(client, file.url)
        with zipfile.ZipFile(parts) as archive:
            yield RemoteWheel(parts, archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise OutsideError(
            f"`{file.name}` on the index `{client.index.name}` is not a sound wheel",
            why=f"{client.index.shown}: {error}",
            hint="imgbuild doctor",
        ) from None


def metadata_of(client: Client, file: WheelFile) -> str:
    """Give METADATA of a wheel: as PEP 658 serves it, else out of the wheel. Raises OutsideError.

    Mirrors serve it without saying so on the page, so it is asked for unless the page says that it is not.
    """
    return str(client.remembered(f"metadata {file.url}", lambda: _metadata(client, file)))


def _metadata(client: Client, file: WheelFile) -> str:
    served = None if file.has_metadata is False else client.file(f"{file.url}.metadata")
    return _inside(client, file) if served is None else served.decode("utf-8", "replace")


def _inside(client: Client, file: WheelFile) -> str:
    with opened(client, file) as wheel:
        for name in wheel.names:
            if name.count("/") == 1 and name.endswith(".dist-info/METADATA"):
                return wheel.read(name).decode("utf-8", "replace")
    raise OutsideError(f"`{file.name}` holds no METADATA", why=client.index.shown, hint="imgbuild doctor")
