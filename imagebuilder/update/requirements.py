"""What a wheel's metadata asks for, on Linux with one machine and one Python."""

from __future__ import annotations

import re
from email.parser import HeaderParser
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from imagebuilder.errors import OutsideError

if TYPE_CHECKING:
    from imagebuilder.matrix.words import Python
    from imagebuilder.remote.project import WheelFile


class Asked(NamedTuple):
    """One requirement that holds: its name in canonical form, and how it is written."""

    name: str
    written: Requirement

    @property
    def pin(self) -> str:
        """The pin as the matrix writes it: `12.1.105`, `<14,>=13.0.3`, `13.0.2 [cublas,cudart]`."""
        spec = str(self.written.specifier) or "*"
        exact = spec.startswith("==") and "," not in spec
        extras = f" [{','.join(sorted(self.written.extras))}]" if self.written.extras else ""
        return (spec.removeprefix("==") if exact else spec) + extras

    @property
    def python_below(self) -> str | None:
        """The Python from which on the requirement does not hold, where its marker says one."""
        match = re.search(r'python_version < "([\d.]+)"', str(self.written.marker or ""))
        return match[1] if match else None


def python_wanted(metadata: str) -> str | None:
    """Give Requires-Python."""
    return HeaderParser().parsestr(metadata).get("Requires-Python")


def requirements(
    metadata: str, file: WheelFile, machine: str, python: Python, extra: str = ""
) -> tuple[Asked, ...]:
    """Give the requirements that hold, in the order of the metadata.

    With an `extra` those that it alone brings. Raises OutsideError for metadata that cannot be read.
    """
    environment = {
        "platform_system": "Linux", "sys_platform": "linux", "os_name": "posix", "platform_machine": machine,
        "python_version": str(python), "python_full_version": f"{python}.0",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
        "implementation_version": f"{python}.0", "platform_release": "", "platform_version": "",
    }  # fmt: skip
    found = []
    for text in HeaderParser().parsestr(metadata).get_all("Requires-Dist") or ():
        try:
            written = Requirement(text)
        except InvalidRequirement as error:
            raise OutsideError(f"the metadata of `{file.name}` cannot be read", why=str(error)) from None
        marker = written.marker
        if extra and (marker is None or marker.evaluate({**environment, "extra": ""})):
            continue
        if marker is None or marker.evaluate({**environment, "extra": extra}):
            found.append(Asked(canonicalize_name(written.name), written))
    return tuple(found)
