"""The bytes of a matrix file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 16 * 2**20


def read_bytes(path: Path) -> bytes:
    """Read a matrix file; raises UsageError that says why it cannot be read."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            # a pipe may never end, a device always gives more
            raise UsageError(f"`{path}` is not a file", hint="write the matrix to a file and name that")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no matrix file `{path}`", hint="imgbuild matrix show --help") from None
    except IsADirectoryError:
        raise UsageError(f"`{path}` is a folder, not a matrix file") from None
    except OSError as error:
        raise UsageError(f"the matrix file `{path}` cannot be read", why=error.strerror) from None
    except ValueError:
        raise UsageError(f"`{path}` is not the name of a file") from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"the matrix file `{path}` is larger than {MAX_BYTES // 2**20} MiB")
    return content
